package deferred

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"path"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// StateHeader is the field by which the page says how far a request is. Its values are the states of [State].
// An answer of the page about something else, such as 404, does not have it, so it tells the page's answer
// from the stored one.
const StateHeader = "Deferred-State"

// State says how far a request is.
type State string

// The states.
const (
	// StatePending: it waits. Status 202, with Retry-After.
	StatePending State = "pending"
	// StateRunning: a worker runs it. Status 202, with Retry-After.
	StateRunning State = "running"
	// StateDone: it has run. The response is the stored answer, with its status. An answer that was too long to
	// be kept has status 200, and the Location of the answer.
	StateDone State = "done"
	// StateFailed: it will not run any more, because its tries have failed, or because something has answered
	// it before it got to its rule. Status 500.
	StateFailed State = "failed"
)

// runningRetry is the Retry-After of a request that runs.
const runningRetry = time.Second

// report is the body of a response about a request.
type report struct {
	State State `json:"state"`
	// At is when a pending request runs at the earliest.
	At *time.Time `json:"at,omitempty"`
	// Status is that of a stored answer whose body is not kept.
	Status int `json:"status,omitempty"`
}

// problem is the body of an error (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	State  State  `json:"state,omitempty"`
}

// ServeHTTP is the page of the answers, for net/http and routers like it: mount it as mux.Handle("GET
// /deferred/{id}", requests). The last element of the path is the ID. See [State] for its answers. Anybody
// but the principal of the request gets 404, as for an unknown request. Redis forgets a request when its
// queue does: see delay.Options.Keep.
func (d *Requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.ServePage(w, &keyfuncs.Request{Request: r})
}

// ServePage is ServeHTTP for adapters to frameworks: see ginmw.Page.
func (d *Requests) ServePage(w http.ResponseWriter, r *keyfuncs.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		refuse(w, r, http.StatusMethodNotAllowed)
		return
	}
	principal, err := d.o.Who(r)
	if err != nil || principal == "" {
		refuse(w, r, http.StatusNotFound)
		return
	}
	op := operation{principal: principal, id: path.Base(r.URL.Path)}
	status, err := d.queue.Find(r.Context(), op.task())
	switch {
	case errors.Is(err, core.ErrNotFound):
		refuse(w, r, http.StatusNotFound)
	case err != nil:
		header.Set("Retry-After", "1")
		refuse(w, r, http.StatusServiceUnavailable)
	default:
		d.tell(w, r, op.task(), status)
	}
}

// tell answers how far a request is.
func (d *Requests) tell(w http.ResponseWriter, r *keyfuncs.Request, task string, status delay.Status) {
	header := w.Header()
	switch status.State {
	case delay.Pending:
		header.Set("Retry-After", seconds(status.At.Sub(d.now())))
		header.Set(StateHeader, string(StatePending))
		at := status.At.UTC()
		write(w, r, http.StatusAccepted, report{State: StatePending, At: &at})
	case delay.Running:
		header.Set("Retry-After", seconds(runningRetry))
		header.Set(StateHeader, string(StateRunning))
		write(w, r, http.StatusAccepted, report{State: StateRunning})
	case delay.Done:
		f, err := d.finished(task, status.Result)
		if err != nil {
			refuse(w, r, http.StatusNotFound) // somebody else has written into the queue
			return
		}
		outcome := f.Outcome
		header.Set(StateHeader, string(StateDone))
		if answers.ReplayResponse(w, r.Request, outcome) {
			return
		}
		if location := outcome.Header["Location"]; location != "" {
			header.Set("Location", location)
		}
		write(w, r, http.StatusOK, report{State: StateDone, Status: outcome.Status})
	default:
		header.Set(StateHeader, string(StateFailed))
		refuse(w, r, http.StatusInternalServerError)
	}
}

// seconds returns a wait as Retry-After has it: whole seconds, rounded up, and 1 at least.
func seconds(wait time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(wait.Seconds()))), 10)
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, r *keyfuncs.Request, status int) {
	w.Header().Set("Content-Type", "application/problem+json")
	body := problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		State: State(w.Header().Get(StateHeader))}
	send(w, r, status, body)
}

// write answers with a report.
func write(w http.ResponseWriter, r *keyfuncs.Request, status int, body report) {
	w.Header().Set("Content-Type", "application/json")
	send(w, r, status, body)
}

func send(w http.ResponseWriter, r *keyfuncs.Request, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		text = []byte(`{}`) // texts, numbers and times cannot fail to marshal
	}
	text = append(text, '\n') // for terminals
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // the client may have disconnected; they can ask again
	}
}
