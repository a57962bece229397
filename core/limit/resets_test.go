package limit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestResetAfterIsWhenTheNextUnitComesBack: it was always the whole window. A sliding window of 2 in 6 s said
// 6 when a unit was back after 2.99, a token bucket of 10 in 10 s said 10 when one was back after 1.
func TestResetAfterIsWhenTheNextUnitComesBack(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		two, ten := k.make(e, "two", Per(2, 6*time.Minute)), k.make(e, "ten", Per(10, 10*time.Minute))
		a := core.Attempt{Actor: "a"}
		wantTen, wantTwo := 9*time.Minute, 2990*time.Minute/1000
		if k.name == "TokenBucket" {
			wantTen, wantTwo = time.Minute, 3*time.Minute // the second bucket was full again
		}
		if d := peek(t, two, a); d.ResetAfter != 0 {
			t.Errorf("nothing is used: %+v", d)
		}
		guardtest.Check(t, two, a)
		guardtest.Check(t, ten, a)
		guardtest.Check(t, ten, a)
		clock.Advance(time.Minute)
		if d := guardtest.Check(t, ten, a); d.ResetAfter != wantTen {
			t.Errorf("10 in 10 min: %+v, want %v", d, wantTen)
		}
		clock.Advance(2010 * time.Minute / 1000)
		if d := guardtest.Check(t, two, a); d.ResetAfter != wantTwo {
			t.Errorf("2 in 6 min: %+v, want %v", d, wantTwo)
		}
	})
}

// TestResetAfterIsExact takes at random, under one limit and several, and looks just before the moment that
// each answer names, and at it.
func TestResetAfterIsExact(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0))
		parts := Per(7, 50*time.Minute)
		if k.name == "SlidingWindow" {
			parts = parts.WithResolution(9)
		}
		for n, g := range []rateLimit{k.make(e, "one", Per(5, 40*time.Minute)), k.make(e, "parts", parts),
			k.make(e, "several", Per(3, 10*time.Minute), Per(5, 40*time.Minute), Per(6, time.Hour))} {
			for i := range 60 {
				a := core.Attempt{Actor: fmt.Sprint(n, i/20)}
				clock.Advance(time.Duration(rng.Int64N(540_000_000)) * time.Microsecond)
				a.Cost = 1 + rng.Int64N(2)
				d := guardtest.Check(t, g, a)
				if !d.Allowed {
					continue
				}
				if d.ResetAfter <= 0 {
					t.Fatalf("%+v", d)
				}
				at := clock.Now()
				look := func(when time.Time) int64 {
					clock.Advance(when.Sub(clock.Now()))
					p := peek(t, g, a)
					if p.Limit != d.Limit {
						return -1 // another limit is the binding one by then
					}
					return p.Remaining
				}
				before := look(at.Add(d.ResetAfter - time.Microsecond))
				after := look(at.Add(d.ResetAfter))
				if before > d.Remaining || after >= 0 && after <= d.Remaining {
					t.Errorf("%+v: %d units left just before, %d at that moment", d, before, after)
				}
				look(at)
			}
		}
	})
}
