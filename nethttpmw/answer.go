package nethttpmw

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// Reasons for answers that no guard has decided.
const (
	// ReasonNoKey: a key function found nothing.
	ReasonNoKey core.Reason = "no_key"
	// ReasonMalformed: a key function found something that can not be used.
	ReasonMalformed core.Reason = "malformed"
	// ReasonInvalid: the attempt makes no sense, such as a negative quantity.
	ReasonInvalid core.Reason = "invalid"
	// ReasonDenied: the rule's Deny has the request.
	ReasonDenied core.Reason = "denied"
	// ReasonUnavailable: Redis could not be asked, and the rule refuses then.
	ReasonUnavailable core.Reason = "unavailable"
)

// answer is what a client is told for a reason: a status and a fixed text. Causes are never in it.
type answer struct {
	status int
	detail string
}

// answers is the one table of what is answered.
var answers = map[core.Reason]answer{
	core.ReasonLimited:     {http.StatusTooManyRequests, "Too many requests. Try again later."},
	core.ReasonOverLimit:   {http.StatusTooManyRequests, "This request asks for more than the limit allows at all."},
	core.ReasonBanned:      {http.StatusTooManyRequests, "Refused too often. Stop for a while."},
	core.ReasonQuota:       {http.StatusTooManyRequests, "All that is allowed has been used."},
	core.ReasonEarly:       {http.StatusTooManyRequests, "The sale has not begun yet."},
	core.ReasonDuplicate:   {http.StatusConflict, "This has been done before, as often as is allowed."},
	core.ReasonNotOpen:     {http.StatusConflict, "This is not open."},
	core.ReasonClosed:      {http.StatusConflict, "This is closed."},
	core.ReasonSoldOut:     {http.StatusConflict, "Sold out."},
	core.ReasonEmpty:       {http.StatusConflict, "All shares have been taken."},
	core.ReasonGone:        {http.StatusConflict, "The reservation is over."},
	core.ReasonConflict:    {http.StatusUnprocessableEntity, "This operation ID belongs to a different request."},
	core.ReasonNotReady:    {http.StatusServiceUnavailable, "This is not ready."},
	core.ReasonUnconfirmed: {http.StatusServiceUnavailable, "This has not been confirmed. Try again, as the same operation."},
	ReasonDenied:           {http.StatusForbidden, "This is not open to you."},
	core.ReasonDayRolled:   {http.StatusServiceUnavailable, "A new period is just beginning. Try again."},
	ReasonUnavailable:      {http.StatusServiceUnavailable, "This can not be decided right now. Try again later."},
	ReasonNoKey:            {http.StatusBadRequest, "The request lacks something that this needs to know."},
	ReasonMalformed:        {http.StatusBadRequest, "Something in the request that this needs to know is malformed."},
	ReasonInvalid:          {http.StatusBadRequest, "The request asks for something that does not exist."},
}

// unknownAnswer is for the reasons of an application's own guards.
var unknownAnswer = answer{http.StatusForbidden, "This request was refused."}

// Reasons returns the reasons that have an answer of their own, in alphabetical order.
func Reasons() []core.Reason { return slices.Sorted(maps.Keys(answers)) }

// Status returns the status that a refusal for this reason is answered with.
func Status(reason core.Reason) int { return answerTo(reason).status }

func answerTo(reason core.Reason) answer {
	if a, ok := answers[reason]; ok {
		return a
	}
	return unknownAnswer
}

// Refusal is the answer to a request that a rule refused.
type Refusal struct {
	// Status is the HTTP status.
	Status int
	// Reason is why; it is in the body as well.
	Reason core.Reason
	// Decision is the guard's, as far as there is one; its Guard is always set.
	Decision core.Decision
}

func refuse(reason core.Reason, d core.Decision) *Refusal {
	return &Refusal{Status: Status(reason), Reason: reason, Decision: d}
}

// problem is the body of a refusal, as of RFC 9457.
type problem struct {
	Type   string      `json:"type"`
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Detail string      `json:"detail"`
	Reason core.Reason `json:"reason"`
	// Choices are those that stand, for a voter who tries again.
	Choices []string `json:"choices,omitempty"`
	// Amount is what the user has of the packet, for one who tries again.
	Amount int64 `json:"amount,omitempty"`
}

// problemTypes is where the reasons are explained.
const problemTypes = "https://github.com/gatehouse-go/gatehouse#"

// Reply writes the refusal: the status, Retry-After in whole seconds, rounded up (but for the last millisecond), when waiting
// helps (RFC 9110, section 10.2.3), and a body of application/problem+json (RFC 9457). No cache may keep it: the next answer
// may differ.
func (f *Refusal) Reply(w http.ResponseWriter) {
	body, err := json.Marshal(problem{
		Type:    problemTypes + string(f.Reason),
		Title:   http.StatusText(f.Status),
		Status:  f.Status,
		Detail:  answerTo(f.Reason).detail,
		Reason:  f.Reason,
		Choices: f.Decision.Choices,
		Amount:  f.Decision.Amount,
	})
	if err != nil {
		body = []byte(`{}`) // strings and numbers can not fail to marshal
	}
	body = append(body, '\n') // for those who read it in a terminal
	header := w.Header()
	if seconds := retrySeconds(f); seconds > 0 {
		header.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // the client may have gone; the request is refused either way
}

// retrySeconds returns how long a client should wait, 0 when waiting is no help.
func retrySeconds(f *Refusal) int64 {
	if f.Reason == ReasonUnavailable {
		return 1
	}
	wait := f.Decision.RetryAfter
	if wait <= 0 {
		return 0
	}
	// Sliding windows round moments up by less than a millisecond, and that must not make a minute 61 seconds. It is less than an
	// answer is under way.
	seconds := (wait-time.Millisecond-1)/time.Second + 1
	return min(int64(seconds), 1<<31-1) // more than some clients can read
}
