package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/control"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// Config is what a file says, checked: the guards and the lists of rules that [Config.Build] makes. It never
// changes, and it is safe for concurrent use.
type Config struct {
	file    string
	sum     [sha256.Size]byte
	options *options
	guards  []named[*guardSpec]
	rules   []named[[]*ruleSpec]
	lists   map[string]*keyfuncs.List
	whole   bool
}

// Option tells what a program adds to its files, such as key functions of its own.
type Option func(*options)

type options struct {
	keys     map[string]keyfuncs.Func
	costs    map[string]func(*keyfuncs.Request) (int64, error)
	guards   map[string]core.Guard
	desk     *control.Desk
	adjust   []func(list string, rule *pipeline.Rule)
	interval time.Duration
	notify   func(State)
}

// WithKey makes a key function of the program known to files under a name. It panics if the name is that of a
// built-in function, or is taken, or if the function is nil.
func WithKey(name string, f keyfuncs.Func) Option {
	if err := checkKeyName(name); err != nil {
		panic(err.Error())
	}
	if f == nil {
		panic(fmt.Sprintf("config: WithKey(%q) has a nil function: pass the key function", name))
	}
	return func(o *options) {
		if o.keys[name] != nil {
			panic(fmt.Sprintf("config: two key functions are named %q: give each a name of its own", name))
		}
		o.keys[name] = f
	}
}

// WithCost makes a function that finds the cost of a request known to files: see pipeline.Rule.Cost. It
// panics if the name is no name or taken, or if the function is nil.
func WithCost(name string, f func(*keyfuncs.Request) (int64, error)) Option {
	if !checkName(name) || f == nil {
		panic(fmt.Sprintf("config: WithCost(%q) needs a name of letters, digits, '.', '_' and '-', and a function",
			name))
	}
	return func(o *options) {
		if o.costs[name] != nil {
			panic(fmt.Sprintf("config: two cost functions are named %q: give each a name of its own", name))
		}
		o.costs[name] = f
	}
}

// WithGuards makes guards of the program, made in code, known to files by their names.
func WithGuards(guards ...core.Guard) Option {
	return func(o *options) {
		for _, g := range guards {
			o.guards[g.Name()] = g
		}
	}
}

// WithDesk lets operators decide about the rate limits, the lists and the roll-outs of files, by their names;
// a roll-out's is that of its list of rules, a space, and that of its guard.
func WithDesk(desk *control.Desk) Option { return func(o *options) { o.desk = desk } }

// WithAdjust calls a function for each rule that was made out of a file, with the name of its list. It may
// set what files cannot have: Texts, Answer, Defer.
func WithAdjust(f func(list string, rule *pipeline.Rule)) Option {
	return func(o *options) { o.adjust = append(o.adjust, f) }
}

// WithInterval sets how often [Watch] reads its file. The default is two seconds. It panics on less than
// 10 ms.
func WithInterval(d time.Duration) Option {
	if d < 10*time.Millisecond {
		panic(fmt.Sprintf("config: WithInterval(%v): reading that often only costs: set 10ms or more", d))
	}
	return func(o *options) { o.interval = d }
}

// WithNotify calls a function after each change of the file that [Watch] or [Live.Reload] has seen, whether
// the file was good or bad. Calls never overlap, and the next change waits for the end of a call. The first
// one may come before Watch has returned, so take the guards from [State], not from Live. The function must
// not call [Live.Reload] or [Live.Source], which would wait for it.
func WithNotify(f func(State)) Option {
	return func(o *options) { o.notify = f }
}

// Load reads and checks a file. It talks to no Redis and makes no guard. Whatever is wrong with the contents
// of the file is in the [*Error], up to a hundred mistakes. An error of reading the file wraps that of
// package os.
func Load(path string, opts ...Option) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return Parse(path, data, opts...)
}

// Parse is [Load] for a file that the program has read. The name stands in messages.
func Parse(name string, data []byte, opts ...Option) (*Config, error) {
	return parse(name, data, newOptions(opts))
}

func newOptions(opts []Option) *options {
	o := &options{keys: map[string]keyfuncs.Func{}, costs: map[string]func(*keyfuncs.Request) (int64, error){},
		guards: map[string]core.Guard{}, interval: 2 * time.Second}
	for _, option := range opts {
		option(o)
	}
	return o
}

