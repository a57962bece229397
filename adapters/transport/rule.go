package transport

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Rule is a limit, a budget or a semaphore for calls to a partner. It is plain data.
type Rule struct {
	// Guard decides. Required.
	Guard core.Guard
	// Who names what the partner counts, such as the account or the host: keyfuncs.Const("account-7"), [Host],
	// keyfuncs.Hash(keyfuncs.Header("Authorization")). Required. It gets the outgoing request. A
	// budget of several levels takes keyfuncs.Join of them.
	Who keyfuncs.Func
	// What divides that further, as by [Route]. Nil: not at all.
	What keyfuncs.Func
	// Cost is what a request costs, or an estimate. Nil: 1.
	Cost func(*http.Request) (int64, error)
	// Spent returns the real cost by the header of the answer, if that says it, as a price per call. It is for
	// guards with core.Traits.Spends. See also [Spend]. Nil: the estimate counts.
	Spent func(*http.Response) (units int64, ok bool)
	// When reports whether the rule is for a request. Nil: for all.
	When func(*http.Request) bool
	// Most is how long a request waits for a rate limit, and for the end of a pause. It is refused at once if
	// that, or its context, would be over before. Zero: it does not wait. Semaphores wait as their own options
	// say.
	Most time.Duration
	// OnOutage is the policy while Redis cannot be asked. Zero is that of the guard: rate limits are local then.
	OnOutage core.Outage
	// MaxPause is the longest pause that a partner can ask for. It bounds what a broken or hostile answer does.
	// Zero means a minute. Below zero the rule does not listen to the partner.
	MaxPause time.Duration
	// Pauses keeps the pauses for all processes. Nil means a guard of its own, named after Guard with ".pauses",
	// on its engine. Set it where two transports have a rule with one guard. Without Redis a pause holds in its
	// process.
	Pauses *bans.Guard
}

// DefaultMaxPause is the MaxPause of a rule that sets none.
const DefaultMaxPause = time.Minute

// mounted is a rule that was checked, with what its guard can do.
type mounted struct {
	Rule
	traits core.Traits
	waiter kit.Waiter     // or nil
	local  kit.LocalGuard // or nil
	holder kit.Holder     // or nil
	pauses *pauses        // or nil
	logger func() *slog.Logger

	patience time.Duration // for how long a call to Redis may take; zero without Redis
}

// mount checks the rules. It panics on set-up mistakes.
func mount(rules []Rule) []*mounted {
	if len(rules) == 0 {
		panic("transport: New without a rule: pass at least one, or use the base transport itself")
	}
	type kept struct { // rules of one guard share its pauses, unless they keep them elsewhere
		of core.Guard
		in *bans.Guard
	}
	all, paused := make([]*mounted, len(rules)), map[kept]*pauses{}
	for i, r := range rules {
		switch {
		case r.Guard == nil:
			panic(fmt.Sprintf("transport: rule %d has no Guard: set it", i+1))
		case r.Who == nil:
			panic(fmt.Sprintf("transport: the rule of guard %q has no Who: name what the partner counts, such as "+
				"keyfuncs.Const(\"account\")", r.Guard.Name()))
		case r.Most < 0:
			panic(fmt.Sprintf("transport: the rule of guard %q has a Most of %v: set 0 or more",
				r.Guard.Name(), r.Most))
		}
		m := &mounted{Rule: r, traits: r.Guard.Traits()}
		m.waiter, _ = r.Guard.(kit.Waiter)
		m.local, _ = r.Guard.(kit.LocalGuard)
		m.holder, _ = r.Guard.(kit.Holder)
		m.logger = func() *slog.Logger { return core.LoggerOf(r.Guard) }
		if e := engineOf(r.Guard); e != nil && e.HasRedis() {
			m.patience = e.Deadline()
		}
		if m.OnOutage == core.FailDefault {
			m.OnOutage = m.traits.Outage
		}
		if m.OnOutage == core.FailLocal && m.local == nil {
			panic(fmt.Sprintf("transport: the rule of guard %q is FailLocal, but only rate limits and semaphores "+
				"decide inside the process: use FailClosed or FailOpen", r.Guard.Name()))
		}
		if r.MaxPause >= 0 {
			where := kept{r.Guard, r.Pauses}
			if paused[where] == nil {
				paused[where] = newPauses(&m.Rule)
			}
			m.pauses = paused[where]
		}
		all[i] = m
	}
	return all
}
