package core

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestDrainWaitsForUndos: a vote whose answer came too late is not counted, also if the process ends right after.
func TestDrainWaitsForUndos(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		witness := newEngine(b).Votes("v", VoteOptions{})
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := newEngine(b)
		votes := e.Votes("v", VoteOptions{})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(t, votes, Attempt{Actor: "bob", Resource: "p", Item: "red"}) // there is a connection
		faults.Hang(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := votes.Check(ctx, Attempt{Actor: "ann", Resource: "p", Item: "red"})
			done <- err
		}()
		redistest.Eventually(t, 10*time.Second, func() bool { return tally(t, witness, "p")["red"] == 2 }, "the vote to be counted")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Check: %v", err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Drain(over); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "attempts are not settled") {
			t.Errorf("Drain, with no time: %v", err)
		}
		faults.Hang(false)
		if err := Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := tally(t, witness, "p"); got["red"] != 1 {
			t.Errorf("the tally is %v when Drain has returned", got)
		}
	})
}
