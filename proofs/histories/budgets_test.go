package histories

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// A tree of five nodes: the organisation, a team with two users, and a user without a team. Each history has
// an organisation of its own.
const (
	theOrg = iota
	theTeam
	firstUser
	budgetUsers = 3
	budgetNodes = firstUser + budgetUsers

	budgetPeriod = 10 * time.Minute
	budgetStep   = 5 * time.Minute // the clock between two phases
)

// budgetPaths are the paths of the users, and pathsTo those of the nodes, below the organisation.
var (
	budgetPaths = [budgetUsers][]int{{theOrg, theTeam, firstUser}, {theOrg, theTeam, firstUser + 1},
		{theOrg, firstUser + 2}}
	pathsTo = [budgetNodes][]string{{}, {"dev"}, {"dev", "ann"}, {"dev", "bob"}, {"", "cid"}}
)

// budgetPlan is the limits of the organisation, of teams, and of users.
type budgetPlan [3][]budget.Limit

var (
	windowsOnly = budgetPlan{
		{{Max: 6, Window: 12 * time.Minute}},
		{{Max: 5, Window: 7 * time.Minute, Resolution: 7}},
		{{Max: 2, Window: 4 * time.Minute}, {Max: 4, Window: 12 * time.Minute}},
	}
	withPeriods = budgetPlan{
		{{Max: 5, Period: period.Every(budgetPeriod), Overage: budget.UpTo(20)}},
		{{Max: 5, Window: 7 * time.Minute}, {Max: 4, Period: period.Every(budgetPeriod)}},
		{{Max: 3, Window: 4 * time.Minute, Resolution: 2}, {Max: 4, Period: period.Every(budgetPeriod),
			Overage: budget.Metered}},
	}
)

func (p *budgetPlan) find(path []string) ([]budget.Limit, error) { return p[len(path)-1], nil }

func (p *budgetPlan) of(node int) []budget.Limit { return p[min(node, firstUser)] }

// counted returns the moment as of which a unit counts in a window: the end of its part.
func counted(at int32, l budget.Limit) int32 {
	if l.Resolution == 0 {
		return at
	}
	part := int32(l.Window.Milliseconds()) / int32(l.Resolution)
	return (at + part - 1) / part * part
}

// periodOf returns when the period of a moment begins.
func periodOf(at int64) int64 { return at - at%budgetPeriod.Milliseconds() }

// budgetIn is a call of a budget at a moment of the test's clock.
type budgetIn struct {
	Op    string // check, peek, settle, undo, override, pause, resume, restore
	Call  int    // of check, settle and undo: the number of the check
	User  int    // of these, and of peek
	Node  int    // of the others
	Cost  int
	Spent int   // of settle: what was used of the cost, or beyond it
	Max   int   // of override; -1: as the plan says. Of restore: the units
	Until int64 // of override and pause; 0: for ever
	At    int64 // milliseconds since a moment with which a period began, a day and more before the history
}

type budgetOut struct {
	Allowed bool
	Reason  core.Reason
	Wait    time.Duration
	Figures [5]budgetFigure
}

type budgetFigure struct{ Max, Used int64 }

// budgetUnits count at all nodes of a user's path.
type budgetUnits struct {
	at   int32
	cost int16
	user int16
}

// budgetState has all units that were ever taken; what counts at a node is a sum over them.
type budgetState struct {
	taken   [2 * most]budgetUnits // by check; in the second half what its settlement charged
	late    [budgetNodes]int64    // the moments of the last units
	max     [budgetNodes]int8     // overrides, greater by one; 0: none
	until   [budgetNodes]int64    // when they end; 0: never
	paused  [budgetNodes]bool
	resumes [budgetNodes]int64 // when pauses end; 0: never
	begun   [budgetNodes]int64 // the latest period for which units were restored
	before  [budgetNodes][4]restoredUnits
	undone  set // calls that were undone before they arrived
	settled set
}

// restoredUnits were used in a period before its count was lost; a history has four periods at most.
type restoredUnits struct{ begins, units int64 }

