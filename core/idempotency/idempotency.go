package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	beginScript   = script.New("idempotency_begin", lua.Source("idempotency/begin"), script.Idempotent)
	finishScript  = script.New("idempotency_finish", lua.Source("idempotency/finish"), script.Idempotent)
	releaseScript = script.New("idempotency_release", lua.Source("idempotency/release"), script.Idempotent)
)

// Options configure a [Guard]. The zero value is valid. Durations are whole milliseconds.
type Options struct {
	// Lease is how long an operation may run before another attempt may begin it again, 1 ms to 24 hours.
	// Zero means one minute.
	//
	// When the process that runs the operation dies, clients wait for the lease to end. The lease is not
	// renewed, so an operation that takes longer may run twice at the same time. Set it longer than any
	// request can take; http.Server.WriteTimeout is a good bound.
	Lease time.Duration
	// Keep is how long an outcome is kept after the operation is done, and so how late a client may ask again,
	// 1 second to 366 days. Zero means 24 hours. It is not for an operation that runs, which has its Lease.
	Keep time.Duration
	// MaxBody is the length in bytes of the longest body that is kept, up to 960 KiB. Zero means 64 KiB. Less
	// than zero keeps no body, only the status and a few header fields.
	//
	// A longer body is not kept at all, because part of an answer would be wrong: a repetition then gets
	// core.ReasonDone without an answer to replay.
	MaxBody int
}

const (
	// defaultMaxBody holds what an API answers to a form or an order.
	defaultMaxBody = 64 << 10
	// outcomeMost is the longest text of an outcome that is sent to Redis. No server can be configured to refuse
	// a text of this length: the least value of proto-max-bulk-len is 1 MiB.
	outcomeMost = 1 << 20
	// outcomeBodyMost is the largest MaxBody. It leaves room for the header fields, and Redis should not store
	// documents.
	outcomeBodyMost = outcomeMost - 64<<10
	// askAgainIn is the RetryAfter for a client whose operation is running.
	askAgainIn = time.Second
)

// Guard runs each operation once and replays its outcome to repetitions. Make one with [New]. It is safe for
// concurrent use.
//
// # Attempts
//
// The Actor owns the operation, the ID names it, and the Resource says what it belongs to; the Resource may
// be empty. Operations of different actors or resources are independent. Anyone who is the same actor and
// knows the ID gets the outcome, so the actor should be a signed-in user rather than an address.
//
// The Item and the Cost say what the operation does. The guard keeps a fingerprint of them, and denies
// another attempt under the same ID with core.ReasonConflict.
//
// # Lease
//
// Check begins the operation. While it runs, other attempts are denied with core.ReasonInProgress.
// [Guard.Settle] with core.CommitWith keeps the outcome; from then on, other attempts are denied with
// core.ReasonDone and core.OutcomeOf returns the outcome. Settle with core.Rollback lets the operation begin
// again.
//
// When a process dies, its operations may begin again once their leases end. A process that was only paused
// for that long cannot overwrite what another one did meanwhile: its Settle returns core.ErrGone. So an
// operation runs once unless it takes longer than the lease or Redis loses data. Make its own writes safe to
// repeat, for example an order whose primary key is the ID.
//
// # Memory
//
// An operation takes one key. With a UUID as ID and an actor of 12 bytes, the key takes 184 bytes while the
// operation runs, 200 when only the status is kept, and 296 with two header fields, plus the body (measured
// on Redis 7.0, including the key's name).
type Guard struct {
	kit.Base
	options Options
}

// New makes a guard with the given name. It panics when the name is taken or malformed, when the options are
// invalid, or when the engine has no Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	kit.NeedRedis(e, "idempotency", name)
	if options.Lease == 0 {
		options.Lease = time.Minute
	}
	if options.Keep == 0 {
		options.Keep = 24 * time.Hour
	}
	if options.MaxBody == 0 {
		options.MaxBody = defaultMaxBody
	}
	if err := options.check(); err != nil {
		panic(fmt.Sprintf("idempotency: %v (guard %q)", err, name))
	}
	return &Guard{
		Base: kit.Register(e, "idempotency", name, beginScript, finishScript,
			releaseScript),
		options: options,
	}
}

