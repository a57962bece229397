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
	"github.com/gatehouse-go/gatehouse/internal/warn"
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
	// request can take. http.Server.WriteTimeout is a good bound.
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
	// MaxActor is how many bytes one actor may store, from 4 KiB and 4 * MaxBody. Zero means 4 MiB, or 4 *
	// MaxBody if that is more.
	//
	// Beyond half of it, operations are kept without their answers: a repetition gets core.ReasonDone without an
	// answer to replay. Answers of up to 256 bytes, fields included, are kept all the same. Where there is no
	// room for one more operation, an attempt is denied with core.ReasonQuota.
	//
	// An operation counts the lengths of its key and its value, a quarter more, and 96 bytes. Redis uses no
	// more than that. The first operation of an actor in an eighth of Keep counts 192 more. The bytes are
	// counted until the operation expires, and up to an eighth of Keep longer. [Guard.Reset] does not take
	// them back. Running operations are not counted. If they run when the bound is reached, they are kept
	// without their answers, and may exceed it.
	MaxActor int64
	// MaxStored is how many bytes all actors may store, from 64 * MaxActor. Zero means 1 GiB, or 64 * MaxActor
	// if that is more.
	//
	// Actors are spread over 64 parts by a hash, and each part may store a 64th. Beyond half of it, operations
	// of the part are kept without their answers, as MaxActor says. Where there is no room for one more, an
	// attempt of any actor of the part is denied with core.ReasonNotReady.
	MaxStored int64
}

const (
	// parts is over how many slots of a cluster a guard is spread, by a hash of the actor. Each has a letter of
	// partLetters.
	parts       = 64
	partLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	// actorLeast is the least MaxActor: it has room for an operation.
	actorLeast = 4 << 10
	// storedMost is the largest MaxStored: Lua counts exactly up to it.
	storedMost = 1 << 50
	// defaultMaxActor and defaultMaxStored are those of Options.
	defaultMaxActor, defaultMaxStored = 4 << 20, 1 << 30
	// outcomeShort is the longest text of an outcome that is kept where there is no room for answers.
	outcomeShort = 256

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
// The Actor owns the operation, the ID names it, and the Resource is its scope, which may be empty.
// Operations of different actors or resources are independent. Any client with the same actor and the ID
// gets the outcome, so the actor should be a signed-in user rather than an address.
//
// The Item and the Cost describe the operation. The guard keeps a fingerprint of them, and denies another
// attempt under the same ID with core.ReasonConflict.
//
// # Lease
//
// Check begins the operation. While it runs, other attempts are denied with core.ReasonInProgress.
// [Guard.Settle] with core.CommitWith keeps the outcome. From then on, other attempts are denied with
// core.ReasonDone, and core.OutcomeOf returns the outcome. Settle with core.Rollback lets the operation
// begin again.
//
// When a process dies, its operations may begin again once their leases end. A process that was only paused
// for that long cannot overwrite the outcome of another process: its Settle returns core.ErrGone. So an
// operation runs once unless it takes longer than the lease or Redis loses data. Make its own writes safe
// to repeat, for example an order whose primary key is the ID.
//
// # Memory
//
// An operation takes one key. With a UUID as ID and an actor of 12 bytes, the key takes 184 bytes while the
// operation runs, 200 when only the status is kept, and 296 with two header fields, plus the body (measured
// on Redis 7.0, including the key's name). The stored bytes are bounded: see [Options].MaxActor and
// MaxStored.
type Guard struct {
	kit.Base
	options Options
	full    warn.Sample[core.Reason]
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
	if options.MaxActor == 0 {
		options.MaxActor = max(defaultMaxActor, 4*int64(options.MaxBody))
	}
	if options.MaxStored == 0 {
		options.MaxStored = max(defaultMaxStored, parts*options.MaxActor)
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
	case o.MaxActor < max(actorLeast, 4*int64(o.MaxBody)) || o.MaxActor > storedMost/parts:
		return fmt.Errorf("the MaxActor is %d: set %d to %d bytes, which have room for answers as long as MaxBody",
			o.MaxActor, max(actorLeast, 4*int64(o.MaxBody)), int64(storedMost/parts))
	case o.MaxStored < parts*o.MaxActor || o.MaxStored > storedMost:
		return fmt.Errorf("the MaxStored is %d: set %d to %d bytes, since each of %d parts has room for an actor",
			o.MaxStored, parts*o.MaxActor, int64(storedMost), parts)
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

// briefOf returns what is kept of an outcome where there is no room for its answer: the status, and where the
// result is. It is empty if the text of the outcome is short enough to be kept in any case.
func briefOf(o *core.Outcome, text string) (string, error) {
	if o == nil || len(text) <= outcomeShort {
		return "", nil
	}
	brief := core.Outcome{Status: o.Status, Incomplete: true}
	if location := o.Header["Location"]; location != "" {
		brief.Header = map[string]string{"Location": location}
	}
	short, err := textOf(&brief, 0)
	if len(short) > outcomeShort {
		brief.Header = nil
		short, err = textOf(&brief, 0)
	}
	return short, err
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
		fingerprint(a), a.Call(), g.options.Lease.Milliseconds(), g.options.MaxActor, g.options.MaxStored/parts,
		g.Engine().ScriptNow(time.Millisecond))
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
	if reason == core.ReasonQuota || reason == core.ReasonNotReady {
		wait, err := strconv.ParseInt(outcome, 10, 64)
		if err != nil {
			return d, fmt.Errorf("unexpected wait: %w", err)
		}
		d.RetryAfter = script.DurationOf(wait, time.Millisecond)
		g.logFull(ctx, reason)
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
// When the lease has ended and another attempt has begun the operation since, a commit returns
// core.ErrGone: the operation was, or is being, done twice. The decision must come from this guard's Check
// in this process, or the error is core.ErrInvalid.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if !d.Allowed {
		return nil
	}
	a, begun := d.Attempt, time.Now()
	claim, err := kit.Claimed[operation](&g.Base, d)
	if err != nil {
		return g.Observe(ctx, "settle", begun, d, err)
	}
	ctx = core.Settling(ctx)
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
		brief, err := briefOf(end.Outcome(), outcome)
		if err != nil {
			return err
		}
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), finishScript,
			g.operationKeys(a), fingerprint(a), a.Call(), outcome, g.options.Keep.Milliseconds(), left, brief,
			g.options.MaxActor, g.options.MaxStored/parts, g.Engine().ScriptNow(time.Millisecond))
		if err != nil {
			return err
		}
		kept, err := script.ReadNumber(value)
		switch {
		case err != nil:
		case kept == 0:
			err = fmt.Errorf("%w: the lease ended and another attempt began the operation", core.ErrGone)
		case kept == 2:
			g.logFull(ctx, core.ReasonDone)
		}
		return err
	}())
}

