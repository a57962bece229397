package operator

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// list is the list of guards as JSON, and the data of the page.
type list struct {
	Guards  targets        `json:"guards"`
	Rules   []ruleList     `json:"rules,omitempty"`
	Figures []guardSummary `json:"figures,omitempty"`
	at      time.Time
}

// guardSummary is what the figures say of one guard.
type guardSummary struct {
	Guard string `json:"guard"`
	hour
	// Half and Most are within what time Redis answered half and 99 % of the checks.
	Half   string       `json:"half,omitempty"`
	Most   string       `json:"most,omitempty"`
	Actors []actorShown `json:"actors,omitempty"`
	kind   string
}

// actorShown is an actor whom a guard knows.
type actorShown struct {
	Actor    string      `json:"actor"`
	Resource string      `json:"resource,omitempty"`
	Attempts uint64      `json:"attempts"`
	Refused  uint64      `json:"refused"`
	Reason   core.Reason `json:"reason,omitempty"` // why they are refused now
	Until    *time.Time  `json:"until,omitempty"`
	Who      string      `json:"-"` // the actor, for people
	Guard    string      `json:"-"`
	State    string      `json:"-"`
	Banned   bool        `json:"-"`
	Next     []step      `json:"-"`
}

// step is an action that can be asked next, with its fields.
type step struct{ Name, Path string }

// listFor returns the list that this operator may see.
func (h *Handler) listFor(r *keyfuncs.Request) *list {
	l := &list{Guards: h.targets, at: time.Now(), Rules: h.ruleLists()}
	f := h.options.Figures
	if f == nil {
		return l
	}
	l.at = f.present()
	for _, t := range h.targets {
		if _, isGuard := t.guard.(core.Guard); !isGuard {
			continue // tools decide nothing
		}
		s := guardSummary{Guard: t.Name, kind: t.Kind}
		if known, ok := f.guards.Load(t.Name); ok {
			g := known.(*guardFigures)
			s.hour = g.hour(l.at)
			s.Half, s.Most = shortest(s.took, 0.5), shortest(s.took, 0.99)
			if _, err := h.may(r, Action{Guard: t.Name, Name: "actors"}); err == nil {
				for _, a := range g.actors.list(l.at) {
					s.Actors = append(s.Actors, h.actorOf(t, &a, l.at))
				}
			}
		}
		l.Figures = append(l.Figures, s)
	}
	return l
}

// shortest returns a time within which a share of checks was answered, for people.
func shortest(took [len(latencies) + 1]uint64, share float64) string {
	switch d := within(took, share); {
	case d == 0:
		return ""
	case d < 0:
		return "> " + latencies[len(latencies)-1].String()
	default:
		return d.String()
	}
}

func (h *Handler) actorOf(t *target, a *actor, now time.Time) actorShown {
	s := actorShown{Actor: a.actor, Who: levelsOf(t, a.actor), Resource: a.resource,
		Attempts: a.attempts, Refused: a.refused,
		Guard: t.Name, State: "not refused"}
	switch {
	case a.refusedNow(now) > 0:
		until := a.until.UTC().Truncate(time.Second)
		s.Reason, s.Until, s.Banned = a.reason, &until, a.reason == core.ReasonBanned
		s.State = fmt.Sprintf("%s for %s, until %s", reasonText(a.reason), spoken(a.until.Sub(now)),
			clockText(until, now))
	case a.reason != "" && a.until.IsZero() && a.refused == a.attempts:
		s.State = reasonText(a.reason)
	}
	if !a.cut { // else it would ask about somebody else
		s.Next = h.steps(t, map[string]string{"actor": a.actor, "resource": a.resource, "item": a.item})
	}
	return s
}

// levelsOf writes the path of a budget as people read it: acme / web / ann.
func levelsOf(t *target, actor string) string {
	if t.Kind != "budget" {
		return actor
	}
	return strings.ReplaceAll(strings.TrimRight(actor, "|"), "|", " / ")
}

// clockText returns a moment as all pages show it: 24 hours, UTC, with the date where it is not today.
func clockText(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.YearDay() == now.YearDay() && at.Year() == now.Year() {
		return at.Format("15:04:05 UTC")
	}
	return at.Format("2006-01-02 15:04:05 UTC")
}

