package recipes

import (
	"context"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// A Conn is a connection of the websocket library of your choice.
type Conn interface {
	// Read returns the next message.
	Read(ctx context.Context) ([]byte, error)
	// Refuse closes the connection with a status code of RFC 6455, section 7.4, and a reason.
	Refuse(code int, reason string)
}

// tooMuch is the status code of a connection that breaks a policy (RFC 6455, section 7.4.1).
const tooMuch = 1008

// Chat lets a user open 10 connections a minute and have 3 of them at a time, and send 5 messages a second
// over all of them. The upgrade is a request like others. Messages are none, so Chat asks the limit for
// each.
func Chat(
	gate *core.Engine,
	upgrade func(http.ResponseWriter, *http.Request) (Conn, error),
	receive func(user string, message []byte),
) http.Handler {
	opened := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "chat-opened", limit.PerMinute(10)),
		Who:   keyfuncs.User("uid"),
	}
	open := ratelimit.Rule{
		Guard: semaphore.New(gate, "chat-open", semaphore.Options{Max: 3}),
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.User("uid"), // a pool of permits per user; they are held until the handler returns
	}
	messages := limit.NewSlidingWindow(gate, "chat-messages", limit.PerSecond(5))
	return ratelimit.HTTP(opened, open)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := ratelimit.Decision(r.Context(), "chat-opened")
		user := d.Attempt.Actor
		conn, err := upgrade(w, r)
		if err != nil {
			return // the library has answered
		}
		for {
			message, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			d, err := messages.Check(r.Context(), core.Attempt{Actor: user})
			if err != nil { // Redis could not be asked: go on with the limit inside the process
				d, err = messages.CheckLocal(r.Context(), core.Attempt{Actor: user})
			}
			if err != nil || !d.Allowed {
				conn.Refuse(tooMuch, "too many messages")
				return
			}
			receive(user, message)
		}
	}))
}
