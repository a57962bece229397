package budget

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// A model of a budget that is easy to see through: each node has all units that it ever took, by the moment
// as of which they count. Times are in microseconds.
type modelNode struct {
	units map[int64]int64 // by the end of their part
	late  int64
	used  map[period.Span]int64
	p     period.Span // in force; zero: none yet
	named map[time.Duration]int64
}

type model struct {
	nodes  map[string]*modelNode
	latest int64
}

func (m *model) of(path []string) *modelNode {
	key := Path(path...)
	if m.nodes[key] == nil {
		m.nodes[key] = &modelNode{units: map[int64]int64{}, used: map[period.Span]int64{},
			named: map[time.Duration]int64{}}
	}
	return m.nodes[key]
}

// has reports whether a unit counts that was taken since a moment.
func (k *modelNode) has(since int64) bool {
	for moment, units := range k.units {
		if units > 0 && moment > since {
			return true
		}
	}
	return false
}

// forgets reports whether a window may be dropped by a write for these nodes, since neither they nor others
// have asked for it for long.
func (m *model) forgets(now int64, nodes []node) bool {
	for _, n := range nodes {
		for w, named := range m.of(n.path).named {
			asked := slices.ContainsFunc(n.limits, func(l Limit) bool { return l.Window == w })
			if !asked && max(now, m.latest)-named >= w.Microseconds()/2 {
				return true
			}
		}
	}
	return false
}

func roundUp(at, part int64) int64 { return (at + part - 1) / part * part }

type modelFigure struct{ max, used, wait, resets int64 }

// decide takes the cost at all nodes, if it fits or is spent already.
func (m *model) decide(
	now int64, nodes []node, cost int64, force bool,
) (ok bool, at int64, all []modelFigure) {
	for _, n := range nodes {
		for _, l := range n.limits {
			if k := m.of(n.path); l.Period == nil {
				now = max(now, k.late)
			} else {
				now = max(now, k.p.Begins*1000)
			}
		}
	}
	need, ok := max(cost, 1), true
	m.latest = max(m.latest, now)
	in := map[*modelNode]period.Span{}
	for _, n := range nodes {
		k := m.of(n.path)
		for _, l := range n.limits {
			f := modelFigure{max: l.Max}
			if l.Period == nil {
				w := l.Window.Microseconds()
				first := int64(0)
				for moment, units := range k.units {
					if moment+w > now {
						f.used += units
						if units > 0 && (first == 0 || moment < first) {
							first = moment
						}
					}
				}
				if f.used+need > l.Max && !force {
					f.wait = -1
					for moment := range k.units { // the first moment at which it fits
						later := int64(0)
						for other, units := range k.units {
							if other > moment {
								later += units
							}
						}
						wait := moment + w - now
						if wait > 0 && later+need <= l.Max && (f.wait < 0 || wait < f.wait) {
							f.wait = wait
						}
					}
				}
				if first == 0 && cost > 0 {
					first = roundUp(now, n.part)
				}
				if first > 0 {
					f.resets = first + w - now
				}
			} else {
				if in[k], _ = l.Period.At(now / 1000); k.p.Ends*1000 > now { // lasts until it ends
					in[k] = k.p
				}
				f.used, f.resets = k.used[in[k]], in[k].Ends*1000-now
				if l.Overage != Metered {
					hard := l.Max + l.Max*int64(l.Overage)/100
					f.max = hard
					if f.used+need > hard && !force {
						if f.wait = f.resets; need > hard {
							f.wait = -1
						}
					}
				}
			}
			ok = ok && f.wait == 0
			all = append(all, f)
		}
	}
	for _, n := range nodes {
		k := m.of(n.path)
		for _, l := range n.limits {
			if l.Period == nil && cost > 0 && (ok || k.has(now-l.Window.Microseconds())) {
				k.named[l.Window] = now
			}
		}
	}
	if !ok || cost == 0 {
		return ok, now, all
	}
	for i, n := range nodes {
		k, windows := m.of(n.path), false
		for _, l := range n.limits {
			if l.Period == nil {
				windows = true
			} else {
				k.p = in[k]
				k.used[k.p] += cost
			}
		}
		if windows {
			k.units[roundUp(now, nodes[i].part)] += cost
			k.late = now
		}
	}
	return ok, now, all
}

func (m *model) refund(stamp int64, nodes []node, units int64) {
	for _, n := range nodes {
		k := m.of(n.path)
		if moment := roundUp(stamp, max(n.part, 1)); k.units[moment] > 0 {
			k.units[moment] -= min(units, k.units[moment])
		}
		for in := range k.used {
			if in.Has(stamp / 1000) {
				k.used[in] = max(k.used[in]-units, 0)
			}
		}
	}
}

