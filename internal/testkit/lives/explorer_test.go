package lives

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// A life is what the explorer knows of a guard or tool.
type life struct {
	name string   // of the subtest
	of   []string // the guards and tools of internal/testkit/everyguard that it is a life of

	// events is the alphabet.
	events []event

	// same reports that "… a b …" needs no run, because another sequence that is run is the same: the later of
	// two changes counts, or the two commute. It may be nil.
	same func(a, b string) bool

	// world makes the guard and its definition in a place, once for each worker.
	world func(p *place) world

	// found are sequences in which a fault was found. They are always run.
	found []string

	// absolute is a part of the names of those keys that the scripts expire by PEXPIREAT.
	absolute string

	// row is the row of the table "Lives". A second life of the same guard leaves it out.
	row row
}

// An event is a letter of an alphabet.
type event struct {
	name string

	// silent events have no answer (time, a plan): a sequence need not end with one.
	silent bool
}

// alphabet makes the events of names with spaces between them: those that have an answer, and silent ones.
func alphabet(answered, silent string) (events []event) {
	for _, name := range strings.Fields(answered) {
		events = append(events, event{name, false})
	}
	for _, name := range strings.Fields(silent) {
		events = append(events, event{name, true})
	}
	return events
}

// A world is a guard and the definition of one life after the other.
type world interface {
	// begin begins a life. The name is new, the Redis empty, the clock at the epoch.
	begin(name string)

	// do does an event and tells what was seen. The error is errImpossible, or a sentence of the definition
	// that was broken, with the details behind a colon.
	do(event string) (seen string, err error)

	// end looks at what comes late, after the last event.
	end() error
}

// A row says what a guard remembers of a life, and what it forgets.
type row struct{ remembers, forgets, over, back string }

// errImpossible is for an event that cannot be now: there is nothing to give back.
var errImpossible = errors.New("impossible")

// broken makes the error of a broken sentence. Failures with the same sentence are told together.
func broken(sentence, format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{sentence}, args...)...)
}

// all are the lives that are registered.
var all []life

// explore registers a life.
func explore(l life) bool { all = append(all, l); return true }

// How far the explorer goes: length is the greatest length, most is how many sequences of a length are run at
// the most.
func extent(t *testing.T) (length, most int) {
	t.Helper()
	length, most = 4, 25
	switch {
	case redistest.Soak():
		length, most = 7, 5_000
	case redistest.All():
		length, most = 4, 250
	}
	for name, value := range map[string]*int{"EXPLORE_LENGTH": &length, "EXPLORE_MOST": &most} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("%s=%q: give a number", name, text)
			}
			*value = n
		}
	}
	return length, most
}

// seed returns the seed for what is drawn.
func seed(t *testing.T) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(cmp.Or(os.Getenv("EXPLORE_SEED"), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
	if err != nil {
		t.Fatalf("EXPLORE_SEED: %v", err)
	}
	return n
}

// A sequence is a sequence of events, each by its number in the alphabet.
type sequence string

// name returns the names of the events. Those of several words have them joined by a hyphen.
func (l *life) text(s sequence) string {
	words := make([]string, len(s))
	for i := range s {
		words[i] = l.events[s[i]].name
	}
	return strings.Join(words, " ")
}

// next returns the sequences that are one event longer.
func (l *life) next(alive []sequence, dead map[sequence]bool) []sequence {
	var longer []sequence
	for _, s := range alive {
		if dead[s] {
			continue
		}
		for e, event := range l.events {
			if l.same == nil || s == "" || !l.same(l.events[s[len(s)-1]].name, event.name) {
				longer = append(longer, s+sequence([]byte{byte(e)}))
			}
		}
	}
	return longer
}

// A finding is a sequence that breaks a sentence.
type finding struct {
	sequence sequence
	err      error
	seen     []string
}

// String tells what was seen, and how to see it again.
func (l *life) string(f finding, test string) string {
	return fmt.Sprintf("%v\n  %s\n  EXPLORE='%s' go test ./internal/testkit/lives -run '%s'", f.err,
		strings.Join(f.seen, "\n  "), l.text(f.sequence), test)
}

// run runs a sequence. It returns how many of its events were good, and what the next one broke, if anything.
func (l *life) run(p *place, w world, name string, s sequence) (good int, found *finding) {
	p.reset()
	w.begin(name)
	var seen []string
	for i := range s {
		e := l.events[s[i]].name
		told, err := w.do(e)
		if errors.Is(err, errImpossible) {
			return i, nil
		}
		seen = append(seen, fmt.Sprintf("%-16s %s", e, told))
		if err == nil && i == len(s)-1 {
			err = w.end()
			if bare := p.reset(); err == nil && len(bare) > 0 {
				err = broken("A key has no TTL", "%q", bare)
			}
		}
		if err != nil {
			return i, &finding{s[:i+1], err, seen}
		}
	}
	return len(s), nil
}

// workers is how many sequences are run side by side.
const workers = 4

// An explorer explores a life.
type explorer struct {
	*life
	places []*place
	worlds []world

	mu    sync.Mutex
	dead  map[sequence]bool // fail or are impossible, so nothing behind them is run
	found map[string][]finding
	runs  int
	good  int // of the runs
}

func (x *explorer) goods() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.good
}