// steps returns what can be asked about an actor: the actions of the guard that are about one, and a ban by
// the bans of its rule. Fields that it does not take stay out.
func (h *Handler) steps(t *target, known map[string]string) (all []step) {
	if known["actor"] == "" {
		return nil
	}
	add := func(t *target, o *kit.Operation) {
		query, isAbout := url.Values{}, false
		for _, f := range o.Fields {
			text := known[f.Name]
			isAbout = isAbout || f.Name == "actor"
			if len(f.Choices) > 0 && !slices.Contains(f.Choices, text) {
				text = f.Choices[len(f.Choices)-1] // the choice of all others
			}
			if text == "" && f.Required && !o.Changes {
				return // a change asks for missing fields
			}
			if text != "" {
				query.Set(f.Name, text)
			}
		}
		if isAbout {
			all = append(all, step{o.Name, t.Name + "/" + o.Name + "?" + query.Encode()})
		}
	}
	for i := range t.operations {
		add(t, &t.operations[i])
	}
	if t.bans != nil {
		if ban := t.bans.find("ban"); ban != nil {
			add(t.bans, ban)
		}
	}
	return all
}

// firstSteps are those that an operator wants at once: to let a client in again, and to look.
func firstSteps(all []step) (first []step) {
	for i, s := range all {
		if s.Name == letInAgain || i == 0 {
			first = append(first, s)
		}
	}
	return first
}

// restOfSteps are the others.
func restOfSteps(all []step) []step {
	return slices.DeleteFunc(slices.Clone(all), func(s step) bool { return slices.Contains(firstSteps(all), s) })
}

// ruleList is a list of rules, in their order.
type ruleList struct {
	Name  string      `json:"name,omitempty"`
	Rules []ruleShown `json:"rules"`
}

// ruleShown is a rule as shown: its input from a request, and its effect.
type ruleShown struct {
	Guard string `json:"guard"`
	Kind  string `json:"kind"`
	Takes []pair `json:"takes"`
}

func (h *Handler) ruleLists() (all []ruleList) {
	for _, l := range allLists(h.options) {
		shown := ruleList{Name: l.Name}
		for i := range l.Rules {
			shown.Rules = append(shown.Rules, h.ruleOf(&l.Rules[i]))
		}
		all = append(all, shown)
	}
	return all
}

// outages are the policies in words.
var outages = map[core.Outage]string{
	core.FailClosed: "refuses (503)", core.FailOpen: "lets pass", core.FailLocal: "counts in each process",
}

func (h *Handler) ruleOf(rule *pipeline.Rule) ruleShown {
	t := h.targets.named(rule.Guard.Name())
	s := ruleShown{Guard: t.Name, Kind: t.Kind}
	add := func(name, text string) {
		if text != "" {
			s.Takes = append(s.Takes, pair{name, text})
		}
	}
	takes := func(name string, f keyfuncs.Func) {
		if f != nil {
			add(name, keyfuncs.NameOf(f))
		}
	}
	for _, setting := range t.settings {
		add(setting.Name, fmt.Sprint(setting.Value))
	}
	for _, under := range rule.Under {
		takes("under", under)
	}
	takes("who", rule.Who)
	takes("what", rule.What)
	takes("which", rule.Which)
	takes("ID", rule.ID)
	if rule.Cost != nil {
		add("cost", "by a function")
	}
	add("lists", listsOf(rule))
	if rule.Bans != nil {
		add("bans", rule.Bans.Name())
	}
	if rule.Defer != nil {
		add("refused", "runs later")
	}
	if rule.Rollout != nil {
		add("rollout", rolloutText(rule.Rollout.Report()))
	}
	add("without Redis", outages[cmp.Or(rule.OnOutage, rule.Guard.Traits().Outage)])
	return s
}

func listsOf(rule *pipeline.Rule) string {
	var all []string
	if rule.Deny != nil {
		all = append(all, "denies some")
	}
	if rule.Allow != nil {
		all = append(all, "lets some pass")
	}
	return strings.Join(all, ", ")
}

func rolloutText(r pipeline.RolloutReport) string {
	if !r.On {
		return "switched off"
	}
	return fmt.Sprintf("counts %v %%, refuses %v %%", r.Enabled, r.Enforced)
}

// now is the first section of the page.
type now struct {
	Down     []script.OpenBreaker
	NoRedis  bool
	Pending  int
	Hour     *sum
	Breakers []breakerShown
}

type sum struct {
	Allowed, Refused, Unavailable uint64
	Half, Most                    string
}

type breakerShown struct {
	Node   string
	Opened int64
	Took   string
	Last   string
}

// nowOf returns what the operator needs to know at first.
func (h *Handler) nowOf(l *list) now {
	n := now{NoRedis: true}
	for _, e := range h.engines() {
		n.Down = append(n.Down, e.OpenBreakers()...)
		n.NoRedis = n.NoRedis && !e.HasRedis()
		n.Pending += e.Pending()
	}
	for i := range n.Down {
		n.Down[i].For = n.Down[i].For.Round(time.Second)
	}
	if f := h.options.Figures; f != nil {
		n.Hour = sumOf(l.Figures)
		n.Breakers = f.breakersNow()
	}
	return n
}