// TestABudgetDecidesAsTheModel: random paths, costs, limits that change from call to call, clocks that jump,
// refunds and charges. Each figure of each limit is that of the model.
func TestABudgetDecidesAsTheModel(t *testing.T) {
	redistest.EachInCI(t, func(t *testing.T, b redistest.Backend) {
		runs := 0
		rapid.Check(t, func(rt *rapid.T) {
			runs++
			clock := guardtest.NewClockAt(time.UnixMilli(1_900_000_000_000))
			m := &model{nodes: map[string]*modelNode{}}
			ways := map[string][]time.Duration{}
			find := func(path []string) (limits []Limit, err error) { return nil, nil }
			g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), fmt.Sprintf("o%d", runs), Options{
				Levels: []string{"org", "team", "user"},
				Find:   func(path []string) ([]Limit, error) { return find(path) }})
			parts := rapid.Bool().Draw(rt, "by parts of a second")
			var open []core.Decision
			for range rapid.IntRange(5, 60).Draw(rt, "calls") {
				passed := rapid.OneOf(rapid.Int64Range(0, 900), rapid.Int64Range(0, 9_000_000),
					rapid.Int64Range(0, 60_000_000), rapid.Int64Range(-30_000_000, 0)).Draw(rt, "passed")
				clock.Advance(time.Duration(passed) * time.Microsecond)
				actor := Path("acme", rapid.SampledFrom([]string{"", "dev", "o|s"}).Draw(rt, "team"),
					rapid.SampledFrom([]string{"", "ann", "bo}b"}).Draw(rt, "user"))
				now := clock.Now().UnixMicro()
				given := map[string][]Limit{}
				find = func(path []string) ([]Limit, error) {
					key := Path(path...)
					if limits, ok := given[key]; ok {
						return limits, nil
					}
					if ways[key] == nil {
						ways[key] = rapid.SampledFrom([][]time.Duration{{10 * time.Second},
							{5 * time.Second, 20 * time.Second}, {20 * time.Second, 10 * time.Second, time.Minute}, {0}, {},
							{5 * time.Second, 0}}).Draw(rt, "windows")
					}
					limits := []Limit{}
					for _, w := range ways[key] {
						most := rapid.Int64Range(0, 9).Draw(rt, "max")
						if w == 0 {
							limits = append(limits, Limit{Max: 3 * most, Period: period.Every(25 * time.Second),
								Overage: rapid.SampledFrom([]Overage{Hard, Hard, Metered, UpTo(20)}).Draw(rt, "overage")})
							continue
						}
						named, known := m.of(path).named[w]
						recent := known && max(now, m.latest)-named < w.Microseconds()/2
						if !recent || len(limits) == 0 || rapid.IntRange(0, 4).Draw(rt, "asked") > 0 {
							resolution := 0
							if parts {
								resolution = int(w / time.Second)
							}
							limits = append(limits, Limit{Max: most, Window: w, Resolution: resolution})
						}
					}
					given[key] = limits
					return limits, nil
				}
				a := core.Attempt{Actor: actor, Cost: rapid.Int64Range(1, 4).Draw(rt, "cost")}
				_, nodes, err := g.nodesOf(a)
				if err != nil {
					rt.Fatal(err)
				}
				cost, check := a.Cost, g.Check
				switch rapid.IntRange(0, 6).Draw(rt, "what") {
				case 0:
					cost, check = 0, g.Peek
				case 1:
					if len(open) > 0 {
						d := open[len(open)-1]
						open = open[:len(open)-1]
						actual := rapid.Int64Range(0, d.Attempt.Cost+3).Draw(rt, "actual")
						claim, _ := core.ClaimOf[*taken](d)
						if m.forgets(now, claim.nodes) {
							actual = min(actual, d.Attempt.Cost)
						}
						for range 2 { // the second one changes nothing
							if err := g.Spend(context.Background(), d, actual); err != nil {
								rt.Fatal(err)
							}
						}
						if actual <= d.Attempt.Cost {
							m.refund(claim.stamp, claim.nodes, d.Attempt.Cost-actual)
						} else {
							m.decide(now, claim.nodes, actual-d.Attempt.Cost, true)
						}
					}
					continue
				}
				d, err := check(context.Background(), a)
				if err != nil {
					rt.Fatal(err)
				}
				ok, at, figures := m.decide(now, nodes, cost, false)
				var want, got strings.Builder
				fmt.Fprintln(&want, ok, at)
				claim, _ := core.ClaimOf[*taken](d)
				fmt.Fprintln(&got, d.Allowed, claim.stamp)
				for i, f := range figures {
					if ok {
						f.used += cost
					}
					fmt.Fprintln(&want, f.max, f.used, f.wait, f.resets)
					if i < len(claim.figures) {
						c := claim.figures[i]
						wait := c.RetryAfter.Microseconds()
						if c.RetryAfter < 0 {
							wait = -1
						}
						fmt.Fprintln(&got, c.Max, c.Used, wait, c.ResetAfter.Microseconds())
					}
				}
				if got.String() != want.String() {
					rt.Fatalf("%q at %d, cost %d: got\n%swant\n%s", actor, now, cost, got.String(), want.String())
				}
				if d.Allowed && cost > 0 {
					open = append(open, d)
				}
			}
		})
	})
}
