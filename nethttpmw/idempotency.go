package nethttpmw

import (
	"net/http"
	"strconv"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// ReplayedHeader is the field that marks a replayed response. Its value is "true".
const ReplayedHeader = "Idempotent-Replayed"

// sameRequest is the default of Rule.Which for guards that keep outcomes: what makes two requests the same.
var sameRequest = keyfuncs.Fingerprint()

// keepsOutcome reports whether the rule's guard answers repetitions with the outcome of the first attempt.
func (r *mounted) keepsOutcome() bool { return r.traits.KeepsOutcome }

// record starts a recording of the response if the rule's guard keeps outcomes.
func (p *Passage) record(r *mounted) {
	traits := &r.traits
	if !traits.KeepsOutcome {
		return
	}
	if p.recording == nil {
		p.recording = &recording{}
	}
	p.recording.most = max(p.recording.most, traits.MaxBody)
}

// replayOf returns the stored answer of a decision, and whether it can be replayed.
func replayOf(d core.Decision) (*core.Outcome, bool) {
	o := core.OutcomeOf(d)
	return o, d.Reason == core.ReasonDone && o != nil && !o.Incomplete && repeatable(o.Status)
}

// replay sends a stored answer with the current figures. Like every refusal, it forbids caching.
func (f *Refusal) replay(w http.ResponseWriter, r *http.Request, o *core.Outcome) {
	header := w.Header()
	f.setHeaders(header)
	for name, value := range o.Header {
		header.Set(name, value)
	}
	header.Set(ReplayedHeader, "true")
	expose(header)
	header.Set("X-Content-Type-Options", "nosniff")
	if o.Status != http.StatusNoContent && o.Status != http.StatusNotModified {
		header.Set("Content-Length", strconv.Itoa(len(o.Body)))
	}
	w.WriteHeader(o.Status)
	if len(o.Body) > 0 && r.Method != http.MethodHead {
		_, _ = w.Write(o.Body) // the client may have disconnected; they can ask again
	}
}
