package nethttpmw

import (
	"net/http"
	"strconv"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// ReplayedHeader is the field that an answer has which has been given before: "true".
const ReplayedHeader = "Idempotent-Replayed"

// sameRequest says what makes a repetition the same attempt, for rules that keep outcomes and do not say.
var sameRequest = keyfuncs.Fingerprint()

// keepsOutcome reports whether the rule's guard answers repetitions with how the first attempt ended.
func (r *mounted) keepsOutcome() bool { return r.traits.KeepsOutcome }

// record notes that the rule, which has let the request through, wants to know the answer.
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

// retold returns the answer that a decision has kept, if there is one that can be sent again.
func retold(d core.Decision) (*core.Outcome, bool) {
	o := core.OutcomeOf(d)
	return o, d.Reason == core.ReasonDone && o != nil && !o.Incomplete && repeatable(o.Status)
}

// retell sends an answer that was given before, with the figures of now. No cache may keep it, as it may not keep the first answer to a
// POST.
func (f *Refusal) retell(w http.ResponseWriter, r *http.Request, o *core.Outcome) {
	header := w.Header()
	f.setHeaders(header)
	for name, value := range o.Header {
		header.Set(name, value)
	}
	header.Set(ReplayedHeader, "true")
	header.Set("X-Content-Type-Options", "nosniff")
	if o.Status != http.StatusNoContent && o.Status != http.StatusNotModified {
		header.Set("Content-Length", strconv.Itoa(len(o.Body)))
	}
	w.WriteHeader(o.Status)
	if len(o.Body) > 0 && r.Method != http.MethodHead {
		_, _ = w.Write(o.Body) // the client may have gone; he can ask again
	}
}