// check returns an error for options that are out of range.
func (o Options) check() error {
	switch {
	case o.Lease < time.Millisecond || o.Lease > 24*time.Hour || o.Lease%time.Millisecond != 0:
		return fmt.Errorf("the Lease is %v: set whole milliseconds from 1 ms to 24 hours", o.Lease)
	case o.Keep < time.Second || o.Keep > kit.MaxTTL || o.Keep%time.Millisecond != 0:
		return fmt.Errorf("the Keep is %v: set whole milliseconds from 1 second to %v", o.Keep, kit.MaxTTL)
	case o.MaxBody > outcomeBodyMost:
		return fmt.Errorf("the MaxBody is %d: set %d bytes at most", o.MaxBody, outcomeBodyMost)
	}
	return nil
}

// Traits implements [core.Guard]: an attempt needs an ID, and a failed operation may begin again.
func (g *Guard) Traits() core.Traits {
	return core.Traits{
		NeedsID: true, KeepsOutcome: true, Confirms: true, MaxBody: max(g.options.MaxBody, 0),
		Outage: core.FailClosed,
	}
}

// textOf returns an outcome as Redis keeps it: a line of JSON, then the raw body, unless it is too long.
func textOf(o *core.Outcome, maxBody int) (string, error) {
	if o == nil {
		return "{}\n", nil
	}
	line, err := json.Marshal(o)
	if err != nil {
		return "", err // strings and a number always marshal
	}
	if len(o.Body) <= max(maxBody, 0) && len(line)+1+len(o.Body) <= outcomeMost {
		return string(line) + "\n" + string(o.Body), nil
	}
	rest := core.Outcome{Status: o.Status, Header: o.Header, Incomplete: true}
	if line, err = json.Marshal(rest); err == nil && len(line) >= outcomeMost {
		rest.Header = nil
		line, err = json.Marshal(rest)
	}
	return string(line) + "\n", err
}

// parseOutcome is the inverse of textOf.
func parseOutcome(text string) (*core.Outcome, error) {
	line, body, found := strings.Cut(text, "\n")
	var o core.Outcome
	if !found {
		return nil, errors.New("stored outcome has no line of JSON")
	}
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		return nil, fmt.Errorf("stored outcome: %w", err)
	}
	if body != "" {
		o.Body = []byte(body)
	}
	return &o, nil
}

// Check implements [core.Guard]: it begins the operation. The ResetAfter of an allowed attempt is the lease.
// An attempt without an ID is a core.ErrInvalid.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.check(ctx, a) })
}

func (g *Guard) check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a, err := prepareOperation(a)
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err != nil {
		return d, err
	}
	if err := kit.RoomToUndo(); err != nil {
		return d, err
	}
	ctx, again := script.WatchSendings(ctx)
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), beginScript, g.operationKeys(a),
		fingerprint(a), a.Call(), g.options.Lease.Milliseconds())
	release := func(ctx context.Context) error { return g.release(ctx, a, true) }
	if err != nil {
		g.UndoLater(err, release)
		d.Attempt = d.Attempt.WithoutCall()
		return d, err
	}
	r := script.ReadReply(value, 2, 2)
	reason, outcome := core.Reason(r.Text()), r.Text()
	if r.Err != nil {
		return d, r.Err
	}
	if reason == core.ReasonDone {
		done, err := parseOutcome(outcome)
		if err != nil {
			return d, err
		}
		d.SetClaim(operation{outcome: done})
	}
	d.Reason, d.Source = reason, core.SourceRedis
	d.Allowed, d.Replayed = reason == core.ReasonOK, reason == core.ReasonDone
	switch {
	case d.Allowed:
		d.SetClaim(operation{late: again()})
		d.ResetAfter = g.options.Lease
	case again() && reason != core.ReasonDone: // an earlier sending may still arrive, and begin it by then
		g.UndoLater(nil, release)
	}
	if reason == core.ReasonInProgress {
		d.RetryAfter = askAgainIn
	}
	return d, nil
}

