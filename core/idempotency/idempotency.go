package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	idempotencyBeginScript   = core.NewScript("idempotency_begin", lua.IdempotencyBegin, core.Idempotent)
	idempotencyFinishScript  = core.NewScript("idempotency_finish", lua.IdempotencyFinish, core.Idempotent)
	idempotencyReleaseScript = core.NewScript("idempotency_release", lua.IdempotencyRelease, core.Idempotent)
)

// IdempotencyOptions are what Idempotency may be told. Lengths of time are whole milliseconds.
type Options struct {
	// Lease is how long an operation may run before another attempt may begin it anew, 1 ms to 24 hours. Zero means a minute.
	//
	// It is what clients wait for when the process that runs the operation dies, and it is not renewed: an operation that takes
	// longer may run twice at the same time. Give it more than your requests can take, such as http.Server.WriteTimeout.
	Lease time.Duration
	// Keep is how long an outcome is kept, 1 second to 366 days: how late a client may ask again. Zero means 24 hours.
	Keep time.Duration
	// MaxBody is how many bytes of an answer's body are kept, 1 MiB at most. Zero: none, only the status and a few fields of the
	// header. Of a longer body nothing is kept, since half an answer would be a wrong one.
	MaxBody int
}

const (
	// outcomeBodyMost is the largest MaxBody: Redis is no store for documents.
	outcomeBodyMost = 1 << 20
	// askAgainIn is how long a client should wait whose operation is running.
	askAgainIn = time.Second
)

// Idempotency lets each operation be done once, and answers repetitions with how it ended: the Actor is who, the ID the name that he
// has given the operation, the Resource what it belongs to; it may be empty. Operations of different actors or resources have
// nothing to do with each other, and whoever is the same actor and knows the ID hears the outcome: so that is a user who has signed in
// rather than an address. The Item, and the Cost, say what makes a repetition the same attempt: the guard keeps a fingerprint
// of them, and refuses another attempt under the same ID as ReasonConflict.
//
// Check begins the operation. While it runs others are refused as ReasonInProgress. Settle with ok true keeps Decision.Outcome, which
// the caller may have set; from then on others are refused as ReasonDone, and their Decision has it. Settle with ok false lets the
// operation begin anew.
//
// An operation whose process dies may begin anew when the lease is over. A process that was merely paused for so long can not
// overwrite what another has done meanwhile: its Settle returns ErrGone. So an operation is done once, unless it takes longer than
// the lease, or Redis loses its memory: the operation's own writes should stand being made twice then, as with an order whose key
// is the ID.
//
// An operation takes one key: under a UUID about 180 bytes while it runs and 200 when only its status is kept; with two fields of
// the header 300, and the body as it is (measured on Redis 7.0, the key's name included).
type Guard struct {
	core.Base
	options Options
}

// Idempotency makes a guard for operations that clients repeat. It panics when the name is taken or not a name, the options make no
// sense, or the engine has no Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	e.NeedRedis("Idempotency", name)
	if options.Lease == 0 {
		options.Lease = time.Minute
	}
	if options.Keep == 0 {
		options.Keep = 24 * time.Hour
	}
	if err := options.check(); err != nil {
		panic(fmt.Sprintf("core: %v (guard %q)", err, name))
	}
	return &Guard{
		Base:    e.Register("idempotency", name, idempotencyBeginScript, idempotencyFinishScript, idempotencyReleaseScript),
		options: options,
	}
}

// check finds options that make no sense.
func (o Options) check() error {
	switch {
	case o.Lease < time.Millisecond || o.Lease > 24*time.Hour || o.Lease%time.Millisecond != 0:
		return fmt.Errorf("operations with a Lease of %v: give whole milliseconds, 1 ms to 24 hours", o.Lease)
	case o.Keep < time.Second || o.Keep > core.MaxTTL || o.Keep%time.Millisecond != 0:
		return fmt.Errorf("outcomes with a Keep of %v: give whole milliseconds, 1 second to %v", o.Keep, core.MaxTTL)
	case o.MaxBody < 0 || o.MaxBody > outcomeBodyMost:
		return fmt.Errorf("outcomes with a MaxBody of %d: give 0 to %d bytes", o.MaxBody, outcomeBodyMost)
	}
	return nil
}

// Traits implements Guard: an operation needs an ID, and begins anew when it has failed.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsID: true, KeepsOutcome: true, Confirms: true, MaxBody: g.options.MaxBody, Outage: core.FailClosed}
}

// text is an outcome as it is kept: a line of JSON, then the body as it is.
func textOf(o *core.Outcome, maxBody int) (string, error) {
	if o == nil {
		return "{}\n", nil
	}
	line, err := json.Marshal(o)
	if err != nil {
		return "", err // a map of text and a number can not fail to marshal
	}
	if len(o.Body) > maxBody {
		return string(line) + "\n", nil
	}
	return string(line) + "\n" + string(o.Body), nil
}

