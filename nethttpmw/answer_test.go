package nethttpmw_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

func TestEveryReasonHasItsStatus(t *testing.T) {
	want := map[core.Reason]int{
		core.ReasonLimited:          http.StatusTooManyRequests,
		core.ReasonOverLimit:        http.StatusTooManyRequests,
		core.ReasonBanned:           http.StatusTooManyRequests,
		core.ReasonQuota:            http.StatusTooManyRequests,
		core.ReasonEarly:            http.StatusTooManyRequests,
		core.ReasonDuplicate:        http.StatusConflict,
		core.ReasonNotOpen:          http.StatusConflict,
		core.ReasonClosed:           http.StatusConflict,
		core.ReasonSoldOut:          http.StatusConflict,
		core.ReasonEmpty:            http.StatusConflict,
		core.ReasonGone:             http.StatusConflict,
		core.ReasonInProgress:       http.StatusConflict,
		core.ReasonDone:             http.StatusConflict, // where the answer was not kept
		core.ReasonConflict:         http.StatusUnprocessableEntity,
		core.ReasonNotReady:         http.StatusServiceUnavailable,
		core.ReasonUnconfirmed:      http.StatusServiceUnavailable,
		nethttpmw.ReasonDenied:      http.StatusForbidden,
		core.ReasonDayRolled:        http.StatusServiceUnavailable,
		nethttpmw.ReasonUnavailable: http.StatusServiceUnavailable,
		nethttpmw.ReasonNoKey:       http.StatusBadRequest,
		nethttpmw.ReasonMalformed:   http.StatusBadRequest,
		nethttpmw.ReasonInvalid:     http.StatusBadRequest,
		"an application's own":      http.StatusForbidden,
		"":                          http.StatusForbidden,
	}
	for reason, status := range want {
		if got := nethttpmw.Status(reason); got != status {
			t.Errorf("Status(%q) = %d, want %d", reason, got, status)
		}
	}
	for _, reason := range nethttpmw.Reasons() {
		if want[reason] == 0 {
			t.Errorf("%q is answered with %d, which nothing here asks for", reason, nethttpmw.Status(reason))
		}
	}
}

func TestRetryAfterIsRoundedUpToSeconds(t *testing.T) {
	for _, c := range []struct {
		wait time.Duration
		want string
	}{
		{0, ""},
		{-time.Second, ""},
		{time.Nanosecond, "1"},
		{time.Second - 1, "1"},
		{time.Second, "1"},
		{time.Second + time.Millisecond, "1"},
		{time.Second + time.Millisecond + 1, "2"},
		{90*time.Minute + time.Second/2, "5401"},
		{math.MaxInt64, "2147483647"},
	} {
		w := httptest.NewRecorder()
		refusal := nethttpmw.Refusal{
			Status: http.StatusTooManyRequests, Reason: core.ReasonLimited, Decision: core.Decision{RetryAfter: c.wait},
		}
		refusal.Reply(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := w.Header().Get("Retry-After"); got != c.want {
			t.Errorf("wait %v: Retry-After %q, want %q", c.wait, got, c.want)
		}
	}
}