// operation is the claim that a decision carries.
type operation struct {
	outcome *core.Outcome // nil while the operation runs
	late    bool          // a copy of the call may still arrive: its release leaves a tombstone
}

// Outcome implements the interface that core.OutcomeOf looks for.
func (o operation) Outcome() *core.Outcome { return o.outcome }

// Settle implements [core.Guard]: core.CommitWith keeps the outcome, and core.Rollback lets the operation
// begin again. The first call counts, with one exception: an Outcome that is Pending only marks the operation
// as done, so that it never begins again, and a later Settle of the same decision replaces it. Until then,
// and for as long as the Lease at most, other attempts are denied with core.ReasonInProgress.
//
// When the lease has ended and another attempt has begun the operation since, a commit returns core.ErrGone:
// the operation was, or is being, done twice. The decision must come from this guard's Check in this process;
// otherwise the error is core.ErrInvalid.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if !d.Allowed {
		return nil
	}
	a, begun := d.Attempt, time.Now()
	claim, err := kit.Claimed[operation](&g.Base, d)
	if err != nil {
		return g.Observe(ctx, "settle", begun, d, err)
	}
	ctx = kit.Settling(ctx)
	if !end.Commits() {
		return g.release(ctx, a, claim.late)
	}
	return g.Observe(ctx, "settle", begun, d, func() error {
		outcome, err := textOf(end.Outcome(), g.options.MaxBody)
		if err != nil {
			return err
		}
		left := "" // of Keep, when nobody waits for the rest any more
		if o := end.Outcome(); o != nil && o.Pending {
			left = strconv.FormatInt(max(g.options.Keep-g.options.Lease, 0).Milliseconds(), 10)
		}
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), finishScript,
			g.operationKeys(a), fingerprint(a), a.Call(), outcome, g.options.Keep.Milliseconds(), left)
		if err != nil {
			return err
		}
		kept, err := script.ReadNumber(value)
		if err == nil && kept == 0 {
			err = fmt.Errorf("%w: the lease ended and another attempt began the operation", core.ErrGone)
		}
		return err
	}())
}

// release lets the operation that the attempt's own Check began begin again. If that call, or a copy of it,
// may still arrive, which is late, release leaves a tombstone.
func (g *Guard) release(ctx context.Context, a core.Attempt, late bool) error {
	return g.Call(ctx, "settle", a, func() error {
		_, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), releaseScript,
			g.operationKeys(a),
			a.Call(), kit.TombstoneTTL.Milliseconds(), kit.FlagOf(late))
		return err
	})
}

// Reset deletes the operation that the attempt's Actor, Resource and ID name, whether it is running or done.
func (g *Guard) Reset(ctx context.Context, a core.Attempt) error {
	a, err := prepareOperation(a)
	return g.Call(ctx, "reset", a, func() error {
		if err != nil {
			return err
		}
		return g.Delete(ctx, g.operationKeys(a)...)
	})
}

// prepareOperation is [core.Attempt.Prepare] for attempts whose ID the client must supply.
func prepareOperation(a core.Attempt) (core.Attempt, error) {
	if a.ID == "" {
		return a, fmt.Errorf("%w: no operation ID: name the operation, so that a repetition can be recognized",
			core.ErrInvalid)
	}
	a, err := a.Prepare()
	if err != nil {
		return a, err
	}
	return a.WithCall(), nil
}

// fingerprint is the same for all repetitions of an attempt: half of a SHA-256 of its Cost and Item, in 22
// characters.
func fingerprint(a core.Attempt) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", a.Cost, a.Item))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// operationKeys returns the key of an operation. Rules join the ID of a client with the actor, who is in the
// key already. So a fourth part, behind an empty third one, is an ID that begins with the actor, without the
// actor.
func (g *Guard) operationKeys(a core.Attempt) []string {
	actor, resource := script.Encode(a.Actor), script.Encode(a.Resource)
	if own, joined := strings.CutPrefix(a.ID, a.Actor+"|"); joined {
		return []string{g.Key(script.JoinTag(actor, resource, "", script.Encode(own)))}
	}
	return []string{g.Key(script.JoinTag(actor, resource, script.Encode(a.ID)))}
}