// newExplorer makes an explorer with a place for each worker.
func newExplorer(t *testing.T, l *life, server *redistest.Server, n int) *explorer {
	t.Helper()
	x := &explorer{life: l, dead: map[sequence]bool{}, found: map[string][]finding{}}
	for i := range n {
		p := newPlace(t, server, i, l)
		x.places, x.worlds = append(x.places, p), append(x.worlds, l.world(p))
	}
	return x
}

// note keeps what a run has shown.
func (x *explorer) note(s sequence, good int, f *finding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.runs++
	known := false // an event in the middle, a silent one, fails in all sequences that begin so
	if good < len(s) {
		known = x.dead[s[:good+1]]
		x.dead[s[:good+1]] = true
	} else {
		x.good++
	}
	if f != nil && !known {
		kind, _, _ := strings.Cut(f.err.Error(), ":")
		x.found[kind] = append(x.found[kind], *f)
	}
}

// all runs sequences, until most were good, and returns those that can go on.
func (x *explorer) all(sequences []sequence, most int) (alive []sequence) {
	work := make(chan sequence)
	var group sync.WaitGroup
	for i := range x.worlds {
		group.Go(func() {
			for s := range work {
				x.mu.Lock()
				skip := false
				for n := 1; n < len(s); n++ {
					skip = skip || x.dead[s[:n]]
				}
				number := x.runs
				x.mu.Unlock()
				if skip {
					continue
				}
				good, f := x.run(x.places[i], x.worlds[i], fmt.Sprintf("%d-%x-%d", i, string(s), number), s)
				x.note(s, good, f)
			}
		})
	}
	before := x.goods()
	for i, s := range sequences {
		if !x.events[s[len(s)-1]].silent {
			work <- s
		}
		if x.goods()-before >= most {
			sequences = sequences[:i+1]
			break
		}
	}
	close(work)
	group.Wait()
	return slices.DeleteFunc(sequences, func(s sequence) bool { return x.dead[s] })
}

// report tells of each broken sentence the shortest sequences.
func (x *explorer) report(t *testing.T) {
	t.Helper()
	for kind, found := range x.found {
		slices.SortStableFunc(found, func(a, b finding) int {
			return cmp.Or(len(a.sequence)-len(b.sequence), cmp.Compare(a.sequence, b.sequence))
		})
		t.Errorf("%s. %d sequences, the shortest:", kind, len(found))
		for _, f := range found[:min(3, len(found))] {
			t.Log("\n  " + x.string(f, "^TestLives$/^"+x.name+"$"))
		}
	}
}

// parse reads the names of events.
func (l *life) parse(t *testing.T, text string) (s sequence) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		e := slices.IndexFunc(l.events, func(e event) bool { return e.name == word })
		if e < 0 {
			t.Fatalf("%s has no event %q", l.name, word)
		}
		s += sequence([]byte{byte(e)})
	}
	return s
}

// TestLives runs the sequences of every life.
//
// Promise: In every order of the events of a life, each answer is what the definition says.
func TestLives(t *testing.T) {
	server := redistest.StartServer(t)
	length, most := extent(t)
	seed := seed(t)
	for i := range all {
		l := &all[i]
		t.Run(l.name, func(t *testing.T) {
			if one := os.Getenv("EXPLORE"); one != "" {
				x := newExplorer(t, l, server, 1)
				s := l.parse(t, one)
				good, f := x.run(x.places[0], x.worlds[0], "one", s)
				t.Logf("%d of %d events were good", good, len(s))
				if f != nil {
					t.Error(x.string(*f, "^TestLives$/^"+l.name+"$"))
				}
				return
			}
			x := newExplorer(t, l, server, workers)
			for i, one := range l.found {
				if _, f := x.run(x.places[0], x.worlds[0], fmt.Sprint("found", i), l.parse(t, one)); f != nil {
					t.Error(x.string(*f, "^TestLives$/^"+l.name+"$"))
				}
			}
			draw := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // which sequences are run is no secret
			alive := []sequence{""}
			for n := 1; n <= length; n++ {
				begun, runs, good := time.Now(), x.runs, x.good
				next := l.next(alive, x.dead)
				of := len(next)
				if of > most {
					draw.Shuffle(of, func(i, j int) { next[i], next[j] = next[j], next[i] })
				}
				alive = x.all(next, most)
				t.Logf("length %d: %d sequences, %d run, %d possible, in %.1f s", n, of, x.runs-runs, x.good-good,
					time.Since(begun).Seconds())
				if x.good-good >= most {
					t.Logf("drawn by EXPLORE_SEED=%d", seed)
				}
			}
			x.report(t)
		})
	}
}
