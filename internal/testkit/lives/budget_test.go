package lives

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// The definition of a budget of a level, or two, with a period each:
//   - a period in force lasts until it ends, whatever the plan says; the next one is the plan's
//   - what was used in it stays used until it is given back, which counts once
//   - an attempt is allowed exactly if it fits at each level
//   - for each Max and period, 80 and 100 percent are told once, the greater if both are reached
//   - each ended period with use is exported as final: by the next use, or by Ended
var _ = explore(budgetLife("budget", false))

var _ = explore(budgetLife("budget-of-two-levels", true))

func budgetLife(name string, two bool) life {
	kind := func(e string) string { return strings.TrimRight(e, "0123456789") }
	quiet := map[string]bool{"anchor": true, "max": true, "override": true, "withdraw": true}
	l := life{
		name: name,
		events: alphabet("use useMax refund refund-again export ended",
			"anchor5 anchor15 max5 max20 override withdraw before at after flush"),
		same: func(a, b string) bool {
			ka, kb := kind(a), kind(b)
			switch {
			case ka == kb && (quiet[ka] || ka == "export" || ka == "ended"), a == "override" && b == "withdraw",
				a == "withdraw" && b == "override", a == "flush" && b == "flush":
				return true
			}
			return quiet[ka] && quiet[kb] && a > b // they commute
		},
		world: func(p *place) world { return newBudgetWorld(p, two) },
		found: []string{"useMax refund flush use refund-again use"},
	}
	if two {
		l.found = append(l.found, "use anchor15 max20 useMax at refund ended")
	}
	if !two {
		l.of = []string{"budget"}
		l.row = row{
			over:      "A period ends.",
			remembers: "Overrides and pauses. The ended period, for `Keep`: a refund still changes it.",
			forgets:   "What was used, and which alerts were told. A changed anchor applies from then on.",
			back:      "The claim of an attempt gives back to the period that was in force then.",
		}
	}
	return l
}

// A span is a period.
type span struct{ begins, ends time.Time }

// A budgetNode is what the definition knows of a node.
type budgetNode struct {
	in    span
	used  map[span]int64
	told  map[string]int // period and Max -> percent
	final map[span]bool
}

func newBudgetNode() *budgetNode {
	return &budgetNode{used: map[span]int64{}, told: map[string]int{}, final: map[span]bool{}}
}

// An admission is an attempt that was allowed.
type admission struct {
	d    core.Decision
	cost int64
	in   []span
	of   []*budgetNode // those that knew it: after a flush they are others
	call int
}

type budgetWorld struct {
	*place
	guard *budget.Guard
	desk  *control.Desk
	two   bool

	alerts chan budget.Alert // come in the background
	told   map[string][]int

	name     string
	day      int
	most     int64
	override bool
	after    int64
	nodes    []*budgetNode
	admitted []*admission
	settled  []*admission
}

func newBudgetWorld(p *place, two bool) *budgetWorld {
	w := &budgetWorld{place: p, two: two, alerts: make(chan budget.Alert, 64), told: map[string][]int{}}
	w.guard = budget.New(p.Engine(), "b", budget.Options{Levels: []string{"org", "user"},
		Find: func(path []string) ([]budget.Limit, error) {
			if len(path) > 1 {
				return []budget.Limit{{Max: 12, Period: period.MonthlyOn(1, time.UTC)}}, nil
			}
			return []budget.Limit{{Max: w.most, Period: period.MonthlyOn(w.day, time.UTC)}}, nil
		},
		Alert: func(_ context.Context, a budget.Alert) { w.alerts <- a }})
	ended, cancel := context.WithCancel(context.Background())
	cancel() // it decides, and need not follow
	w.desk = control.New(ended, w.guard.Engine(), "desk")
	w.desk.Budget(w.guard)
	return w
}

func (w *budgetWorld) begin(name string) {
	w.name, w.day, w.most, w.override, w.after = name, 10, 10, false, 0
	w.admitted, w.settled = nil, nil
	w.forget()
	clear(w.told)
}

func (w *budgetWorld) forget() {
	w.nodes = []*budgetNode{newBudgetNode()}
	if w.two {
		w.nodes = append(w.nodes, newBudgetNode())
	}
}

