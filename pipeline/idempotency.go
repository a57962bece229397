package pipeline

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
)

// record starts a recording of the response for a guard that keeps outcomes.
func (p *Passage) record(traits *core.Traits) {
	if p.recording == nil {
		p.recording = &recording{head: p.from.Method == http.MethodHead}
	}
	p.recording.most = max(p.recording.most, traits.MaxBody)
}

// KeepResponse returns what is kept of a response: the fields that [answers.ReplayedHeader] describes, and a
// body of at most maxBody bytes. The outcome is Incomplete, without a body, if the body is longer or shorter
// than the header says. It is for packages that keep responses for later, as guards of idempotency do.
func KeepResponse(status int, header http.Header, body []byte, maxBody int) *core.Outcome {
	rec := &recording{most: maxBody, header: header}
	rec.begin()
	rec.wrote(body, nil)
	return rec.outcome(status, maxBody, true)
}
