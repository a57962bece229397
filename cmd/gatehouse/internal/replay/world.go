package replay

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// world has rules on an engine without Redis, whose clock shows the times of the log. It passes requests
// through the pipeline of the library.
type world struct {
	now     time.Time
	mounts  []worldMount
	counts  map[ruleName]*ruleCounts
	list    string      // whose rules are asked
	refused core.Reason // of the last request; empty: it passed
}

type ruleName struct{ list, guard string }

// worldMount is a list of rules where the program has it.
type worldMount struct {
	mount
	pipeline *pipeline.Pipeline
	// router finds the parameters of the route; nil: all requests pass the rules.
	router *http.ServeMux
	routed *http.Request // what the router has found last
}

// newWorld makes a world of mounts. A sweep changes the limits of a guard.
func (p *plan) newWorld(mounts []mount, s *sweep) (*world, error) {
	w := &world{counts: map[ruleName]*ruleCounts{}}
	cfg, err := p.rules(s)
	if err != nil {
		return nil, err
	}
	set, err := cfg.Build(core.NewMemory(
		core.WithClock(func() time.Time { return w.now }), core.WithMemoryKeys(maxActors),
		core.WithObserver(w), core.WithDeadline(time.Minute), core.WithLogger(slog.New(slog.DiscardHandler))))
	if err != nil {
		return nil, err
	}
	for _, list := range p.lists {
		for _, rule := range list.rules {
			w.counts[ruleName{list.name, rule.guard}] = newRuleCounts(s == nil)
		}
	}
	w.mounts = make([]worldMount, len(mounts))
	for i, m := range mounts {
		w.mounts[i] = worldMount{mount: m, pipeline: set.Pipeline(m.list)}
		if m.pattern == "" {
			continue
		}
		mount := &w.mounts[i]
		mount.router = new(http.ServeMux)
		catch := func(_ http.ResponseWriter, r *http.Request) { mount.routed = r }
		if err := cli.Caught(func() { mount.router.HandleFunc(m.pattern, catch) }); err != nil {
			return nil, cli.Usagef("-mount: %w", err)
		}
	}
	return w, nil
}

// Observe implements core.Observer: it counts what each rule decides.
func (w *world) Observe(_ context.Context, e core.Event) {
	if e.Op != "check" && e.Op != "refuse" || e.Err != nil {
		return
	}
	if c := w.counts[ruleName{w.list, e.Guard}]; c != nil {
		c.decided(&e.Decision)
	}
}

// serve passes a request through the rules at its time.
func (w *world) serve(r *http.Request, at time.Time, status int) {
	w.now, w.refused = at, ""
	w.pass(r, status, 0)
}

// pass passes a request through the mounts from one on, and returns the status of the answer.
func (w *world) pass(r *http.Request, status, from int) int {
	for i := from; i < len(w.mounts); i++ {
		m := &w.mounts[i]
		inner := r
		if m.router != nil {
			if inner = m.route(r); inner == nil {
				continue
			}
		}
		w.list = m.list
		passage, refusal := m.pipeline.Enter(&keyfuncs.Request{Request: inner})
		if refusal != nil {
			w.refused = refusal.Reason
			return refusal.Status
		}
		answered := w.pass(inner.WithContext(passage.Context()), status, i+1)
		if passage.Watches() {
			passage.Watch(&noAnswer{header: http.Header{}}).WriteHeader(answered)
		}
		passage.Leave(answered)
		return answered
	}
	return status
}

// route returns the request with what the router knows, or nil if it is of another route.
func (m *worldMount) route(r *http.Request) *http.Request {
	m.routed = nil
	m.router.ServeHTTP(&noAnswer{header: http.Header{}}, r)
	return m.routed
}

// noAnswer is a response that nobody reads.
type noAnswer struct{ header http.Header }

func (w *noAnswer) Header() http.Header         { return w.header }
func (w *noAnswer) Write(p []byte) (int, error) { return len(p), nil }
func (w *noAnswer) WriteHeader(int)             {}

// results returns what the rules have decided about the requests of a report.
func (w *world) results(p *plan, requests *report) (all []ruleReport) {
	for _, list := range p.lists {
		if !slices.ContainsFunc(w.mounts, func(m worldMount) bool { return m.list == list.name }) {
			continue
		}
		for _, rule := range list.rules {
			c, notes := w.counts[ruleName{list.name, rule.guard}], slices.Clone(rule.notes)
			if c.lost > 0 {
				notes = append(notes, fmt.Sprintf("%d requests of further actors are not named", c.lost))
			}
			if n := requests.Options; rule.preflights && n > 0 {
				notes = append(notes, cli.Count(n, "OPTIONS request")+" counted: which were CORS preflights, which "+
					"pass uncounted, is not in the log")
			}
			if n := requests.RefusedThen; rule.settles && n > 0 {
				notes = append(notes, cli.Count(n, "request")+" answered 429 then: what the handler would have "+
					"answered is unknown, and the status counts")
			}
			all = append(all, ruleReport{List: list.name, Guard: rule.guard, Kind: rule.kind, Limits: rule.limits,
				Requests: c.asked, Refused: c.refused, WouldRefuse: c.wouldRefuse, Reasons: c.reasons,
				Actors: len(c.actors), ActorsRefused: c.refusedActors(), Top: c.top(p.flags.top), Notes: notes})
		}
	}
	return all
}
