package config

import (
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/config/internal/rulefile"
	"github.com/gatehouse-go/gatehouse/ops/control"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// Option tells what a program adds to its files, such as key functions of its own.
type Option func(*options)

type options struct {
	program
	interval time.Duration
	notify   func(State)
}

// WithKey makes a key function of the program known to files under a name. It panics if the name is that of a
// built-in function, or is taken, or if the function is nil.
func WithKey(name string, f keyfuncs.Func) Option {
	if err := rulefile.CheckKeyName(name); err != nil {
		panic(err.Error())
	}
	if f == nil {
		panic(fmt.Sprintf("config: WithKey(%q) has a nil function: pass the key function", name))
	}
	return func(o *options) {
		if o.Keys[name] != nil {
			panic(fmt.Sprintf("config: two key functions are named %q: give each a name of its own", name))
		}
		o.Keys[name] = f
	}
}

// WithCost makes a function that finds the cost of a request known to files: see pipeline.Rule.Cost. It
// panics if the name is no name or taken, or if the function is nil.
func WithCost(name string, f func(*keyfuncs.Request) (int64, error)) Option {
	if !rulefile.CheckName(name) || f == nil {
		panic(fmt.Sprintf("config: WithCost(%q) needs a name of letters, digits, '.', '_' and '-', and a function",
			name))
	}
	return func(o *options) {
		if o.Costs[name] != nil {
			panic(fmt.Sprintf("config: two cost functions are named %q: give each a name of its own", name))
		}
		o.Costs[name] = f
	}
}

// WithGuards makes guards of the program, made in code, known to files by their names.
func WithGuards(guards ...core.Guard) Option {
	return func(o *options) {
		for _, g := range guards {
			o.Guards[g.Name()] = g
		}
	}
}

// WithDesk lets operators decide about the rate limits, the lists and the roll-outs of files, by their names.
// The name of a roll-out is the name of its list of rules, a space, and the name of its guard.
func WithDesk(desk *control.Desk) Option { return func(o *options) { o.desk = desk } }

// WithAdjust calls a function for each rule that was made out of a file, with the name of its list. It may
// set what files cannot have: Texts, Answer, Defer. If it panics, the file is a bad one.
func WithAdjust(f func(list string, rule *pipeline.Rule)) Option {
	return func(o *options) { o.adjust = append(o.adjust, f) }
}

// ForGateway is for package gateway, which decides before the application answers. The file needs routes, and
// the end mark that [Watch] demands. In the lists of the routes, mistakes are what only the application sees:
// guards that confirm or hold, what depends on the answer, and key functions that read the body. The key
// function user finds only the names that are passed here.
func ForGateway(users ...string) Option {
	return func(o *options) { o.ForGateway, o.Users = true, users }
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
// not call [Live.Reload] or [Live.Source], which would wait for it. If it panics, the logger is told.
func WithNotify(f func(State)) Option {
	return func(o *options) { o.notify = f }
}

// State says which file is in force.
type State struct {
	// Path is the file.
	Path string `json:"path"`
	// Sum is the SHA-256 of the file that is in force, in hexadecimal digits.
	Sum string `json:"sum"`
	// Since is when that file came into force, by the clock of this process.
	Since time.Time `json:"since"`
	// Changes counts the files that have come into force since the first one.
	Changes int64 `json:"changes"`
	// Set is the guards and rules that are in force.
	Set *Set `json:"-"`
	// Err is why the present file is not in force, or nil if it is: an [*Error], or an error of reading it. The
	// rules of the last good file stay in force.
	Err error `json:"-"`
	// Failed is since when Err is set, or zero.
	Failed time.Time `json:"failed,omitzero"`
}

// Load reads and checks a file. It talks to no Redis and makes no guard. Whatever is wrong with the contents
// of the file is in the [*Error], up to a hundred mistakes. An error of reading the file wraps that of
// package os.
func Load(path string, opts ...Option) (*Config, error) {
	data, err := rulefile.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return Parse(path, data, opts...)
}

// Parse is [Load] for a file that the program has read. The name stands in messages.
func Parse(name string, data []byte, opts ...Option) (*Config, error) {
	return parse(name, data, &newOptions(opts).program)
}

func newOptions(opts []Option) *options {
	o := &options{interval: 2 * time.Second}
	o.Keys, o.Guards = map[string]keyfuncs.Func{}, map[string]core.Guard{}
	o.Costs = map[string]func(*keyfuncs.Request) (int64, error){}
	for _, option := range opts {
		option(o)
	}
	return o
}
