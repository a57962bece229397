package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/ops/config/internal/rulefile"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// Live is the rules of a file that may change while requests are served: see [Watch]. It is safe for
// concurrent use.
type Live struct {
	path    string
	gate    *core.Engine
	options *options
	set     atomic.Pointer[Set]
	state   atomic.Pointer[State]

	mu      sync.Mutex // held while the file is read and built, so that no reload overtakes a later one
	seen    [sha256.Size]byte
	lastErr string              // of a file that could not be read
	mounted map[string]struct{} // names of lists that sources have
	looked  [sha256.Size]byte   // of the file when follow looked at it last
}

// Watch loads a file, makes its guards and rules on an engine, and follows the file until ctx ends. It
// returns the error of [Load] or [Config.Build] if the first file is bad.
//
// The file is read every two seconds ([WithInterval]), and is loaded when its contents differ. When the new
// file is good and whole, the next request passes the new rules. YAML is whole if it ends with a line
// "...": a file that was cut may be a valid file with fewer rules. A request that has entered is settled by
// the rules that checked it. When the file is bad, or gone, the former rules stay in force. The engine's
// logger and [WithNotify] are told, and [Live.State] says so until there is a good file.
//
// A guard whose definition is the same stays the same guard, with its leases, its memory and its claims. A
// guard that changes is made anew under its name, so it goes on with the keys in Redis: limits keep their
// logs. On an engine without Redis a rate limit stays, and only its limits change. A guard that is no
// longer in the file keeps its keys in Redis until they expire.
func Watch(ctx context.Context, gate *core.Engine, path string, opts ...Option) (*Live, error) {
	l := &Live{path: path, gate: gate, options: newOptions(opts), mounted: map[string]struct{}{}}
	data, err := rulefile.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	set, err := l.load(data, nil)
	if err != nil {
		return nil, err
	}
	l.inForce(set, 0)
	l.looked = sha256.Sum256(data)
	go l.follow(ctx)
	return l, nil
}

// follow looks at the file until the context ends.
//
// It reads the file, since events would not do. Kubernetes replaces a link to a directory above the file,
// editors replace the file itself, and network file systems send no events. A small file costs microseconds.
func (l *Live) follow(ctx context.Context) {
	ticker := time.NewTicker(l.options.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.look()
		}
	}
}

// look reloads a file that has changed and stands still: two looks in a row have read the same. A file that
// is written in place is half written for a while, and half a file may be a valid one.
func (l *Live) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, err := rulefile.ReadFile(l.path)
	sum := sha256.Sum256(data)
	if err == nil && sum != l.looked {
		l.looked = sum
		return
	}
	_ = l.reload(data, err) // the logger and the state have the error
}

// Reload reads the file now, such as on SIGHUP, and returns why it is not in force, or nil.
func (l *Live) Reload() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reload(rulefile.ReadFile(l.path))
}

// reload brings what was read into force. The caller holds mu.
func (l *Live) reload(data []byte, err error) error {
	if err != nil {
		if l.lastErr != err.Error() {
			l.lastErr = err.Error()
			l.failed(fmt.Errorf("config: %w", err))
		}
		return l.state.Load().Err
	}
	sum := sha256.Sum256(data)
	if sum == l.seen && l.lastErr == "" {
		return l.state.Load().Err
	}
	l.lastErr = ""
	before := l.set.Load()
	if sum == before.config.sum { // the good file is back
		l.seen = sum
		l.inForce(before, l.state.Load().Changes)
	} else if set, err := l.load(data, before); err != nil {
		l.failed(err)
	} else {
		l.inForce(set, l.state.Load().Changes+1)
	}
	return l.state.Load().Err
}

// load makes the set of a file.
func (l *Live) load(data []byte, before *Set) (*Set, error) {
	l.seen = sha256.Sum256(data)
	c, err := parse(l.path, data, &l.options.program)
	if err != nil {
		return nil, err
	}
	if !c.whole {
		return nil, errorOf(*rulefile.CheckEnd(l.path, data))
	}
	var missing []Mistake
	for name := range l.mounted {
		if !slices.Contains(c.Lists(), name) {
			missing = append(missing, Mistake{File: l.path, Line: 1, Path: "rules." + name,
				Text: "missing: the program has mounted this list; to let all requests pass, set rollout.enabled to 0"})
		}
	}
	if missing != nil {
		return nil, &Error{missing}
	}
	return c.build(l.gate, before)
}

// inForce lets requests pass the rules of a set.
func (l *Live) inForce(s *Set, changes int64) {
	l.set.Store(s)
	state := &State{Path: l.path, Sum: fmt.Sprintf("%x", s.config.sum), Since: time.Now(), Changes: changes,
		Set: s}
	former := l.state.Swap(state)
	if former == nil {
		return
	}
	l.gate.Logger().Info("gatehouse: rules changed", "file", l.path, "sum", state.Sum)
	l.tell(state)
}

// failed keeps the rules that are in force.
func (l *Live) failed(err error) {
	state := *l.state.Load()
	if state.Failed.IsZero() {
		state.Failed = time.Now()
	}
	state.Err = err
	l.state.Store(&state)
	mistakes := 0
	if of := (*Error)(nil); errors.As(err, &of) {
		mistakes = len(of.Mistakes)
	}
	l.gate.Logger().Error("gatehouse: bad file of rules, the former rules stay in force", "file", l.path,
		"mistakes", mistakes, "err", err)
	l.tell(&state)
}

// tell calls the program's function. The file is followed on if that panics.
func (l *Live) tell(s *State) {
	if l.options.notify == nil {
		return
	}
	if err := rulefile.Caught(func() { l.options.notify(*s) }); err != nil {
		l.gate.Logger().Error("gatehouse: the function of config.WithNotify has panicked", "err", err)
	}
}

// State returns the file in force, and the mistake in the present one.
func (l *Live) State() State { return *l.state.Load() }

// Engine returns the engine that the guards were made on.
func (l *Live) Engine() *core.Engine { return l.gate }

// Set returns the guards and rules that are in force now.
func (l *Live) Set() *Set { return l.set.Load() }

// Source returns the rules of a list, as they are when a request arrives, for the function Follow of an
// adapter:
//
//	mux.Handle("POST /orders", nethttpmw.Follow(live.Source("checkout"))(orders))
//	r.POST("/orders", ginmw.Follow(live.Source("checkout")), placeOrder)
//	e.POST("/orders", placeOrder, echomw.Follow(live.Source("checkout")))
//
// It panics if the file has no list of that name. From then on a file without the list is a bad one.
func (l *Live) Source(list string) pipeline.Source {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set.Load().must(list)
	l.mounted[list] = struct{}{}
	return &source{l, list}
}

// source is a mounted list.
type source struct {
	live *Live
	list string
}

// Pipeline implements pipeline.Source. It allocates nothing.
func (s *source) Pipeline() *pipeline.Pipeline { return s.live.set.Load().pipelines[s.list] }