func isOver(until, now int64) bool { return until > 0 && until <= now }

// now is the moment of a call. Time never runs backwards along a path.
func (s *budgetState) now(p *budgetPlan, in budgetIn) int64 {
	now := in.At
	for _, node := range budgetPaths[in.User] {
		for _, l := range p.of(node) {
			last := s.late[node]
			if l.Period != nil {
				last = max(periodOf(last), s.begun[node])
			}
			now = max(now, last)
		}
	}
	return now
}

// counting returns the units that count at a node's limit.
func (s *budgetState) counting(node int, l budget.Limit, now int64) (all []budgetUnits, used int64) {
	for _, u := range s.taken {
		counts := periodOf(int64(u.at)) == periodOf(now)
		if l.Period == nil {
			u.at = counted(u.at, l)
			counts = int64(u.at)+l.Window.Milliseconds() > now
		}
		if u.cost > 0 && counts && slices.Contains(budgetPaths[u.user], node) {
			all, used = append(all, u), used+int64(u.cost)
		}
	}
	if l.Period != nil {
		used += s.restored(node, periodOf(now)).units
	}
	return all, used
}

// restored returns what was restored of a period, or where that can be noted.
func (s *budgetState) restored(node int, begins int64) *restoredUnits {
	for i := range s.before[node] {
		if r := &s.before[node][i]; r.begins == begins || r.begins == 0 {
			return r
		}
	}
	panic("a history of many periods")
}

// limit returns what applies to a node: Max, and where it ends.
func (s *budgetState) limit(node int, l budget.Limit, now int64) (most, ends int64) {
	if s.max[node] > 0 && !isOver(s.until[node], now) {
		l.Max = int64(s.max[node]) - 1
	}
	if l.Overage == budget.Metered {
		return l.Max, 1 << 30
	}
	ends = l.Max + l.Max*int64(l.Overage)/100
	return ends, ends
}

// ask answers an attempt. Wait is below zero where waiting does not help.
func (s *budgetState) ask(p *budgetPlan, in budgetIn, now int64) (out budgetOut) {
	for _, node := range budgetPaths[in.User] {
		if s.paused[node] && !isOver(s.resumes[node], in.At) {
			out.Reason = budget.ReasonPaused
			if s.resumes[node] > 0 {
				out.Wait = time.Duration(s.resumes[node]-in.At) * ms
			}
			return out
		}
	}
	out.Allowed, out.Reason = true, core.ReasonOK
	n, need := 0, int64(max(in.Cost, 1))
	for _, node := range budgetPaths[in.User] {
		for _, l := range p.of(node) {
			most, ends := s.limit(node, l, in.At)
			all, used := s.counting(node, l, now)
			out.Figures[n] = budgetFigure{most, used}
			if n++; used+need <= ends {
				continue
			}
			wait, reason := -1*ms, core.ReasonOverLimit
			if need <= ends {
				wait, reason = firstMoment(l, all, need, ends, now)
			}
			if out.Allowed || out.Wait >= 0 && (wait < 0 || wait > out.Wait) {
				out.Allowed, out.Reason, out.Wait = false, reason, wait
			}
		}
	}
	if out.Wait = max(out.Wait, 0); out.Allowed {
		for i := range n {
			out.Figures[i].Used += int64(in.Cost)
		}
	}
	return out
}

// firstMoment returns how long a limit refuses.
func firstMoment(l budget.Limit, all []budgetUnits, need, ends, now int64) (time.Duration, core.Reason) {
	if l.Period != nil {
		return budgetPeriod - time.Duration(now-periodOf(now))*ms, core.ReasonQuota
	}
	first := int64(1 << 50)
	for _, u := range all {
		later := int64(0)
		for _, other := range all {
			if other.at > u.at {
				later += int64(other.cost)
			}
		}
		if later+need <= ends {
			first = min(first, int64(u.at))
		}
	}
	return time.Duration(first-now)*ms + l.Window, core.ReasonLimited
}

func (s *budgetState) take(in budgetIn, place, units int, now int64) {
	s.taken[place] = budgetUnits{int32(now), int16(units), int16(in.User)}
	for _, node := range budgetPaths[in.User] {
		s.late[node] = now
	}
}

