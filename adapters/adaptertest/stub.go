package adaptertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
)

// stub is an application's guard. By default it allows everything and has nothing to settle.
type stub struct {
	name      string
	traits    core.Traits
	check     func(core.Attempt) (core.Decision, error)
	settleErr error
	sureErr   error  // error of settling with Commit
	diary     *diary // where checks and settlements are noted, if anywhere
}

func (g *stub) Name() string        { return g.name }
func (g *stub) Traits() core.Traits { return g.traits }

func (g *stub) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	g.diary.note("check " + g.name)
	if g.check != nil {
		return g.check(a)
	}
	return core.Decision{Guard: g.name, Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
}

func (g *stub) Settle(_ context.Context, _ core.Decision, end core.Ending) error {
	g.diary.note(fmt.Sprintf("settle %s %t", g.name, end.Commits()))
	if end.Commits() && g.sureErr != nil {
		return g.sureErr
	}
	return g.settleErr
}

// refusing is a stub's check that refuses for the reason.
func refusing(name string, reason core.Reason) func(core.Attempt) (core.Decision, error) {
	return func(a core.Attempt) (core.Decision, error) {
		return core.Decision{Guard: name, Attempt: a, Reason: reason}, nil
	}
}

// diary is a list of events.
type diary struct {
	mu    sync.Mutex
	notes []string
}

func (d *diary) note(text string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, text)
}

// want wants these notes, and clears the list.
func (d *diary) want(t testing.TB, notes ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.notes, notes) {
		t.Errorf("what happened: %q, want %q", d.notes, notes)
	}
	d.notes = nil
}
