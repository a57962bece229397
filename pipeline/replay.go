package pipeline

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// underWayRetry is the Retry-After of a replay whose first attempt has not ended, the same as that of
// operations that are in progress.
const underWayRetry = time.Second

// claims reports whether the pipeline may answer replays of the rule's guard: the guard keeps no outcomes,
// and the rule does not run the handler for replays.
func (r *mounted) claims() bool { return !r.traits.KeepsOutcome && !r.RunReplays }

// underWay reports whether the decision repeats an attempt that still has to be confirmed: the first request
// runs, its process has died, or its handler has taken the decision. The handler would do the work again.
func (r *mounted) underWay(d *core.Decision) bool {
	return d.Replayed && !d.Kept && r.traits.Confirms && r.claims() && !d.Attempt.Shadow
}

// doneBefore reports whether the decision repeats an attempt that is done.
func (r *mounted) doneBefore(d *core.Decision) bool {
	return d.Replayed && d.Kept && r.claims() && !d.Attempt.Shadow
}

// allDone reports whether the request claims nothing that is new or has to be confirmed. It is false if the
// operation ended between two claims, such as when its process died: then the handler has to run.
func (p *Passage) allDone() bool {
	return !slices.ContainsFunc(p.entries, func(e *entry) bool {
		if e.rule.keepsOutcome() || e.rule.traits.KeepsOnFailure {
			return false // no claim
		}
		return !e.decision.Kept && (!e.decision.Replayed || e.rule.traits.Confirms)
	})
}

// replay makes the answer to an operation that is done.
func (r *mounted) replay(d core.Decision) *Refusal {
	f := r.refuse(core.ReasonReplayed, d)
	f.replayed = true
	if f.Status/100 != 2 {
		f.Status = http.StatusOK // the guard has described the texts only
	}
	return f
}

// fact is the body that says that an operation is done, and which: what the client has asked for. The guard's
// details follow it, as in a problem.
type fact struct {
	Title    string      `json:"title"`
	Status   int         `json:"status"`
	Detail   string      `json:"detail"`
	Reason   core.Reason `json:"reason"`
	Resource string      `json:"resource,omitempty"`
	Item     string      `json:"item,omitempty"`
	Cost     int64       `json:"cost,omitempty"`
}

func (f *Refusal) fact(text Text) []byte {
	a := f.Decision.Attempt
	body, err := json.Marshal(fact{text.Title, f.Status, text.Detail, f.Reason, a.Resource, a.Item, a.Cost})
	if err != nil {
		body = []byte(`{}`) // strings and numbers cannot fail to marshal
	}
	return append(appendDetails(body, kit.DetailsOf(f.Decision)), '\n') // the newline is for terminals
}