// restore notes what was used before. A later period that has begun stays in force.
func (s *budgetState) restore(in budgetIn) {
	begins := periodOf(in.At)
	*s.restored(in.Node, begins) = restoredUnits{begins, int64(in.Max)}
	s.begun[in.Node] = max(s.begun[in.Node], begins)
}

// settle corrects what a check took, once.
func (s *budgetState) settle(p *budgetPlan, in budgetIn) {
	switch taken := &s.taken[in.Call]; {
	case s.settled.has(in.Call):
		return
	case in.Spent > in.Cost:
		s.take(in, most+in.Call, in.Spent-in.Cost, s.now(p, in))
	default:
		taken.cost -= int16(min(in.Cost-in.Spent, int(taken.cost)))
	}
	s.settled = s.settled.with(in.Call)
}

// decide is what an operator does.
func (s *budgetState) decide(in budgetIn) {
	switch in.Op {
	case "override":
		s.max[in.Node], s.until[in.Node] = int8(in.Max+1), in.Until
	case "pause":
		s.paused[in.Node], s.resumes[in.Node] = true, in.Until
	case "resume":
		s.paused[in.Node], s.resumes[in.Node] = false, 0
	}
}

func budgetModel(p *budgetPlan) porcupine.Model {
	return deterministic(func(s budgetState, in, out any) (bool, budgetState) {
		op := in.(budgetIn)
		answer, known := out.(budgetOut)
		switch op.Op {
		case "check", "peek":
			if op.Op == "check" && s.undone.has(op.Call) {
				return !known, s
			}
			now := s.now(p, op)
			// A call whose path went ahead of a clock that was set back, between its two sendings, takes nothing.
			if answer.Reason == core.ReasonDayRolled && now > op.At {
				return true, s
			}
			right := s.ask(p, op, now)
			if right.Allowed && op.Op == "check" {
				s.take(op, op.Call, op.Cost, now)
			}
			return !known || answer == right, s
		case "undo":
			if s.taken[op.Call] == (budgetUnits{}) {
				s.undone = s.undone.with(op.Call)
			} else {
				op.Spent = 0
				s.settle(p, op)
			}
		case "settle":
			s.settle(p, op)
		case "restore":
			s.restore(op)
		default:
			s.decide(op)
		}
		return true, s
	})
}

func budgets() []subject {
	subjectOf := func(name string, p *budgetPlan) subject {
		return subject{name: name, model: budgetModel(p), single: true, timed: true, jumps: limitJumps,
			phases: 4, step: budgetStep,
			open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
				var guards []*budget.Guard
				var desks []*control.Desk
				for i, e := range w.engines {
					o := budget.Options{Levels: []string{"org", "team", "user"}, Find: p.find}
					guards = append(guards, budget.New(e, nameOf(subject{name: name}, 0), o))
					desks = append(desks, deskOf(e, guards[i]))
				}
				return func(*history) error { return nil }, func(c *caller, process int) {
					budgetCall(t, c, guards[process], desks[process], p == &withPeriods)
				}
			}}
	}
	return []subject{subjectOf("budget", &windowsOnly), subjectOf("budget of periods", &withPeriods)}
}

// deskOf returns a desk of a budget. It decides, and need not follow.
func deskOf(e *core.Engine, g *budget.Guard) *control.Desk {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	desk := control.New(ended, e, "desk-of-"+g.Name())
	desk.Budget(g)
	return desk
}

