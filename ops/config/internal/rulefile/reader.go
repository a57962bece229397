package rulefile

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Program is what a program makes known to its files.
type Program struct {
	Keys   map[string]keyfuncs.Func
	Costs  map[string]func(*keyfuncs.Request) (int64, error)
	Guards map[string]core.Guard
	// ForGateway is set where a gateway decides, which sees no bodies and no endings. Users are the names for
	// which it has what the login stored.
	ForGateway bool
	Users      []string
}

// Mistake is one thing that is wrong with a file: see config.Mistake.
type Mistake struct {
	File         string
	Line, Column int
	Path, Text   string
}

// reader reads one file and collects its mistakes.
type reader struct {
	file     string
	program  *Program
	mistakes []Mistake
	scratch  *core.Engine // on which guards are made only to hear what they say of their options
	keys     map[string]*namedKey
	lists    map[string]*keyfuncs.List
	listKeys map[string]key
	kinds    []keyKind
	values   int // of the file
	rules    int
}

// maxMistakes is how many mistakes of a file are reported. Reading ends with the last of them.
const maxMistakes = 100

// enough is what mistake panics with when there are so many mistakes that nobody reads more.
type enough struct{}

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
	if err := Caught(f); err != nil {
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

// Caught returns the panic of a constructor as an error, without the names of packages and the trial's.
func Caught(f func()) (err error) {
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

// key is a key function of a file.
type key struct {
	find keyfuncs.Func
	size int // how many functions it calls: a name that stands for two others, and so on, grows fast
	// needs says what it reads that a gateway does not see; empty: nothing.
	needs string
}

// namedKey is a member of the section keys, which may refer to others.
type namedKey struct {
	node    *yaml.Node
	at      string
	state   int // 0: not read yet, 1: being read, 2: read
	value   key
	correct bool
}

// schema is a part of a JSON Schema.
type schema = map[string]any

// keyKind is a key function that a file can name.
type keyKind struct {
	name, doc string
	bare      func() keyfuncs.Func // without an argument; nil: it needs one
	argument  schema               // nil: it takes none
	// read makes the function with an argument.
	read func(d *reader, at string, n *yaml.Node) (key, bool)
}
