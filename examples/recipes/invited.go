package recipes

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// InvitedOnly sells to users who have an invitation, one unit each. An invitation is a signature of the item
// and the user, so there is nothing to store, nobody can make one, and to pass it on is of no use. The sale
// has to be opened with PerBuyer: 1.
func InvitedOnly(sale *seckill.Guard, secret []byte, order http.Handler) http.Handler {
	buy := ratelimit.Rule{
		Guard: sale,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("sku"),
		ID:    keyfuncs.IdempotencyKey(),
	}
	guarded := ratelimit.HTTP(buy)(order)
	uid := keyfuncs.User("uid")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := uid(&keyfuncs.Request{Request: r})
		invitation := r.URL.Query().Get("invitation")
		if err != nil || !hmac.Equal([]byte(invitation), []byte(Invitation(secret, r.PathValue("sku"), user))) {
			http.Error(w, "You need an invitation.", http.StatusForbidden)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// Invitation returns the invitation of a user to buy an item, for a link in an e-mail.
func Invitation(secret []byte, sku, user string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(keyfuncs.JoinTexts("invitation", sku, user))) // no other pair has the same text
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
