package limit

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// eachKindAndParts runs f for every algorithm, and for a sliding window that counts by parts, on every
// backend.
func eachKindAndParts(t *testing.T, f func(t *testing.T, b redistest.Backend, k kind)) {
	t.Helper()
	eachKind(t, f)
	t.Run(byParts.name, func(t *testing.T) {
		redistest.Each(t, func(t *testing.T, b redistest.Backend) { f(t, b, byParts) })
	})
}

// eachSliding runs f with the two sliding windows.
func eachSliding(t *testing.T, f func(t *testing.T, b redistest.Backend, k kind)) {
	t.Helper()
	for _, k := range []kind{kinds[0], byParts} {
		t.Run(k.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) { f(t, b, k) })
		})
	}
}

// TestRepeatedRefundTakesNothingFromOthers: units are known by their moment, which others may share. Refunds
// are repeated after all that Redis remembers of them has expired.
func TestRepeatedRefundTakesNothingFromOthers(t *testing.T) {
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0)), "w",
			Per(1000, 30*24*time.Hour))
		a := core.Attempt{Actor: "a"}
		var back []core.Decision
		for range 20 { // all at one moment
			back = append(back, guardtest.Check(t, g, a))
			guardtest.Check(t, g, a)
		}
		for _, d := range back {
			refund(t, g, d)
		}
		before := peek(t, g, a).Remaining
		if err := b.Client.Del(t.Context(), refundsKey(g, a)).Err(); err != nil { // as when it expires
			t.Fatal(err)
		}
		clock.Advance(63 * time.Second)
		for _, d := range back {
			refund(t, g, d)
		}
		if d := peek(t, g, a); d.Remaining != before || before != 980 {
			t.Errorf("%d units left, and %d after the refunds were repeated: want 980", before, d.Remaining)
		}
	})
}

func refundsKey(g rateLimit, a core.Attempt) string {
	return limiterOf(g).Key(kit.TagOf(a), "refunds")
}

// failRefunds makes it look as if the reply of the decision's refund were lost.
func failRefunds(d core.Decision) {
	if took, ok := core.ClaimOf[*taken](d); ok {
		took.ending.done = false
	}
}

// TestRefundAgainAfterALostReply: the second call finds the first one's name. When that may be forgotten, it
// gives nothing back and says so.
//
// Promise: A refund whose reply was lost is sent again and counts once. If Redis no longer knows whether it
// counted, it is refused.
func TestRefundAgainAfterALostReply(t *testing.T) {
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0)), "w",
			Per(1000, time.Hour))
		a := core.Attempt{Actor: "a"}
		taken := make([]core.Decision, 130)
		for i := range taken {
			taken[i] = guardtest.Check(t, g, a)
		}
		first, late := taken[0], taken[1]
		refund(t, g, first)
		want := peek(t, g, a).Remaining
		failRefunds(first)
		refund(t, g, first)
		if d := peek(t, g, a); d.Remaining != want {
			t.Errorf("%+v: want %d remaining: the refund counted twice", d, want)
		}
		for _, d := range taken[2:] {
			refund(t, g, d)
		}
		want = peek(t, g, a).Remaining
		failRefunds(first)
		if err := g.Refund(t.Context(), first); !errors.Is(err, core.ErrGone) {
			t.Errorf("a refund that may have been made: %v, want an ErrGone", err)
		}
		if d := peek(t, g, a); d.Remaining != want {
			t.Errorf("%+v: want %d remaining: a refund that may have been made was made", d, want)
		}
		refund(t, g, late) // the first call for this attempt, however many came before it
		if d := peek(t, g, a); d.Remaining != want+1 {
			t.Errorf("%+v: want %d remaining", d, want+1)
		}
	})
}

// TestRefundsTakeNoMemoryPerRequest: the key of the refunds is all that is left of an attempt that was given
// back, and it does not grow with them.
func TestRefundsTakeNoMemoryPerRequest(t *testing.T) {
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		g := k.make(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "w", Per(10, 24*time.Hour))
		a := core.Attempt{Actor: "a"}
		for i := range 150 {
			a.ID = fmt.Sprint(i)
			refund(t, g, guardtest.Check(t, g, a))
		}
		key := refundsKey(g, a)
		if n := b.Client.StrLen(t.Context(), key).Val(); n != 960 {
			t.Errorf("the refunds of an actor take %d bytes, want 960", n)
		}
		if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 2*time.Minute {
			t.Errorf("the refunds of an actor are remembered for %v", ttl)
		}
		for _, left := range b.Client.Keys(t.Context(), b.Prefix+"*").Val() {
			if left != key && !slices.Contains(g.logKeys(a), left) {
				t.Errorf("%s is left", left)
			}
		}
	})
}

// TestARefundWaitsForOneThatIsUnderWay: the second of two calls at once does not send it again.
func TestARefundWaitsForOneThatIsUnderWay(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		client := &holding{Client: b.Client, replied: make(chan struct{}), release: make(chan struct{})}
		counted := &guardtest.Counting{Client: client}
		g := k.make(guardtest.NewEngineOver(b, counted), "twice", PerHour(1))
		if err := g.Refund(t.Context(), guardtest.Check(t, g, core.Attempt{Actor: "a"})); err != nil {
			t.Fatal(err) // Redis has all scripts from now on
		}
		taken := guardtest.Check(t, g, core.Attempt{Actor: "a"})
		client.hold.Store(true)
		first := make(chan error)
		go func() { first <- g.Refund(t.Context(), taken) }()
		<-client.replied
		sent := counted.Sent.Load()
		second := g.(kit.Phased).BeginSettle(t.Context(), taken, core.Rollback)
		if second.Call != nil {
			t.Fatal("the second call would be sent beside the first")
		}
		close(client.release)
		_, waited := second.End(t.Context())
		if err := errors.Join(<-first, waited); err != nil {
			t.Error(err)
		}
		if now := counted.Sent.Load(); now != sent {
			t.Errorf("the refund was sent %d times more", now-sent)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonLimited)
	})
}