func sumOf(all []guardSummary) *sum {
	s := new(sum)
	var took [len(latencies) + 1]uint64
	for i := range all {
		g := &all[i]
		s.Allowed += g.Allowed + g.Replayed
		s.Refused += g.Refused
		s.Unavailable += g.Unavailable
		for k, n := range g.took {
			took[k] += n
		}
	}
	s.Half, s.Most = shortest(took, 0.5), shortest(took, 0.99)
	return s
}

func (f *Figures) breakersNow() (all []breakerShown) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for node, b := range f.breakers {
		took := "a time that is not over"
		if b.Took > 0 {
			took = spoken(b.Took)
		}
		all = append(all, breakerShown{node, b.Opened, took, clockText(b.Last, time.Now())})
	}
	slices.SortFunc(all, func(a, b breakerShown) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// engines returns the engines of the guards.
func (h *Handler) engines() (all []*core.Engine) {
	for _, t := range h.targets {
		if g, ok := t.guard.(interface{ Engine() *core.Engine }); ok {
			if e := g.Engine(); e != nil && !slices.Contains(all, e) {
				all = append(all, e)
			}
		}
	}
	return all
}

// limited is the section of the refused and of the busiest actors.
type limited struct{ Refused, Busiest []actorShown }

// limitedMost and busiestMost bound the rows of the tables. busiestEach is for one guard.
const (
	limitedMost = 20
	busiestEach = 5
)

func limitedOf(all []guardSummary) (s limited) {
	for i := range all {
		each := 0
		for _, a := range all[i].Actors {
			switch {
			case a.Until != nil:
				s.Refused = append(s.Refused, a)
			case each < busiestEach:
				s.Busiest = append(s.Busiest, a)
				each++
			}
		}
	}
	slices.SortStableFunc(s.Refused, func(a, b actorShown) int {
		if a.Banned != b.Banned {
			if a.Banned {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Refused, a.Refused)
	})
	s.Refused = s.Refused[:min(len(s.Refused), limitedMost)]
	return s
}

// hourShown is the last hour of one guard on the page.
type hourShown struct {
	*guardSummary
	Kind, Reasons string
	Bars          []bar
	Peak          uint64
	Idle          bool
}

// bar is a rectangle of a chart that is 60 wide and 24 high.
type bar struct {
	Class, X, Y, Height string
}

func hoursOf(all []guardSummary) (shown []hourShown) {
	for i := range all {
		g := &all[i]
		s := hourShown{guardSummary: g, Kind: g.kind,
			Idle: g.Allowed+g.Refused+g.Replayed+g.Unavailable+g.Shadow == 0}
		texts := make([]string, len(g.By))
		for k, by := range g.By {
			texts[k] = reasonText(by.Reason) + " " + grouped(by.Count)
		}
		s.Reasons = strings.Join(texts, ", ")
		for _, m := range g.minutes {
			s.Peak = max(s.Peak, m.allowed+m.refused+m.unavailable)
		}
		for x, m := range g.minutes {
			s.Bars = append(s.Bars, barsOf(x, m, s.Peak)...)
		}
		shown = append(shown, s)
	}
	return shown
}

// barsOf returns the bars of one minute, one upon the other.
func barsOf(x int, m minuteSums, peak uint64) (all []bar) {
	const height = 24.0
	top := height
	for _, part := range []struct {
		class string
		n     uint64
	}{{"allowed", m.allowed}, {"refused", m.refused}, {"away", m.unavailable}} {
		if part.n == 0 {
			continue
		}
		tall := max(height*float64(part.n)/float64(peak), 0.5)
		top -= tall
		all = append(all, bar{
			part.class, fmt.Sprint(x), fmt.Sprintf("%.2f", max(top, 0)), fmt.Sprintf("%.2f", tall),
		})
	}
	return all
}

// sections are the parts of the page of the list.
func (h *Handler) sections(r *keyfuncs.Request, l *list) []section {
	const counted = "Decisions of guards in the last hour, in this process: a request that three guards check " +
		"counts three times."
	all := []section{{ID: "now", Title: "Now", Content: h.nowOf(l), Note: counted}}
	if h.options.Figures == nil {
		all[0].Note = "Without operator.Figures there are no counts, and nobody is known by name."
	} else {
		if !h.options.Figures.NoActors {
			all = append(all, section{ID: "limited", Title: "Who is limited now", Content: limitedOf(l.Figures),
				Note: "As this process sees it. Older attempts count half after each ten minutes."})
		}
		all = append(all, section{ID: "hour", Title: "The last hour", Content: hoursOf(l.Figures),
			Note: "This process only, minute by minute. Each guard counts its own decisions."})
	}
	if len(l.Rules) > 0 {
		all = append(all, section{ID: "rules", Title: "Rules", Content: l.Rules,
			Note: "What each rule takes from a request, in the order in which they are asked."})
	}
	return append(all, section{ID: "guards", Title: "Guards", Content: h.cards(r)})
}
