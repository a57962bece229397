package mounted

import (
	"context"
	"regexp"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// strangersMost is how many requests in a row, from the first one on, may lack a user before it is told.
const strangersMost = 16

// logins tells when a rule has refused its first requests since none of them had a user: the login is not in
// front of the rule, or stores the user under another name. It is safe for concurrent use.
type logins struct {
	function string // User("uid")
	seen     atomic.Bool
	lacked   atomic.Int32
}

// ofUser finds the key function of a login.
var ofUser = regexp.MustCompile(`User\("[^"]*"\)`)

// loginsOf returns nil if the function who does not ask for a user.
func loginsOf(who keyfuncs.Func) *logins {
	if function := ofUser.FindString(keyfuncs.NameOf(who)); function != "" {
		return &logins{function: function}
	}
	return nil
}

// found notes that a request had an actor.
func (l *logins) found() {
	if !l.seen.Load() {
		l.seen.Store(true)
	}
}

// missed notes that the rule has refused a request for want of a key.
func (l *logins) missed(ctx context.Context, r *answers.Source, err error) {
	if l != nil && keyOf(err) == "who" && !l.seen.Load() && l.lacked.Add(1) == strangersMost {
		warn.Loginless.Tell(ctx, r.Logger(), r.Name, "guard", r.Name, "function", l.function)
	}
}
