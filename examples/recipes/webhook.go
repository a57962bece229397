package recipes

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// mostOfAnEvent is how large the body of an event may be.
const mostOfAnEvent = 64 << 10

// Payments receives the events of a payment provider, which sends each event until it gets a 2xx. An event
// whose signature is wrong gets 401. The handler runs once per event: a repetition gets the first answer
// again, and one that arrives while the first is being handled gets 409, so that the provider tries later.
// Where the handler fails, the next delivery runs it again.
func Payments(gate *core.Engine, secret []byte, handle http.Handler) http.Handler {
	once := ratelimit.Rule{
		Guard: idempotency.New(gate, "payments", idempotency.Options{Keep: 30 * 24 * time.Hour}),
		Who:   keyfuncs.Const("provider"),
		ID:    keyfuncs.JSON(mostOfAnEvent, "id"),
		Which: keyfuncs.Const("event"), // the ID alone says that it is the same, whatever else has changed
	}
	guarded := ratelimit.HTTP(once)(handle)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostOfAnEvent))
		if err != nil {
			http.Error(w, "The event is too large.", http.StatusRequestEntityTooLarge)
			return
		}
		signature, err := hex.DecodeString(r.Header.Get("X-Signature"))
		if err != nil || !hmac.Equal(signature, sign(secret, body)) {
			http.Error(w, "The signature is wrong.", http.StatusUnauthorized)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		guarded.ServeHTTP(w, r)
	})
}

// sign is the signature of a body: use what your provider documents.
func sign(secret, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return mac.Sum(nil)
}
