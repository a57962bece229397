package pipeline

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

var update = flag.Bool("update", false, "write the table of claims in docs/contracts.md")

// claimStates says of each state what a claim in it is.
var claimStates = [states]struct{ name, meaning string }{
	stateAsked:     {"asked", "the guard has not allowed the attempt"},
	stateOpen:      {"open", "allowed, the handler runs"},
	stateKept:      {"kept", "the status says that the request has not failed"},
	stateFailed:    {"failed", "the status says that it has failed"},
	stateTaken:     {"taken", "the caller of `Take` settles it"},
	stateKeeping:   {"keeping", "kept, and too late for `Take`"},
	stateUndoing:   {"undoing", "failed, and too late for `Take`"},
	stateConfirmed: {"confirmed", "committed before the header was sent"},
	statePending:   {"pending", "confirmed, the end of the outcome is still to come"},
	stateUnsure:    {"unsure", "the outcome could not be stored, and is stored in the background"},
	stateRevoked:   {"revoked", "confirmed, and nobody got the answer"},
	stateSettled:   {"settled", "its ending is told to the guard, or to the background"},
}

var claimEvents = [events]string{
	eventAllow: "allowed", eventSucceed: "success", eventFail: "failure", eventTake: "`Take`", eventClose: "end",
	eventCommit: "commit", eventBegin: "commit in part", eventMiss: "no commit", eventLose: "loss",
	eventSettle: "settled",
}

// TestTableOfClaims: docs/contracts.md has the table of transitions.
func TestTableOfClaims(t *testing.T) {
	var table strings.Builder
	table.WriteString("| a claim is | which means | and becomes |\n|---|---|---|\n")
	for from, is := range claimStates {
		var moves []string
		for e, what := range claimEvents {
			if to := transitions[from][e]; to != 0 && event(e) != eventSettle {
				moves = append(moves, fmt.Sprintf("%s → %s", what, claimStates[to].name))
			}
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", is.name, is.meaning, strings.Join(moves, ", "))
	}
	guardtest.WantOnPage(t, "../docs/contracts.md", "claims", table.String(), *update)
}

// TestEveryWayOfAClaim walks every way through the table, and compares it with what claims promise.
func TestEveryWayOfAClaim(t *testing.T) {
	reached := map[state]bool{}
	var walk func(way []event)
	walk = func(way []event) {
		c := &claim{}
		var taken, closed, committed, lost, settled bool
		for _, e := range way {
			before := c.state()
			after := c.on(e)
			switch moved := after != before; {
			case !moved:
				continue
			case taken || settled:
				t.Fatalf("%v: a claim that was taken or settled is moved", names(way))
			case e == eventTake && (closed || committed):
				t.Fatalf("%v: taken too late", names(way))
			case committed && e == eventFail:
				t.Fatalf("%v: a confirmed claim fails", names(way))
			}
			taken, closed = after == stateTaken, closed || e == eventClose
			committed = committed || after == stateConfirmed || after == statePending
			lost, settled = lost || e == eventLose, after == stateSettled
		}
		reached[c.state()] = true
		if c.goesBack() && (taken || settled || committed && !lost) {
			t.Fatalf("%v: %s is said to go back", names(way), claimStates[c.state()].name)
		}
		if s := c.state(); s != stateAsked && s != stateTaken && c.on(eventSettle) != stateSettled {
			t.Fatalf("%v: %s cannot be settled", names(way), claimStates[s].name)
		}
		if len(way) < 6 {
			for e := range events {
				walk(append(way[:len(way):len(way)], e))
			}
		}
	}
	walk([]event{eventAllow})
	for s := stateOpen; s < states; s++ {
		if !reached[s] {
			t.Errorf("no way leads to %s", claimStates[s].name)
		}
	}
}

func names(way []event) (all []string) {
	for _, e := range way {
		all = append(all, claimEvents[e])
	}
	return all
}

// TestOneOfTwoSettlesAClaim: a handler that takes a claim while its request ends has it, or has not, and so has
// the pipeline.
func TestOneOfTwoSettlesAClaim(t *testing.T) {
	for range 2000 {
		c := &claim{}
		c.on(eventAllow)
		var handler, pipeline bool
		var both sync.WaitGroup
		both.Go(func() { handler = c.on(eventTake) == stateTaken })
		both.Go(func() { pipeline = c.on(eventClose) == stateUndoing })
		if both.Wait(); handler == pipeline {
			t.Fatalf("the handler has it: %v, the pipeline: %v", handler, pipeline)
		}
	}
}

// allowing is a guard whose claims depend on how requests end.
type allowing struct{}

func (allowing) Name() string        { return "allowing" }
func (allowing) Traits() core.Traits { return core.Traits{} }
func (allowing) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	return core.Decision{Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
}
func (allowing) Settle(context.Context, core.Decision, core.Ending) error { return nil }

// TestNobodyIsCountedAndNobodyAnswers: the client of a request that all rules let pass undecided goes away.
func TestNobodyIsCountedAndNobodyAnswers(t *testing.T) {
	p := New(Rule{Guard: allowing{}, Who: keyfuncs.User("uid"), NoKey: NoKeySkip})
	ctx, leave := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	passage, refusal := p.Enter(&keyfuncs.Request{Request: r})
	if refusal != nil {
		t.Fatal(refusal.Reason)
	}
	w := httptest.NewRecorder()
	passage.Watch(w)
	leave()
	passage.Leave(http.StatusOK)
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d, want 503", w.Code)
	}
}