func (w *budgetWorld) path(level int) string {
	if level == 0 {
		return budget.Path(w.name)
	}
	return budget.Path(w.name, "ann")
}

func (w *budgetWorld) attempt(cost int64) core.Attempt {
	user := ""
	if w.two {
		user = "ann"
	}
	return core.Attempt{Actor: budget.Path(w.name, user), Cost: cost}
}

// plan is what the application and the operator say of a level now.
func (w *budgetWorld) plan(level int) (most int64, in span) {
	most, day := w.most, w.day
	if w.override {
		most = 30
	}
	if level == 1 {
		most, day = 12, 1
	}
	s, _ := period.MonthlyOn(day, time.UTC).At(w.Now().UnixMilli())
	return most, span{time.UnixMilli(s.Begins), time.UnixMilli(s.Ends)}
}

// inForce is the period that counts now.
func (w *budgetWorld) inForce(level int) span {
	if n := w.nodes[level]; w.Now().Before(n.in.ends) {
		return n.in
	}
	_, in := w.plan(level)
	return in
}

func (w *budgetWorld) use(cost int64) (string, error) {
	fits := true
	for i, n := range w.nodes {
		most, _ := w.plan(i)
		fits = fits && n.used[w.inForce(i)]+cost <= most
	}
	d, err := w.guard.Check(context.Background(), w.attempt(cost))
	if err != nil {
		return "", broken("A check is no error", "%v", err)
	}
	told := string(d.Reason)
	for _, f := range budget.Figures(d) {
		told += fmt.Sprintf(" %s %d/%d", f.Level, f.Used, f.Max)
	}
	if d.Allowed != fits {
		return told, broken("An attempt is allowed exactly if it fits", "cost %d: %t", cost, d.Allowed)
	}
	a := &admission{d: d, cost: cost, call: -1}
	for i, n := range w.nodes {
		in := w.inForce(i)
		used := n.used[in]
		if a.in, a.of = append(a.in, in), append(a.of, n); fits {
			n.in = in
			n.used[in] += cost
			used += cost
		}
		if f := budget.Figures(d)[i]; f.Used != used {
			return told, broken("What was used stays used", "level %d: %d, want %d", i, f.Used, used)
		}
	}
	if !fits {
		return told, nil
	}
	w.admitted = append(w.admitted, a)
	return told, w.hear()
}

// hear compares the alerts of an attempt that was allowed.
func (w *budgetWorld) hear() error {
	for i, n := range w.nodes {
		most, _ := w.plan(i)
		percent := 0
		if used := n.used[n.in]; used >= most {
			percent = 100
		} else if used*5 >= most*4 {
			percent = 80
		}
		key := fmt.Sprint(n.in, most)
		want := percent > n.told[key]
		if want {
			n.told[key] = percent
		}
		if got := w.heard(i, want); want && (len(got) != 1 || got[0] != percent) || !want && len(got) > 0 {
			return broken("For each Max and period an alert is told once", "level %d, %d of Max %d: %v, want %d: %t",
				i, n.used[n.in], most, got, percent, want)
		}
	}
	return nil
}

// heard takes the alerts of a level; it waits for one that has to come.
func (w *budgetWorld) heard(level int, wait bool) []int {
	path, late := w.path(level), time.After(5*time.Second)
	for {
		select {
		case a := <-w.alerts:
			w.told[budget.Path(a.Path...)] = append(w.told[budget.Path(a.Path...)], a.Percent)
			continue
		default:
		}
		if got := w.told[path]; len(got) > 0 || !wait {
			delete(w.told, path)
			return got
		}
		select {
		case a := <-w.alerts:
			w.told[budget.Path(a.Path...)] = append(w.told[budget.Path(a.Path...)], a.Percent)
		case <-late:
			return nil
		}
	}
}

