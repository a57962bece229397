package votes

import (
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// memory returns the bytes of all keys of a poll.
func memory(t *testing.T, b redistest.Backend, g *Guard, poll string) (bytes int64) {
	t.Helper()
	for _, key := range g.Keys(poll) {
		bytes += b.Client.MemoryUsage(t.Context(), key).Val()
	}
	return bytes
}

// TestRequestsThatFailFillNoAuditStream: a voter's votes that were taken back left 210 bytes each, without a
// bound. Others go on.
func TestRequestsThatFailFillNoAuditStream(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Audit: true})
		try := func(actor string) core.Reason {
			d := guardtest.Check(t, g, core.Attempt{Actor: actor, Resource: "p", Item: "red"})
			if d.Allowed {
				guardtest.Settle(t, g, d, core.Rollback)
			}
			return d.Reason
		}
		for n := range 101 {
			if reason := try("ann"); reason != core.ReasonOK {
				t.Fatalf("try %d: %s", n+1, reason)
			}
		}
		full := memory(t, b, g, "p")
		for n := range 50 {
			if reason := try("ann"); reason != core.ReasonQuota {
				t.Fatalf("try %d: %s", n+102, reason)
			}
		}
		if now := memory(t, b, g, "p"); now != full || full > 50_000 {
			t.Errorf("%d bytes, and %d after 50 more tries", full, now)
		}
		if reason := try("bob"); reason != core.ReasonOK {
			t.Errorf("bob: %s", reason)
		}
		if v, err := g.Verify(t.Context(), "p"); err != nil || !v.Consistent() {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// TestChangesToEverNewChoicesEnd: each left a choice of its own in the book, without a bound. The last vote
// stands, and can be taken back.
//
// Promise: A voter casts at most PerVoter + 100 votes in all, changed and retracted ones included. The last
// votes stand.
func TestChangesToEverNewChoicesEnd(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{Change: true, Retract: true}})
		long := strings.Repeat("x", 1000)
		vote := func(n int) core.Decision {
			return guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: long + strconv.Itoa(n)})
		}
		for n := range 101 {
			if d := vote(n); !d.Allowed {
				t.Fatalf("vote %d: %+v", n+1, d.Reason)
			}
		}
		for n := range 20 {
			d := vote(1000 + n)
			if d.Reason != core.ReasonQuota || len(Choices(d)) != 1 || Choices(d)[0] != long+"100" {
				t.Fatalf("vote %d: %s, %.20q", n+102, d.Reason, Choices(d))
			}
		}
		if bytes := memory(t, b, g, "p"); bytes > 300_000 {
			t.Errorf("%d bytes", bytes)
		}
		wantTally(t, g, "p", map[string]int64{long + "100": 1})
	})
}

// TestTheTurnsOfAVoterAreCountedOn: a turn is one byte, and a poll may have more votes for each than that.
func TestTheTurnsOfAVoterAreCountedOn(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{PerVoter: 300, PerChoice: 300}})
		allowed := 0
		for n := range 450 {
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red"})
			if d.Allowed {
				if allowed++; n < 350 {
					guardtest.Settle(t, g, d, core.Rollback)
				}
			}
		}
		if allowed != 400 {
			t.Errorf("%d were allowed, want PerVoter and 100 more", allowed)
		}
		wantTally(t, g, "p", map[string]int64{"red": 50})
	})
}
