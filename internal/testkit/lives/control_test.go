package lives

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// The definition of a desk of two processes, which read Redis when they decide and when they look:
//   - of the decisions about one actor the last one stands, until it ends or is withdrawn
//   - what Redis has lost stands again once a process looks that has read it, unless a later one stands
//   - a process that has looked obeys what stands, and Redis says the same
//   - a call that arrives twice decides the same once more; what was put back, is put back once
var _ = explore(life{
	name: "control", of: []string{"control"},
	events: alphabet("decide hour bob withdraw two-decides two-withdraws two-looks",
		"look again restore-again restart end just-before flush save older"),
	world: func(p *place) world { return &deskWorld{place: p} },
	row: row{
		over:      "A decision ends, or is withdrawn.",
		remembers: "For 30 days, that it is over.",
		forgets:   "What Redis has lost and no process that runs has read.",
		back:      "A process puts back what Redis has lost, unless a later decision about the same is there.",
	},
})

type deskWorld struct {
	*place
	seats [2]*seat
	n     int

	redis map[string]ruling // what Redis has, by actor
	last  ruling            // the last one that was sent
	calls []int             // and which calls sent them
	saved *snapshot
	had   map[string]ruling // when it was saved
}

// A seat is a process.
type seat struct {
	desk *control.Desk
	api  *limit.SlidingWindow
	read map[string]ruling
}

// A ruling is a decision about an actor's limit.
type ruling struct {
	x   control.Decision
	n   int   // the greater, the later
	max int64 // 0: it was withdrawn
}

func (w *deskWorld) begin(string) {
	w.n, w.redis, w.last, w.calls, w.saved = 0, map[string]ruling{}, ruling{}, nil, nil
	w.seats = [2]*seat{w.open(), w.open()}
}

func (w *deskWorld) end() error { return nil }

// open begins a process that does not follow: it reads when it is told to.
func (w *deskWorld) open() *seat {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	gate := w.Engine(core.WithLogger(slog.New(slog.DiscardHandler)))
	s := &seat{desk: control.New(ended, gate, "desk"), read: map[string]ruling{},
		api: limit.NewSlidingWindow(gate, "api", limit.PerHour(60))}
	s.desk.Limits(s.api)
	return s
}

func (w *deskWorld) do(event string) (string, error) {
	one, two := w.seats[0], w.seats[1]
	switch event {
	case "decide":
		return w.decide(one, "ann", 0)
	case "hour":
		return w.decide(one, "ann", time.Hour)
	case "bob":
		return w.decide(one, "bob", 0)
	case "withdraw":
		return w.withdraw(one)
	case "two-decides":
		return w.decide(two, "ann", 0)
	case "two-withdraws":
		return w.withdraw(two)
	case "look":
		return w.look(one)
	case "two-looks":
		return w.look(two)
	case "again":
		if len(w.calls) == 0 {
			return "", errImpossible
		}
		w.note(w.last)
		if err := w.Again(w.calls[len(w.calls)-1]); err != nil {
			return "", broken("A call that arrives twice is no error", "%v", err)
		}
	case "restore-again": // the first one
		restores := func(c sent) bool { return slices.Contains(c.args, any(control.RestoredBy)) }
		call := slices.IndexFunc(w.sent, restores)
		if call < 0 {
			return "", errImpossible
		}
		if err := w.Again(call); err != nil {
			return "", broken("A call that arrives twice is no error", "%v", err)
		}
	case "restart":
		w.seats[0] = w.open()
		return w.look(w.seats[0])
	case "end", "just-before":
		until := w.last.x.Until
		if event == "just-before" {
			until = until.Add(-time.Millisecond)
		}
		if !until.After(w.Now()) {
			return "", errImpossible
		}
		w.PassUntil(until)
	case "flush":
		w.Flush()
		w.redis = map[string]ruling{}
	case "save":
		saved := w.Save()
		w.saved, w.had = &saved, maps.Clone(w.redis)
	case "older":
		if w.saved == nil {
			return "", errImpossible
		}
		w.Load(*w.saved)
		w.redis = maps.Clone(w.had)
	}
	return "", nil
}

// note has Redis have a decision, as the last one.
func (w *deskWorld) note(r ruling) {
	w.Clock.Advance(10 * time.Millisecond) // operators are no faster
	w.n++
	r.n = w.n
	w.redis[r.x.Of], w.last = r, r
}

func (w *deskWorld) decide(s *seat, actor string, after time.Duration) (string, error) {
	most := int64(100 + w.n)
	x := control.Decision{Kind: control.Limits, Name: "api", Of: actor, Value: fmt.Sprintf("%d/h", most)}
	if after > 0 {
		x.Until = w.Now().Add(after)
	}
	w.note(ruling{x: x, max: most})
	w.calls = append(w.calls, w.Sent())
	if err := s.desk.Decide(context.Background(), x, "sue", ""); err != nil {
		return "", broken("Deciding is no error", "%v", err)
	}
	return w.check(s)
}

func (w *deskWorld) withdraw(s *seat) (string, error) {
	x := control.Decision{Kind: control.Limits, Name: "api", Of: "ann"}
	w.note(ruling{x: x})
	w.calls = append(w.calls, w.Sent())
	if err := s.desk.Withdraw(context.Background(), x, "sue", ""); err != nil {
		return "", broken("Withdrawing is no error", "%v", err)
	}
	return w.check(s)
}

// look has a process read. It does so to know the time, before it finds that the value is no limit.
func (w *deskWorld) look(s *seat) (string, error) {
	for _, o := range s.desk.Describe().Operations {
		if o.Name == "decide" {
			in, err := o.Read(map[string]string{"kind": control.Limits, "name": "api", "of": "cid",
				"value": "no limit", "for": "1h", "who": "sue"})
			if err != nil {
				return "", err
			}
			if _, err := o.Run(context.Background(), in); !guardtest.IsInvalid(err) {
				return "", broken("A value that is no limit is invalid", "%v", err)
			}
		}
	}
	return w.check(s)
}

// check compares what Redis says and what a process obeys that has read it, with the definition.
func (w *deskWorld) check(s *seat) (string, error) {
	for actor, r := range s.read {
		if w.redis[actor].n < r.n {
			w.redis[actor] = r
		}
	}
	s.read = maps.Clone(w.redis)
	want := []control.Decision{}
	told := ""
	for _, actor := range []string{"ann", "bob"} {
		most := int64(60)
		if r := w.redis[actor]; r.max > 0 && (r.x.Until.IsZero() || r.x.Until.After(w.Now())) {
			want, most = append(want, r.x), r.max
		}
		d, err := s.api.Peek(context.Background(), core.Attempt{Actor: actor})
		if err != nil || d.Limit != most {
			return told, broken("A process that has looked obeys what stands", "%s has %d, want %d: %v", actor,
				d.Limit, most, err)
		}
		told += fmt.Sprint(actor, " ", most, " ")
	}
	all, err := s.desk.Decided(context.Background(), control.Decision{})
	same := func(a, b control.Decision) bool {
		until := a.Until.Equal(b.Until)
		a.Until = b.Until
		return until && a == b
	}
	if err != nil || !slices.EqualFunc(all, want, same) {
		return told, broken("Redis says what stands", "%+v, want %+v: %v", all, want, err)
	}
	return told, nil
}