func (w *budgetWorld) do(event string) (string, error) {
	ctx, org := context.Background(), core.Attempt{Actor: budget.Path(w.name, "")}
	switch event {
	case "use":
		return w.use(1)
	case "useMax":
		return w.use(10)
	case "refund":
		if len(w.admitted) == 0 {
			return "", errImpossible
		}
		a := w.admitted[len(w.admitted)-1]
		w.admitted = w.admitted[:len(w.admitted)-1]
		w.Clock.Advance(100 * time.Microsecond) // so that Again knows the time of the refund from that of the check
		a.call = w.Sent()
		if err := w.guard.Refund(ctx, a.d); err != nil {
			return "", broken("A refund is no error", "%v", err)
		}
		for i, n := range a.of {
			n.used[a.in[i]] -= a.cost
		}
		w.settled = append(w.settled, a)
	case "refund-again": // within the time in which a client may send it again
		if len(w.settled) == 0 || w.passed(w.settled[max(len(w.settled)-2, 0)]) {
			return "", errImpossible
		}
		if err := w.Again(w.settled[max(len(w.settled)-2, 0)].call); err != nil {
			return "", broken("A call that arrives twice is no error", "%v", err)
		}
	case "before", "at", "after":
		behind := map[string]time.Duration{"before": -time.Millisecond, "after": 24 * time.Hour}
		at := w.inForce(0).ends.Add(behind[event])
		if !at.After(w.Now()) {
			return "", errImpossible
		}
		w.PassUntil(at)
		return at.UTC().Format("Jan 2 15:04:05.000"), nil
	case "override", "withdraw":
		x := control.Decision{Kind: control.Budget, Name: "b", Of: org.Actor, Value: "30/period"}
		decide := w.desk.Withdraw
		if w.override = event == "override"; w.override {
			decide = w.desk.Decide
		}
		if err := decide(ctx, x, "ops", ""); err != nil {
			return "", broken("An override is no error", "%v", err)
		}
	case "export":
		return w.export()
	case "ended":
		n, err := w.guard.Ended(ctx, org)
		want := 0
		for _, node := range w.nodes {
			if node.used[node.in] > 0 && !w.Now().Before(node.in.ends) && !node.final[node.in] {
				want++
			}
		}
		if err != nil || int(n) < want {
			return "", broken("Ended finds the periods that are over", "%d, want %d: %v", n, want, err)
		}
		for _, node := range w.nodes {
			if !w.Now().Before(node.in.ends) {
				node.in = span{}
			}
		}
	case "flush": // who comes back with what was given before gives nothing back
		w.Flush()
		w.Clock.Advance(time.Millisecond) // so that what comes is of another moment
		w.forget()
		w.override = false
	default:
		if number, is := strings.CutPrefix(event, "anchor"); is {
			_, _ = fmt.Sscan(number, &w.day)
		} else if number, is = strings.CutPrefix(event, "max"); is {
			_, _ = fmt.Sscan(number, &w.most)
		}
	}
	return "", nil
}

// passed reports whether a refund was so long ago that no client sends it again.
func (w *budgetWorld) passed(a *admission) bool {
	return w.Now().Sub(w.sent[a.call].at) > time.Minute
}

// export compares the rows that have changed since the last export.
func (w *budgetWorld) export() (told string, err error) {
	org := core.Attempt{Actor: budget.Path(w.name, "")}
	for {
		rows, next, err := w.guard.Export(context.Background(), org, w.after)
		if err != nil {
			return told, broken("An export is no error", "%v", err)
		}
		if next == w.after {
			break
		}
		w.after = next
		for _, r := range rows {
			level := 0
			if len(r.Path) > 1 && r.Path[1] != "" {
				level = 1
			}
			n, in := w.nodes[level], span{r.Begins, r.Ends}
			told += fmt.Sprintf("[%s %d %t]", strings.Join(r.Path, "/"), r.Used, r.Final)
			if r.Used != n.used[in] {
				return told, broken("A row is what was used", "%d, want %d", r.Used, n.used[in])
			}
			if r.Final == w.Now().Before(in.ends) {
				return told, broken("A row is final once its period has ended", "%v: %t", in, r.Final)
			}
			n.final[in] = n.final[in] || r.Final
		}
	}
	for i, n := range w.nodes {
		for in, used := range n.used {
			if used > 0 && in != n.in && !w.Now().Before(in.ends) && !n.final[in] {
				return told, broken("A period is exported as final when the next one runs, or after Ended", "level %d: %v",
					i, in)
			}
		}
	}
	return told, nil
}

func (w *budgetWorld) end() error {
	for i := range w.nodes {
		if got := w.heard(i, false); len(got) > 0 {
			return broken("For each Max and period an alert is told once", "level %d: %v", i, got)
		}
	}
	return nil
}
