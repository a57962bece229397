package recipes

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Invitations limits e-mails that users send by a JSON body such as {"to": {"email": "bob@example.org"}}: 20
// a day per sender, and 3 a day to one recipient, whoever sends them. The handler reads the whole body as
// usual.
func Invitations(gate *core.Engine, send http.Handler) http.Handler {
	perSender := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "mails-by-sender", limit.PerDay(20)),
		Who:   keyfuncs.User("uid"),
	}
	perRecipient := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "mails-to", limit.PerDay(3)),
		Who:   keyfuncs.Hash(recipient), // no e-mail addresses in Redis
	}
	return ratelimit.HTTP(perSender, perRecipient)(send)
}

// recipient finds the recipient in at most 4 KiB of the body, in one spelling: Bob@example.org and
// bob@example.org are one inbox.
var recipient = keyfuncs.Folded(keyfuncs.Require(keyfuncs.JSON(4096, "to", "email")))
