package seckill

import (
	"math"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// oddIDs are operation IDs as clients and databases make them, and as attackers do. No two are the same.
var oddIDs = map[string]string{
	"19 digits":              "9223372036854775807",
	"19 digits, one less":    "9223372036854775806", // the same as a double
	"UUID":                   "b7c5a6f0-9f43-4b3c-8a53-6c8d0b2f1f11",
	"UUID in capitals":       "B7C5A6F0-9F43-4B3C-8A53-6C8D0B2F1F11",
	"a space":                " ",
	"10 kB":                  strings.Repeat("x", 10_000),
	"10 kB, another end":     strings.Repeat("x", 9_999) + "y",
	"braces":                 "{tv}",
	"braces the other way":   "}tv{",
	"NUL":                    "a\x00b",
	"no NUL":                 "ab",
	"like a restock's field": "restock|r",
	"like a hash":            "#FKmN9ahTUyeWFQTTs3vOhkTMeZpKXwJ4bFHdHuGLyQU",
}

// TestSeckillOddIDs: every operation ID is a separate reservation, for every call that uses it.
func TestSeckillOddIDs(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 1000})
		left, sold := int64(1000), int64(0)
		for name, id := range oddIDs {
			a := core.Attempt{Actor: "ann " + name, Resource: "tv", ID: id}
			d := guardtest.Check(t, g, a)
			guardtest.WantReason(t, d, core.ReasonOK)
			if d.Replayed || d.Attempt.ID != id {
				t.Errorf("%s: %+v", name, d)
			}
			if d := guardtest.Check(t, g, a); !d.Allowed || !d.Replayed {
				t.Errorf("%s, again: %+v", name, d)
			}
			other := a
			other.Actor = "bob"
			guardtest.WantReason(t, guardtest.Check(t, g, other), core.ReasonConflict)
			end := g.Confirm
			if sold++; sold%2 == 0 {
				end = g.Cancel
			}
			for _, replayed := range []bool{false, true} {
				d, err := end(t.Context(), a)
				if err != nil || !d.Allowed || d.Replayed != replayed {
					t.Errorf("%s by name: %+v, %v", name, d, err)
				}
			}
			left -= sold % 2
			for range 2 { // restocks have IDs of their own
				if _, err := g.Restock(t.Context(), "tv", id, 2); err != nil {
					t.Errorf("restock %s: %v", name, err)
				}
			}
			left += 2
			wantStatus(t, g, "tv", left, 0, (sold+1)/2)
			events, err := g.Events(t.Context(), "tv", "", 1000)
			if err != nil {
				t.Fatal(err)
			}
			if got := events[len(events)-1].ID; got != id && (len(id) < 97 || got != script.Encode(id)) {
				t.Errorf("%s: the outbox has %.100q", name, got)
			}
		}

		d := guardtest.Check(t, g, core.Attempt{Actor: "none", Resource: "tv"}) // without an ID one is made
		if len(d.Attempt.ID) < 20 {
			t.Errorf("an ID that can be guessed: %+v", d)
		}
		guardtest.Settle(t, g, d, core.Rollback)
		for _, a := range []core.Attempt{
			{Actor: "ann", Resource: "tv"}, {Actor: "ann", ID: "o"}, {Resource: "tv", ID: "o"},
		} {
			if _, err := g.Confirm(t.Context(), a); !guardtest.IsInvalid(err) {
				t.Errorf("confirm %+v: %v", a, err)
			}
			if _, err := g.Cancel(t.Context(), a); !guardtest.IsInvalid(err) {
				t.Errorf("cancel %+v: %v", a, err)
			}
		}
		if _, err := g.Restock(t.Context(), "tv", "", 1); !guardtest.IsInvalid(err) {
			t.Errorf("restock under no ID: %v", err)
		}
		wantStatus(t, g, "tv", left, 0, (sold+1)/2)
	})
}

// TestSeckillOddItems: the same texts as names of items.
func TestSeckillOddItems(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		for name, item := range oddIDs {
			openSale(t, g, item, Sale{Stock: 2})
			guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: item, ID: item}),
				core.Commit)
			if n, err := g.Sweep(t.Context(), item); n != 0 || err != nil {
				t.Errorf("%s: sweep: %d, %v", name, n, err)
			}
			if err := g.Close(t.Context(), item); err != nil {
				t.Errorf("%s: close: %v", name, err)
			}
			wantStatus(t, g, item, 1, 0, 1)
		}
		_, noStatus := g.Status(t.Context(), "")
		_, noSweep := g.Sweep(t.Context(), "")
		_, noVerify := g.Verify(t.Context(), "")
		for what, err := range map[string]error{
			"status": noStatus, "verify": noVerify, "close": g.Close(t.Context(), ""), "sweep": noSweep,
		} {
			if !guardtest.IsInvalid(err) {
				t.Errorf("%s of no item: %v", what, err)
			}
		}
	})
}

// TestSeckillOddQuantities: odd quantities of attempts, and odd stocks.
func TestSeckillOddQuantities(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "few", Sale{Stock: 3, PerBuyer: core.MaxAmount})
		openSale(t, g, "many", Sale{Stock: core.MaxAmount, PerBuyer: 2})
		openSale(t, g, "all", Sale{Stock: core.MaxAmount, PerBuyer: core.MaxAmount})
		for _, c := range []struct {
			quantity       int64
			few, many, all core.Reason // "": not a quantity
		}{
			{0, core.ReasonOK, core.ReasonOK, core.ReasonOK}, // no quantity is one
			{1, core.ReasonOK, core.ReasonOK, core.ReasonOK},
			{3, core.ReasonOK, core.ReasonDuplicate, core.ReasonOK},
			{4, core.ReasonSoldOut, core.ReasonDuplicate, core.ReasonOK},
			{core.MaxAmount - 1, core.ReasonSoldOut, core.ReasonDuplicate, core.ReasonOK},
			{core.MaxAmount, core.ReasonSoldOut, core.ReasonDuplicate, core.ReasonOK},
			{core.MaxAmount + 1, "", "", ""},
			{math.MaxInt64, "", "", ""},
			{-1, "", "", ""},
			{math.MinInt64, "", "", ""},
		} {
			for item, want := range map[string]core.Reason{"few": c.few, "many": c.many, "all": c.all} {
				d, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: item, Cost: c.quantity, ID: "op"})
				if d.Reason != want || d.Allowed != (want == core.ReasonOK) || guardtest.IsInvalid(err) != (want == "") ||
					err != nil && want != "" {
					t.Errorf("%d of %s: %+v, %v, want %q", c.quantity, item, d, err, want)
				}
				if d.Allowed {
					if max(c.quantity, 1) != d.Limit-d.Remaining {
						t.Errorf("%d of %s: %+v", c.quantity, item, d)
					}
					guardtest.Settle(t, g, d, core.Rollback)
				}
			}
		}
		wantStatus(t, g, "few", 3, 0, 0)
		wantStatus(t, g, "many", core.MaxAmount, 0, 0)
		wantStatus(t, g, "all", core.MaxAmount, 0, 0)
	})
}
