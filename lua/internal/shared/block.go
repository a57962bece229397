package shared

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// block is a source: what its head says, and its text.
type block struct {
	file    string
	head    int // the lines of the file before the text
	text    string
	needs   []string // names that the text uses and does not declare
	gives   []string // names that it declares or assigns, for what follows
	returns bool     // it may return from the script, or from the function in which it stands
	names   names
	users   map[string]bool // the scripts that have it
	used    map[string]bool // those of gives that a script uses
}

// clause matches a line of a head that a program reads.
var clause = regexp.MustCompile(`^-- (needs|gives|returns): (.*)$`)

// newBlock reads the source of a block, and returns all that its head does not say of its text.
func newBlock(file, source string) (*block, error) {
	head, text, _ := strings.Cut(source, "\n\n")
	b := &block{
		file: file, head: strings.Count(head, "\n") + 2, text: text,
		users: make(map[string]bool), used: make(map[string]bool),
	}
	if strings.TrimSpace(text) == "" {
		return b, fmt.Errorf("%s:1: the block has no text: it follows the first empty line", file)
	}
	for line := range strings.SplitSeq(head, "\n") {
		switch m := clause.FindStringSubmatch(line); {
		case m == nil:
		case m[1] == "needs":
			b.needs = append(b.needs, strings.Split(m[2], ", ")...)
		case m[1] == "gives":
			b.gives = append(b.gives, strings.Split(m[2], ", ")...)
		default:
			b.returns = m[2] == "yes"
		}
	}
	var err error
	if b.names, err = parseNames(text); err != nil {
		return b, at(file, b.head, err)
	}
	return b, b.check()
}

// check compares the head with the text.
func (b *block) check() error {
	var mistakes []error
	report := func(line int, format string, args ...any) {
		mistakes = append(mistakes, at(b.file, b.head, mistake{line, fmt.Sprintf(format, args...)}))
	}
	free, changes := make(map[string]bool), make(map[string]bool)
	for _, u := range b.names.uses {
		if u.of != nil {
			continue
		}
		if !free[u.name] && !slices.Contains(b.needs, u.name) {
			report(u.line, "the block uses %s, which is not among what it needs", u.name)
		}
		free[u.name], changes[u.name] = true, changes[u.name] || u.assigned
	}
	first := 1 - b.head
	for _, name := range b.needs {
		if !free[name] {
			report(first, "the block needs %s and does not use it", name)
		}
	}
	for _, name := range b.gives {
		if !b.names.declared[name] && !changes[name] {
			report(first, "the block gives %s and neither declares nor assigns it", name)
		}
	}
	if b.names.returns != b.returns {
		report(first, "the block returns: %v, its head says %v", b.names.returns, b.returns)
	}
	return errors.Join(mistakes...)
}

// unused returns what is wrong with a block that no script needs as it is.
func (b *block) unused() error {
	if n := len(b.users); n < 2 {
		return fmt.Errorf("%s:1: the block is used by %d scripts: a shared block needs two or more", b.file, n)
	}
	for _, name := range b.gives {
		if !b.used[name] {
			return fmt.Errorf("%s:1: the block gives %s, which no script uses", b.file, name)
		}
	}
	return nil
}

// place is a block in a script, whose text begins behind a line and ends before another.
type place struct {
	*block
	begins, ends int
}

func (p place) has(line int) bool { return p.begins < line && line < p.ends }

// checkScript returns the names of a script that nothing declares, those that it takes from a block that does
// not give them, and blocks that give what it does not use.
func checkScript(file, script string, places []place) error {
	all, err := parseNames(script)
	if err != nil {
		return at(file, 0, err)
	}
	mistakes := make(map[mistake]bool)
	for _, u := range all.uses {
		if u.of == nil {
			text := fmt.Sprintf("%s is declared nowhere before", u.name)
			for _, p := range places {
				if p.has(u.line) {
					text = fmt.Sprintf("block %s needs %s, which is declared nowhere before", p.name(), u.name)
				}
			}
			mistakes[mistake{u.line, text}] = true
		}
	}
	for _, p := range places {
		used := false
		for _, name := range p.taken(all.uses) {
			if slices.Contains(p.gives, name.name) {
				p.used[name.name], used = true, true
			} else {
				mistakes[mistake{name.line, fmt.Sprintf("the script uses %s of block %s, which does not give it",
					name.name, p.name())}] = true
			}
		}
		if !used && !p.returns && !p.names.writes {
			mistakes[mistake{p.begins, fmt.Sprintf("nothing uses what block %s gives", p.name())}] = true
		}
	}
	sorted := slices.SortedFunc(maps.Keys(mistakes), func(a, b mistake) int { return a.line - b.line })
	var errs []error
	for _, m := range sorted {
		errs = append(errs, at(file, 0, m))
	}
	return errors.Join(errs...)
}

// taken returns the uses, outside of the block, of what it declares, and those after it of what it assigns.
func (p place) taken(uses []use) (taken []use) {
	changed := make(map[*declaration]bool)
	for _, u := range uses {
		if u.of != nil && p.has(u.line) && u.assigned && !p.has(u.of.line) {
			changed[u.of] = true
		}
	}
	for _, u := range uses {
		if u.of != nil && !p.has(u.line) && (p.has(u.of.line) || changed[u.of] && u.line > p.ends) {
			taken = append(taken, u)
		}
	}
	return taken
}

func (b *block) name() string {
	return strings.TrimSuffix(b.file[strings.LastIndex(b.file, "/")+1:], ".lua")
}

// at puts the file and the line before a mistake. The lines of the mistake begin behind the first ones.
func at(file string, first int, err error) error {
	var m mistake
	if errors.As(err, &m) {
		return fmt.Errorf("%s:%d: %w", file, first+m.line, err)
	}
	return fmt.Errorf("%s: %w", file, err)
}