// budgetCall makes a check, which it may settle, twice; or it looks; or it decides about a node, as an
// operator. Where a failover may lose checks nothing is settled: the refund of a lost check may give back
// units of others.
func budgetCall(t *testing.T, c *caller, g *budget.Guard, desk *control.Desk, counts bool) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := budgetIn{Op: "check", Call: n, User: c.rng.IntN(budgetUsers), Cost: 1 + c.rng.IntN(2)}
	in.At = c.base.UnixMilli() - periodOf(c.base.UnixMilli()) + day.Milliseconds() + c.at
	switch c.rng.IntN(16) {
	case 0, 1:
		if counts && c.rng.IntN(2) == 0 {
			restoreCall(t, c, g, in)
		} else {
			plan := &windowsOnly
			if counts {
				plan = &withPeriods
			}
			operatorCall(t, c, g.Name(), desk, plan, in)
		}
		return
	case 2, 3:
		in.Op, in.Cost = "peek", 0
	}
	a := attemptOf(c.name, firstUser+in.User)
	a.Cost = int64(in.Cost)
	var d core.Decision
	known := c.do(in, func() (_ any, err error) {
		if in.Op == "peek" {
			d, err = g.Peek(t.Context(), a)
		} else {
			d, err = g.Check(t.Context(), a)
		}
		out := budgetOut{Allowed: d.Allowed, Reason: d.Reason, Wait: d.RetryAfter}
		for i, f := range budget.Figures(d) {
			out.Figures[i] = budgetFigure{f.Max, f.Used}
		}
		return out, err
	})
	switch {
	case in.Op == "peek":
		return
	case !known && counts:
		in.Op = "undo"
		c.later(in)
		return
	case !known || !d.Allowed || c.world.loses || c.rng.IntN(2) == 0:
		return
	}
	in.Op, in.Spent = "settle", c.rng.IntN(5) // up to two units less than the estimate, or three more
	if in.Spent == in.Cost {
		return
	}
	for range 1 + c.rng.IntN(2) {
		c.do(in, func() (any, error) { return nil, g.Spend(t.Context(), d, int64(in.Spent)) })
	}
}

func attemptOf(org string, node int) core.Attempt {
	levels := append([]string{org}, pathsTo[node]...)
	return core.Attempt{Actor: budget.Path(levels...)}
}

// operatorCall gives a node another limit, or the plan's again, or pauses it for a while.
func operatorCall(t *testing.T, c *caller, name string, desk *control.Desk, plan *budgetPlan, in budgetIn) {
	in = budgetIn{Op: "override", Node: c.rng.IntN(budgetNodes), Max: c.rng.IntN(10) - 1, At: in.At}
	x := control.Decision{Kind: control.Budget, Name: name, Of: attemptOf(c.name, in.Node).Actor}
	if after := []time.Duration{0, 3 * time.Minute, 8 * time.Minute}[c.rng.IntN(3)]; after > 0 && in.Max >= 0 {
		in.Until = in.At + after.Milliseconds()
		x.Until = c.base.Add(time.Duration(c.at)*ms + after)
	}
	if c.rng.IntN(3) > 0 {
		if in.Max < 0 {
			c.do(in, func() (any, error) { return nil, desk.Withdraw(t.Context(), x, "sue", "") })
			return
		}
		var limits []string
		for _, l := range plan.of(in.Node) {
			limits = append(limits, budget.Limit{Max: int64(in.Max), Window: l.Window}.String())
		}
		x.Value = strings.Join(limits, ", ")
		c.do(in, func() (any, error) { return nil, desk.Decide(t.Context(), x, "sue", "") })
		return
	}
	in.Op, in.Max, x.Kind, x.Value = "pause", 0, control.Pause, "on"
	c.do(in, func() (any, error) { return nil, desk.Decide(t.Context(), x, "sue", "") })
	if c.rng.IntN(4) > 0 {
		in.Op, in.Until = "resume", 0
		c.do(in, func() (any, error) { return nil, desk.Withdraw(t.Context(), x, "sue", "") })
	}
}

// restoreCall says what a node had used in the period of the clock.
func restoreCall(t *testing.T, c *caller, g *budget.Guard, in budgetIn) {
	in = budgetIn{Op: "restore", Node: c.rng.IntN(budgetNodes), Max: c.rng.IntN(4), At: in.At}
	moment := c.base.Add(time.Duration(c.at) * ms)
	c.do(in, func() (any, error) {
		_, err := g.Restore(t.Context(), attemptOf(c.name, in.Node), moment, int64(in.Max), "sue", "")
		return nil, err
	})
}