// logFull logs that there was no room for an answer (core.ReasonDone) or an operation: of each kind the first
// time, and then once per minute.
func (g *Guard) logFull(ctx context.Context, reason core.Reason) {
	text := map[core.Reason]string{
		core.ReasonDone: "an operation is kept without its answer, since its actor, or a part of the guard, " +
			"stores half of what it may",
		core.ReasonQuota: "an operation is refused, since its actor stores as much as " +
			"idempotency.Options.MaxActor allows",
		core.ReasonNotReady: "an operation is refused, since a part of the guard stores a 64th of " +
			"idempotency.Options.MaxStored",
	}[reason]
	if skipped, ok := g.full.Due(reason); ok {
		g.Logger().WarnContext(ctx, "gatehouse: "+text, "guard", g.Name(), "max_actor", g.options.MaxActor,
			"max_stored", g.options.MaxStored, "not_logged", skipped)
	}
}

// release lets the operation that the attempt's own Check began begin again. If that call, or a copy of it,
// may still arrive, which is late, release leaves a tombstone.
func (g *Guard) release(ctx context.Context, a core.Attempt, late bool) error {
	return g.Call(ctx, "settle", a, func() error {
		_, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), releaseScript,
			g.operationKeys(a)[:1], a.Call(), kit.TombstoneTTL.Milliseconds(), kit.FlagOf(late))
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
		return g.Delete(ctx, g.operationKeys(a)[:1]...)
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

// operationKeys returns the keys of an operation: its own, the counter of its actor, and the counter of its
// part. Rules join the ID of a client with the actor, which is in the key already. So a fourth field,
// behind an empty third one, is an ID that begins with the actor, without the actor.
func (g *Guard) operationKeys(a core.Attempt) []string {
	actor, resource := script.Encode(a.Actor), script.Encode(a.Resource)
	part := partOf(actor)
	keys := []string{"", g.Key(part, actor), g.Key(part)}
	if own, joined := strings.CutPrefix(a.ID, a.Actor+"|"); joined {
		keys[0] = g.Key(part, actor, resource, "", script.Encode(own))
	} else {
		keys[0] = g.Key(part, actor, resource, script.Encode(a.ID))
	}
	return keys
}

// partOf returns the tag of an actor's part.
func partOf(actor string) string {
	letter := sha256.Sum256([]byte(actor))[0] % parts
	return partLetters[letter : letter+1]
}