func parse(name string, data []byte, o *options) (*Config, error) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"}) // nobody calls it
	defer client.Close()
	d := &reader{
		file: name, options: o, keys: map[string]*namedKey{}, lists: map[string]*keyfuncs.List{},
		scratch: core.New(client, core.WithDeadline(time.Minute)),
	}
	c := &Config{file: name, options: o, sum: sha256.Sum256(data), whole: checkEnd(name, data) == nil}
	d.readAll(data, c)
	if len(d.mistakes) > 0 {
		sortMistakes(d.mistakes)
		return nil, &Error{d.mistakes}
	}
	return c, nil
}

// Whole reports whether the end of the file is marked, as [Watch] demands: YAML by a last line "...".
func (c *Config) Whole() bool { return c.whole }

// Lists returns the names of the lists of rules, in the order of the file.
func (c *Config) Lists() []string {
	names := make([]string, len(c.rules))
	for i, list := range c.rules {
		names[i] = list.name
	}
	return names
}

// Guards returns the names of the guards of the file, in its order. Kind has the kind of each.
func (c *Config) Guards() []string {
	names := make([]string, len(c.guards))
	for i, g := range c.guards {
		names[i] = g.name
	}
	return names
}

// Kind returns the kind of a guard as the file names it, such as sliding_window, or "" if the file has no
// guard of that name.
func (c *Config) Kind(guard string) string {
	for _, g := range c.guards {
		if g.name == guard {
			return g.value.kind
		}
	}
	return ""
}

// reader reads one file and collects its mistakes.
type reader struct {
	file     string
	options  *options
	mistakes []Mistake
	scratch  *core.Engine // on which guards are made only to hear what they say of their options
	keys     map[string]*namedKey
	lists    map[string]*keyfuncs.List
	kinds    []keyKind
	values   int // of the file
	rules    int
}

// enough is what mistake panics with when there are so many mistakes that nobody reads more.
type enough struct{}

// readAll reads the file, until there are enough mistakes.
func (d *reader) readAll(data []byte, c *Config) {
	defer func() {
		if p := recover(); p != nil && p != any(enough{}) {
			panic(p)
		}
	}()
	if root := d.document(data); root != nil {
		d.read(root, c)
	}
}

// mistake reports a mistake at a value.
func (d *reader) mistake(at string, n *yaml.Node, format string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{d.file, n.Line, n.Column, at, fmt.Sprintf(format, args...)})
	if len(d.mistakes) >= maxMistakes {
		panic(enough{})
	}
}

// mistakeAt reports a mistake of the whole file.
func (d *reader) mistakeAt(line, column int, text string) {
	d.mistakes = append(d.mistakes, Mistake{d.file, line, column, "", text})
}

// try calls a function that panics on mistakes, and reports these.
func (d *reader) try(at string, n *yaml.Node, f func()) (ok bool) {
	if err := caught(f); err != nil {
		d.mistake(at, n, "%v", err)
		return false
	}
	return true
}

// trial makes a guard that nobody uses.
func (d *reader) trial(at string, n *yaml.Node, f func(e *core.Engine, name string)) bool {
	const name = "trial"
	defer d.scratch.Release(name)
	return d.try(at, n, func() { f(d.scratch, name) })
}

// caught returns the panic of a constructor as an error, without the names of packages and the trial's.
func caught(f func()) (err error) {
	defer func() {
		if p := recover(); p == any(enough{}) {
			panic(p)
		} else if p != nil {
			text := strings.TrimSuffix(fmt.Sprint(p), ` (guard "trial")`)
			if before, after, ok := strings.Cut(text, ": "); ok && !strings.ContainsAny(before, ` "`) {
				text = after
			}
			err = errors.New(text)
		}
	}()
	f()
	return nil
}

// noText reports whether a key function has found nothing.
func noText(found string, err error) bool {
	if err == nil {
		return found == ""
	}
	return errors.Is(err, keyfuncs.ErrMissing) && !errors.Is(err, keyfuncs.ErrMalformed)
}

// canonical returns a value as text, without what does not matter: positions, comments, quotes, and the order
// of members.
func canonical(n *yaml.Node) string {
	var b bytes.Buffer
	writeCanonical(&b, n)
	return b.String()
}

func writeCanonical(b *bytes.Buffer, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		var members []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			members = append(members, canonical(n.Content[i])+":"+canonical(n.Content[i+1]))
		}
		slices.Sort(members)
		fmt.Fprintf(b, "{%s}", strings.Join(members, ","))
	case yaml.SequenceNode:
		b.WriteByte('[')
		for _, item := range n.Content {
			writeCanonical(b, item)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	default:
		fmt.Fprintf(b, "%q", n.Value)
	}
}
