package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestDrainWaitsForUndos: a vote whose reply came too late is not counted, even if the process ends right
// after Drain.
//
// Promise (Endings): `core.Drain` waits for all settlements, `Engine.Drain` for its own.
func TestDrainWaitsForUndos(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		witness := votes.New(guardtest.NewEngine(b), "v", votes.Options{})
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b, core.WithDeadline(time.Minute))
		ballots := votes.New(e, "v", votes.Options{})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		guardtest.Check(t, ballots, core.Attempt{Actor: "bob", Resource: "p", Item: "red"}) // opens a connection
		faults.Hang(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := ballots.Check(ctx, core.Attempt{Actor: "ann", Resource: "p", Item: "red"})
			done <- err
		}()
		redistest.Eventually(t, time.Minute, func() bool { return tally(t, witness, "p")["red"] == 2 },
			"the vote to be counted")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Check: %v", err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := core.Drain(over); !errors.Is(err, context.Canceled) ||
			!strings.Contains(err.Error(), "attempts are not settled") {
			t.Errorf("Drain, with no time: %v", err)
		}
		faults.Hang(false)
		if err := core.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := tally(t, witness, "p"); got["red"] != 1 {
			t.Errorf("the tally is %v after Drain", got)
		}
	})
}
