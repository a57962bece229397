package keyfuncs_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestFingerprintOfLargeBodies: of two bodies of the same length, or of any two without a stated length, only
// the first 64 KiB were compared, and the second request got the first one's answer.
func TestFingerprintOfLargeBodies(t *testing.T) {
	const most = 1 << 20
	begin := strings.Repeat("x", most-1)
	chunked := func(body string) *http.Request {
		return httptest.NewRequest(http.MethodPost, "/orders", iotest.HalfReader(strings.NewReader(body)))
	}
	plain := func(body string) *http.Request {
		return httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	}
	for name, request := range map[string]func(string) *http.Request{"plain": plain, "chunked": chunked} {
		if a, b := fingerprintOf(t, request(begin+"1")), fingerprintOf(t, request(begin+"2")); a == b {
			t.Errorf("%s: two bodies that differ at the end have the same fingerprint", name)
		}
		r := request(begin + "12")
		if _, err := keyfuncs.Fingerprint()(&keyfuncs.Request{Request: r}); !errors.Is(err, keyfuncs.ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", name, err)
		}
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != begin+"12" {
			t.Errorf("%s: the body that was too large has %d bytes left, %v", name, len(body), err)
		}
		longer := &keyfuncs.Request{Request: request(begin + "12")}
		if _, err := keyfuncs.FingerprintUpTo(most + 1)(longer); err != nil {
			t.Errorf("%s, up to a byte more: %v", name, err)
		}
	}
	bounded := plain(strings.Repeat("x", 100))
	bounded.Body = http.MaxBytesReader(httptest.NewRecorder(), bounded.Body, 10)
	_, err := keyfuncs.Fingerprint()(&keyfuncs.Request{Request: bounded})
	if !errors.Is(err, keyfuncs.ErrTooLarge) {
		t.Errorf("a limit in front: %v, want ErrTooLarge", err)
	}
}

// TestFingerprintUpToNothing: a mistake in the set-up is found there.
func TestFingerprintUpToNothing(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "set the length") {
			t.Errorf("the panic is %q", text)
		}
	}()
	keyfuncs.FingerprintUpTo(0)
}
