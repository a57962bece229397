package lives

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
)

// The definition of an operation with a lease of a minute, kept for an hour:
//   - it is free, runs until its lease ends, or is done for an hour
//   - an attempt begins it exactly if it is free; another item under the ID is a conflict while it is not
//   - an outcome counts unless another attempt has begun the operation since; then the error says so
//   - giving back frees it exactly if it runs for that attempt
//   - what arrives a second time changes nothing
var _ = explore(life{
	name: "idempotency", of: []string{"idempotency"},
	events: alphabet("begin begin-other finish roll-back finish-earlier roll-back-earlier begin-again "+
		"roll-back-again finish-again",
		"reset just-before after flush"),
	same: func(a, b string) bool {
		return a == "flush" && b == "reset" || a == "reset" && b == "flush" || a == b && a != "begin"
	},
	world: func(p *place) world {
		return &idempotencyWorld{place: p, guard: idempotency.New(p.Engine(), "orders",
			idempotency.Options{Lease: time.Minute, Keep: time.Hour})}
	},
	row: row{
		over:      "`Rollback`, `Reset`; the end of the lease, or of `Keep`.",
		remembers: "Nothing.",
		forgets:   "The fingerprint and the outcome.",
		back:      "The ID begins the operation anew. An outcome of an earlier attempt gets `core.ErrGone` once another has begun.",
	},
})

type idempotencyWorld struct {
	*place
	guard *idempotency.Guard

	name     string
	by       *operation // runs or is done; nil: free
	done     bool
	until    time.Time
	begun    []*operation
	rollback int // the last call of one, -1: none
	commit   int
	kept     *operation // whose call that was
}

// An operation is an attempt that began it.
type operation struct {
	d       core.Decision
	item    string
	call    int
	settled bool
}

func (w *idempotencyWorld) begin(name string) {
	w.name, w.by, w.done, w.begun, w.rollback, w.commit = name, nil, false, nil, -1, -1
}
func (w *idempotencyWorld) end() error { return nil }

// outcome is what an attempt's handler answered.
func outcome(o *operation) *core.Outcome { return &core.Outcome{Status: 200 + o.call} }

// open returns the attempts that are not settled.
func (w *idempotencyWorld) open() (open []*operation) {
	for _, o := range w.begun {
		if !o.settled {
			open = append(open, o)
		}
	}
	return open
}

func (w *idempotencyWorld) do(event string) (string, error) {
	ctx := context.Background()
	if w.by != nil && !w.Now().Before(w.until) {
		w.by = nil
	}
	open := w.open()
	switch event {
	case "begin":
		return w.attempt("a")
	case "begin-other":
		return w.attempt("b")
	case "finish", "roll-back":
		if len(open) == 0 {
			return "", errImpossible
		}
		return w.settle(open[len(open)-1], event == "finish")
	case "finish-earlier", "roll-back-earlier":
		if len(open) < 2 {
			return "", errImpossible
		}
		return w.settle(open[0], event == "finish-earlier")
	case "begin-again": // the reply of the last one was lost
		if len(open) == 0 || w.by != open[len(open)-1] {
			return "", errImpossible
		}
		return "", w.again(open[len(open)-1].call)
	case "roll-back-again":
		return "", w.again(w.rollback)
	case "finish-again": // an outcome counts unless another attempt has begun since
		if err := w.again(w.commit); err != nil || w.by != nil {
			return "", err
		}
		w.by, w.done, w.until = w.kept, true, w.Now().Add(time.Hour)
	case "reset":
		w.by = nil
		return "", w.guard.Reset(ctx, core.Attempt{Actor: "ann", ID: w.name})
	case "flush":
		w.by = nil
		w.Flush()
	case "just-before", "after":
		if w.by == nil {
			return "", errImpossible
		}
		at := w.until.Add(-10 * time.Second) // keys expire by the clock of the machine
		if event == "after" {
			at = w.until
		}
		w.PassUntil(at)
	}
	return "", nil
}

func (w *idempotencyWorld) again(call int) error {
	if call < 0 {
		return errImpossible
	}
	if err := w.Again(call); err != nil {
		return broken("A call that arrives twice is no error", "%v", err)
	}
	return nil
}

func (w *idempotencyWorld) attempt(item string) (string, error) {
	call := w.Sent()
	d, err := w.guard.Check(context.Background(), core.Attempt{Actor: "ann", ID: w.name, Item: item})
	if err != nil {
		return "", broken("A check is no error", "%v", err)
	}
	want := core.ReasonOK
	switch {
	case w.by == nil:
	case w.by.item != item:
		want = core.ReasonConflict
	case w.done:
		want = core.ReasonDone
	default:
		want = core.ReasonInProgress
	}
	if d.Reason != want {
		return "", broken("An operation begins exactly if it is free", "%s, want %s", d.Reason, want)
	}
	if d.Allowed {
		w.by, w.done, w.until = &operation{d: d, item: item, call: call}, false, w.Now().Add(time.Minute)
		w.begun = append(w.begun, w.by)
	}
	if want == core.ReasonDone {
		if o := core.OutcomeOf(d); o == nil || o.Status != outcome(w.by).Status {
			return "", broken("The outcome is that of the attempt that was done", "%+v, want %+v", o, outcome(w.by))
		}
	}
	return string(d.Reason), nil
}

func (w *idempotencyWorld) settle(o *operation, commit bool) (string, error) {
	o.settled = true
	ending := core.Rollback
	if commit {
		ending, w.commit, w.kept = core.CommitWith(outcome(o)), w.Sent(), o
	} else {
		w.rollback = w.Sent()
	}
	err := w.guard.Settle(context.Background(), o.d, ending)
	switch {
	case !commit && err != nil:
		return "", broken("Giving back is no error", "%v", err)
	case !commit && w.by == o && !w.done:
		w.by = nil
	case commit && w.by != nil && w.by != o:
		if !errors.Is(err, core.ErrGone) {
			return "", broken("An outcome gets ErrGone exactly if another attempt has begun since", "%v", err)
		}
		return "gone", nil
	case commit:
		if err != nil {
			return "", broken("An outcome gets ErrGone exactly if another attempt has begun since", "%v", err)
		}
		w.by, w.done, w.until = o, true, w.Now().Add(time.Hour)
	}
	return "", nil
}