// parseOutcome reads what text has made.
func parseOutcome(text string) (*core.Outcome, error) {
	line, body, found := strings.Cut(text, "\n")
	var o core.Outcome
	if !found {
		return nil, errors.New("an outcome without a line of JSON")
	}
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		return nil, fmt.Errorf("an outcome: %w", err)
	}
	if body != "" {
		o.Body = []byte(body)
	}
	return &o, nil
}

// Check implements Guard: it begins the operation. ResetAfter of an allowed attempt is the lease. An attempt without an ID is an
// ErrInvalidAttempt.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.check(ctx, a) })
}

func (g *Guard) check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a, err := prepareOperation(a)
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err != nil {
		return d, err
	}
	if err := core.RoomToUndo(); err != nil {
		return d, err
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), idempotencyBeginScript, g.operationKeys(a),
		fingerprint(a), a.Call(), g.options.Lease.Milliseconds())
	if err != nil {
		g.Engine().UndoLater(err, func(ctx context.Context) error { return g.release(ctx, a, core.TombstoneTTL) }) // observed
		d.Attempt = d.Attempt.WithoutCall()
		return d, err
	}
	r := core.ReadReply(value, 2, 2)
	reason, outcome := core.Reason(r.Text()), r.Text()
	if r.Err != nil {
		return d, r.Err
	}
	if reason == core.ReasonDone {
		done, err := parseOutcome(outcome)
		if err != nil {
			return d, err
		}
		d.SetClaim(operation{done})
	}
	d.Reason, d.Source = reason, core.SourceRedis
	d.Allowed, d.Replayed = reason == core.ReasonOK, reason == core.ReasonDone
	if d.Allowed {
		d.SetClaim(operation{})
		d.ResetAfter = g.options.Lease
	}
	if reason == core.ReasonInProgress {
		d.RetryAfter = askAgainIn
	}
	return d, nil
}

// operation is what the guard keeps with a decision: how the operation has ended, where it has.
type operation struct{ outcome *core.Outcome }

// Outcome is for core.OutcomeOf.
func (o operation) Outcome() *core.Outcome { return o.outcome }

// Settle implements Guard: core.CommitWith keeps the outcome, core.Rollback lets the operation begin anew. An Outcome that is Incomplete says
// that the operation is done, so that it never begins anew, before its whole answer is known; Settle with the same decision and the
// whole Outcome keeps that in its place. Otherwise the first call counts. Where the lease is over and another
// attempt has begun the operation since, ok is an ErrGone: the operation has been, or is being, done twice. The decision is one that
// this guard's Check returned in this process; another is an ErrInvalidAttempt.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if !d.Allowed {
		return nil
	}
	a, begun := d.Attempt, time.Now()
	if _, err := core.Claimed[operation](&g.Base, d); err != nil {
		return g.Observe(ctx, "settle", begun, d, err)
	}
	if !end.Commits() {
		return g.release(ctx, a, 0)
	}
	return g.Observe(ctx, "settle", begun, d, func() error {
		outcome, err := textOf(end.Outcome(), g.options.MaxBody)
		if err != nil {
			return err
		}
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), idempotencyFinishScript, g.operationKeys(a),
			fingerprint(a), a.Call(), outcome, g.options.Keep.Milliseconds(), core.FlagOf(end.Outcome() != nil && end.Outcome().Incomplete))
		if err != nil {
			return err
		}
		kept, err := core.ReadNumber(value)
		if err == nil && kept == 0 {
			err = fmt.Errorf("%w: the lease was over, and another attempt has begun the operation", core.ErrGone)
		}
		return err
	}())
}

// release lets the operation begin anew that the attempt's own call of Check has begun. If that call has not come yet, it shall
// begin nothing when it comes within the time given.
func (g *Guard) release(ctx context.Context, a core.Attempt, void time.Duration) error {
	return g.Call(ctx, "settle", a, func() error {
		_, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), idempotencyReleaseScript, g.operationKeys(a),
			a.Call(), void.Milliseconds())
		return err
	})
}

// Reset forgets an operation, whether it is running or has been done, by the attempt's Actor, Resource and ID.
func (g *Guard) Reset(ctx context.Context, a core.Attempt) error {
	a, err := prepareOperation(a)
	return g.Call(ctx, "reset", a, func() error {
		if err != nil {
			return err
		}
		return g.Delete(ctx, g.operationKeys(a)...)
	})
}

// prepareOperation is prepare for guards whose attempts are known by an ID from outside.
func prepareOperation(a core.Attempt) (core.Attempt, error) {
	if a.ID == "" {
		return a, fmt.Errorf("%w: no operation ID: name the operation, so that a repetition is known", core.ErrInvalid)
	}
	a, err := a.Prepare()
	if err != nil {
		return a, err
	}
	return a.WithCall(), nil
}

// fingerprint is what a repetition of the same attempt has in common with it: half of a SHA-256, as 22 characters.
func fingerprint(a core.Attempt) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", a.Cost, a.Item))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

func (g *Guard) operationKeys(a core.Attempt) []string {
	return []string{g.Key(core.JoinTag(core.Encode(a.Actor), core.Encode(a.Resource), core.Encode(a.ID)))}
}
