package votes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	voteScript        = script.New("vote", lua.Source("votes/vote"), script.Idempotent).Shared()
	voteKeepScript    = script.New("vote_keep", lua.Source("votes/keep"), script.Idempotent)
	voteUndoScript    = script.New("vote_undo", lua.Source("votes/undo"), script.Idempotent)
	voteRetractScript = script.New("vote_retract", lua.Source("votes/retract"), script.Idempotent)
	voteVoidScript    = script.New("vote_void", lua.Source("votes/void"), script.Idempotent)
	voteTallyScript   = script.New("vote_tally", lua.Source("votes/tally"), script.Idempotent)
	voteRepairScript  = script.New("vote_repair", lua.Source("votes/repair"), script.Idempotent)
)

// Poll holds the rules of one poll. A change takes effect at once. Earlier votes still count.
type Poll struct {
	// PerVoter is the number of votes that each voter has in the poll, at most 1000. Zero means 1. A voter can
	// vote 100 times more in all: votes that were changed, taken back or voided leave a choice, an operation ID
	// or events of the audit, which nobody shall pile up. Then further votes are refused with
	// core.ReasonQuota, and the last ones stand.
	PerVoter int
	// PerChoice is the number of votes that a voter may cast for the same choice, at most 1000. Zero means 1.
	PerChoice int
	// PerDay is the number of votes that a voter may cast per Day, at most 1000. Zero means no cap per day.
	PerDay int
	// Day divides time into the days of PerDay. Nil means period.Daily(time.UTC).
	Day period.Period
	// Change lets a voter replace their vote by voting for another choice. It needs PerVoter 1. In a poll
	// with more votes per voter, set Retract instead.
	Change bool
	// Retract lets a voter take votes back with [Guard.Retract].
	Retract bool
	// Choices lists the valid items; any other item is a core.ErrInvalid. Nil allows every item. Then the
	// application has to check items, or voters add their own choices to the tally.
	Choices []string
	// Opens and Closes bound the poll, to the millisecond. A zero Opens means open already, a zero Closes
	// never.
	Opens, Closes time.Time
}

// Options configure a [Guard]. The zero value is valid: each voter has one vote per poll, for any item.
type Options struct {
	// Poll holds the rules of every poll of the guard, unless Find is set.
	Poll Poll
	// Find returns the rules of a poll by its name, the attempt's Resource. Every attempt calls it, so it
	// should answer from memory, and it must be safe for concurrent use. With [ErrNoPoll] the attempt is
	// denied with core.ReasonNotOpen. Any other error fails the check.
	Find func(ctx context.Context, poll string) (Poll, error)
	// Keep is how long votes are kept after the last vote or the closing of the poll, whichever is later, at
	// least one second. Zero means 30 days. The closing is the one that the last vote knew. A poll without a
	// closing time may stay a little longer. Once nobody has voted in it for that long, it starts again from
	// nothing.
	Keep time.Duration
	// Audit keeps a stream of all changes of votes, which [Guard.Audit] reads and [Guard.Void] needs. Redis
	// keeps it as long as the poll and never trims it: about 100 bytes per vote with a short voter, operation
	// ID and origin, and as much for each vote that is taken back (see Poll.PerVoter for how many). All
	// processes that share a guard must agree on it, or the stream has gaps.
	Audit bool
}

// ErrNoPoll is what [Options].Find returns for a poll that does not exist.
var ErrNoPoll = kit.NewError("votes: no such poll", core.ErrNotFound)

// Guard gives each voter as many votes as the poll allows. Make one with [New]. It is safe for concurrent
// use.
//
// # Attempts
//
// The Actor is the voter, the Resource the poll, the Item the choice, and the Cost the weight of the vote.
//
// # Consistency
//
// One script changes the voter's record and the tally, so the tally is the sum of the records at all times. A
// vote is a claim: [Guard.Settle] with core.Rollback takes it back.
//
// When Redis has lost a part of a poll's data, votes are refused with an [ErrLost], which says what is lost.
//
// # Replays
//
// A command that the client library sends again, because its reply was lost, belongs to the same call of
// Check and gets the same answer. Another call of Check with the same operation ID, by the application or
// by its client, gets the stored answer with Replayed set. It does so also when the first call got an error
// and its vote was not taken back yet. So Replayed is set exactly when Redis has answered an earlier call
// that the vote counts. Kept is set when one of these calls was committed: see [Guard.Settle].
//
// A vote is removed when all calls that it was counted for are rolled back. Redis remembers up to 16 calls
// that have not ended. Until one ends, the next is denied with core.ReasonInProgress, so no allowed call
// loses its vote by the failure of others. An application that uses the guard without a rule has to settle
// each allowed attempt.
//
// # Memory
//
// Redis keeps less than 20 bytes per vote, however long the voter's ID is: a record holds 96 bits of its
// SHA-256. Two voters of a poll whose 96 bits are equal would count as one, and the second would get
// core.ReasonDuplicate. The chance that this happens to any two of ten million voters is 6e-16.
//
// In addition, each different ballot (choice, weight, and with Poll.PerDay the day) takes about 150 bytes
// once, and each operation ID about 40 bytes. An ID from outside takes twice as much where the poll has
// more than 130,000 of them. Redis keeps an ID that the guard made for core.WithRetryHorizon, ten minutes
// by default, or a quarter longer. It keeps an ID from outside for Options.Keep after its vote or the
// closing. It keeps the latter as 104 bits of its SHA-256: two of ten million are equal with a probability
// of 2e-18.
type Guard struct {
	kit.Base
	options    Options
	clock      func() time.Time // guesses the day at first; the server's clock decides
	ids        *operationIDs
	duplicates *kit.Recall[string, votedBefore]
	part       string // of the tags of keys, behind the poll's name: see Part
	parts      int    // of how many that part is one
}

const maxVotesEach = 1000

// New makes a guard with the given name. It panics when the name is taken or malformed, when the options are
// invalid, or when the engine has no Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	kit.NeedRedis(e, "votes", name)
	if err := options.Poll.check(); err != nil {
		panic(fmt.Sprintf("votes: %v (guard %q)", err, name))
	}
	if options.Keep == 0 {
		options.Keep = 30 * 24 * time.Hour
	}
	if options.Keep < time.Second {
		panic(fmt.Sprintf("votes: Keep is %v, after which voters could vote again: "+
			"set days, at least one second (guard %q)", options.Keep, name))
	}
	scripts := []*script.Script{
		voteScript, voteKeepScript, voteUndoScript, voteRetractScript, voteVoidScript, voteTallyScript,
		voteRepairScript,
	}
	return &Guard{
		Base:       kit.Register(e, "votes", name, scripts...),
		options:    options,
		clock:      e.Now,
		ids:        newOperationIDs(e.RetryHorizon()),
		duplicates: newDuplicates(e.RefusalMemory()),
	}
}

// Part returns a guard of the same name that keeps part n of so many of each poll, by itself and in a slot of
// its own. Both settle each other's decisions, and share what they remember of duplicates. A part in which
// voting was not prepared as package parts does it, for this number of parts, is an [ErrLost]: most callers
// want that package.
func (g *Guard) Part(n, of int) *Guard {
	part := *g
	part.part, part.parts = "|"+strconv.Itoa(n), of
	return &part
}

func (p *Poll) check() error {
	for _, cap := range []struct {
		field string
		votes int
	}{
		{"PerVoter", p.PerVoter}, {"PerChoice", p.PerChoice}, {"PerDay", p.PerDay},
	} {
		if cap.votes < 0 || cap.votes > maxVotesEach {
			return fmt.Errorf("%s is %d: set 1 to %d, or 0 for the default", cap.field, cap.votes, maxVotesEach)
		}
	}
	if p.Change && p.PerVoter > 1 {
		return fmt.Errorf("a Change with %d votes per voter is ambiguous: set Retract instead", p.PerVoter)
	}
	if err := schedule.Check(p.Opens, p.Closes); err != nil {
		return fmt.Errorf("a poll that %w", err)
	}
	return nil
}

var utcDays = period.Daily(time.UTC)

// day returns the day of a moment as the scripts take it, or the zero Span for a poll without a cap per day.
func (p *Poll) day(milli int64) (period.Span, error) {
	switch {
	case p.PerDay == 0:
		return period.Span{}, nil
	case p.Day == nil:
		return utcDays.At(milli)
	}
	return p.Day.At(milli)
}

// rules returns the rules of a poll as the scripts take them: empty where each voter has one vote that stays,
// at any time.
func (p *Poll) rules(day period.Span) string {
	perVoter, perChoice := max(p.PerVoter, 1), max(p.PerChoice, 1)
	opens, closes := schedule.Milli(p.Opens), schedule.Milli(p.Closes)
	if perVoter == 1 && perChoice == 1 && !p.Change && opens == 0 && closes == 0 && p.PerDay == 0 {
		return ""
	}
	return fmt.Sprint(perVoter, perChoice, kit.FlagOf(p.Change), opens, closes, p.PerDay, day.Begins, day.Ends)
}

// Traits implements [core.Guard]: an attempt needs a poll, and a failed request takes its vote back.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsResource: true, Outage: core.FailClosed}
}

// Check implements [core.Guard]: it casts a vote. With Poll.Change it changes the voter's only vote, with
// core.ReasonChanged. [Choices] returns the voter's votes that stand, also for core.ReasonDuplicate and
// core.ReasonQuota. RetryAfter is the time until the poll opens, or until the day ends whose votes are used
// up.
//
// In polls without Change, the process remembers duplicates for as long as core.WithRefusalMemory says, at
// most one second, and answers attempts without an operation ID from that memory. During that time it does
// not notice that another process took the vote back.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.check(ctx, a) })
}

func (g *Guard) check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	unasked := a.ID == "" // not MadeID: a retry with a Decision's Attempt has an ID that Redis may know
	a, err := g.prepare(a)
	// Without the name of the call: checking the decision's attempt again is another call.
	d := core.Decision{Guard: g.Name(), Attempt: a.WithoutCall()}
	if err != nil {
		return d, err
	}
	poll, err := g.find(ctx, a.Resource)
	if errors.Is(err, ErrNoPoll) {
		d.Reason = core.ReasonNotOpen
		return d, nil
	}
	if err != nil {
		return d, err
	}
	if poll.Choices != nil && !slices.Contains(poll.Choices, a.Item) {
		return d, fmt.Errorf("%w: %.100q is not a choice of this poll", core.ErrInvalid, a.Item)
	}

	v := newVoter(a.Actor)
	key, now := v.in(a.Resource), g.Engine().Now()
	if unasked {
		if before, found := g.duplicates.Find(key, now); found && before.answers(&poll, a, now) {
			before.fill(&d)
			return d, nil
		}
	}
	asked := g.duplicates.Ask(key, now)
	ctx, again := script.WatchSendings(ctx)
	ctx, cancel := g.Engine().WithinDeadline(ctx) // one deadline for all calls
	defer cancel()
	if err := g.cast(ctx, &d, casting{a, v, &poll, again}); err != nil {
		return d, err
	}
	if d.Allowed {
		g.duplicates.Drop(key)
	} else if before, worth := remember(&poll, d); worth {
		g.duplicates.Hear(asked, before, g.duplicates.Longest())
	}
	return d, nil
}

// casting is what a vote is cast with.
type casting struct {
	attempt core.Attempt // with the name of its call, unlike that of the decision
	voter   voter
	poll    *Poll
	again   func() bool // see script.WatchSendings
}

// cast runs the script and fills in the decision. It tries again when the server's clock is on another day
// than expected.
func (g *Guard) cast(ctx context.Context, d *core.Decision, c casting) error {
	now := g.clock().UnixMilli()
	for range 4 {
		today, err := c.poll.day(now)
		if err != nil {
			return err
		}
		if now, err = g.castOnce(ctx, d, c, today); err != nil {
			return err
		}
		if d.Reason != core.ReasonDayRolled {
			g.undoRefused(d, c.attempt)
			return nil
		}
	}
	d.RetryAfter = time.Second
	return nil
}

// castOnce runs the script once and returns the number in its reply.
func (g *Guard) castOnce(
	ctx context.Context, d *core.Decision, c casting, day period.Span,
) (int64, error) {
	a, perVoter := c.attempt, int64(max(c.poll.PerVoter, 1))
	if err := kit.RoomToUndo(); err != nil {
		return 0, err
	}
	args := []any{
		c.voter.record(), script.EncodeUpTo(script.MaxRecord, a.Item), a.Cost, c.poll.rules(day),
		g.options.Keep.Milliseconds(), g.rememberID(a), a.Call(), fieldOf(a.ID),
	}
	args = g.inPart(g.withNow(append(args, g.audited(a)...)))
	keys := g.operationKeys(a.Resource, a.ID)
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), voteScript, keys, args...)
	if err = lost(err); err != nil {
		g.undoLater(err, a, keys)
		return 0, err
	}
	r := script.ReadWords(value, 4)
	reason, replayed, cast, number, choices := r.Text(), r.Flag(), r.Number(), r.Number(), r.Rest()
	if r.Err != nil {
		return 0, r.Err
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.SetClaim(&ballot{keys: keys, call: a.Call(), late: c.again(), choices: decodeAll(choices)})
	d.Allowed = d.Reason == core.ReasonOK || d.Reason == core.ReasonChanged
	d.Limit, d.Remaining = perVoter, max(perVoter-cast, 0)
	d.Kept = d.Allowed && replayed && number == 1
	switch d.Reason {
	case core.ReasonNotOpen, core.ReasonQuota:
		d.RetryAfter = script.DurationOf(number, time.Millisecond)
	case core.ReasonInProgress:
		d.RetryAfter = time.Second
	default: // waiting does not help
	}
	return number, nil
}

// rememberID returns the milliseconds for which the scripts keep the answer to an operation. 0 means as
// long as the votes.
func (g *Guard) rememberID(a core.Attempt) int64 {
	if a.MadeID() {
		return g.Engine().RetryHorizon().Milliseconds()
	}
	return 0
}

// withNow adds the time of a test's clock to the arguments of a script. It drops those that are empty at the
// end: each costs the server about a thousand instructions.
func (g *Guard) withNow(args []any) []any {
	now := g.Engine().ScriptNow(time.Millisecond)
	if now == "" && !g.options.Audit && g.part == "" {
		return args[:len(args)-3]
	}
	return append(args, now)
}

// inPart adds the number of parts of the poll to the arguments of a script, where the guard is of a part.
func (g *Guard) inPart(args []any) []any {
	if g.part == "" {
		return args
	}
	return append(args, g.parts)
}

// audited returns the fields of an attempt for the audit stream: voter, operation ID and origin.
func (g *Guard) audited(a core.Attempt) []any {
	if !g.options.Audit {
		return []any{"", "", ""}
	}
	return []any{script.Encode(a.Actor), script.Encode(a.ID), script.Encode(a.Origin)}
}

func (g *Guard) find(ctx context.Context, name string) (Poll, error) {
	if g.options.Find == nil {
		return g.options.Poll, nil
	}
	poll, err := g.options.Find(ctx, name)
	if err == nil {
		err = poll.check()
	}
	if err != nil && !errors.Is(err, ErrNoPoll) {
		err = fmt.Errorf("find poll %.100q: %w", name, err)
	}
	return poll, err
}

// ballot is the claim that a decision carries.
type ballot struct {
	keys    []string // of the script; nil after a Retract
	call    string   // the name of the call of Check
	late    bool     // the call, or a copy of it, may still arrive: its undo leaves a tombstone
	choices []string
}

// Choices returns the choices of the voter's votes that stand in the poll, the newest last, after a Check or
// a Retract. It is nil for other decisions.
func Choices(d core.Decision) []string {
	if b, ok := core.ClaimOf[*ballot](d); ok {
		return b.choices
	}
	return nil
}

// Settle implements [core.Guard]: core.Rollback takes the vote back, once. If the vote replaced an earlier
// one, the earlier one counts again, unless it was rolled back too. The result is as if the failed requests
// had never been made, in whatever order they end. A retraction and a void stay.
//
// In a poll that has lost its tally, a rollback goes by the records: see [ErrLost].
//
// core.Commit keeps the vote for good, where others may ask again with its operation ID: for an ID from
// outside, and for a replay. That takes a call to Redis. For other votes there is nothing to do. On a full
// Redis it fails, while the vote stands. An adapter tries it again.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	claim, ok := core.ClaimOf[*ballot](d)
	switch {
	case !d.Allowed || ok && claim.keys == nil: // a retraction claims nothing
		return nil
	case end.Commits() && (!ok || d.Guard != g.Name() || d.Kept || d.Attempt.MadeID() && !d.Replayed):
		return nil
	}
	claim, err := kit.Claimed[*ballot](&g.Base, d)
	if err != nil {
		return g.Observe(ctx, "settle", time.Now(), d, err)
	}
	ctx = core.Settling(ctx)
	if end.Commits() {
		return g.keepVote(ctx, d.Attempt, claim)
	}
	return g.undo(ctx, d.Attempt, claim)
}

// keepVote keeps the vote that one call of Check got: from then on no undo takes it back.
func (g *Guard) keepVote(ctx context.Context, a core.Attempt, claim *ballot) error {
	v := newVoter(a.Actor)
	return g.Call(ctx, "settle", a, func() error {
		_, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteKeepScript, claim.keys[3:4],
			v.record(), claim.call, fieldOf(a.ID))
		return err
	})
}

// undoRefused sees to it that an attempt that was refused does not count later: an earlier sending may still
// arrive.
func (g *Guard) undoRefused(d *core.Decision, a core.Attempt) {
	if claim, ok := core.ClaimOf[*ballot](*d); ok && claim.late && !d.Allowed {
		g.undoLater(nil, a, claim.keys)
	}
}

// undoLater takes back in the background what an attempt's call may have got, or still gets.
func (g *Guard) undoLater(err error, a core.Attempt, keys []string) {
	g.UndoLater(err, func(ctx context.Context) error {
		return g.undo(ctx, a, &ballot{keys: keys, call: a.Call(), late: true})
	})
}

// undo takes back the vote that one call of Check got. If that call may still arrive, undo leaves a
// tombstone.
func (g *Guard) undo(ctx context.Context, a core.Attempt, claim *ballot) error {
	v := newVoter(a.Actor)
	defer g.duplicates.Drop(v.in(a.Resource))
	return g.Call(ctx, "settle", a, func() (err error) {
		args := append([]any{v.record(), claim.call, kit.TombstoneTTL.Milliseconds()}, g.audited(a)...)
		args = append(args, kit.FlagOf(claim.late), fieldOf(a.ID))
		_, err = g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteUndoScript, claim.keys, args...)
		return err
	})
}

// Retract takes back the voter's newest vote for the attempt's Item, where Poll.Retract allows it. The
// voter may then vote again. Retract ignores the attempt's Cost. The decision's Attempt has the weight that
// was taken back as its Cost. A retraction is final: Settle does nothing.
//
// It happens once per operation ID. After an error, call Retract again with the Attempt of the returned
// Decision. The decision's reason is one of
//
//   - core.ReasonOK: this call took the vote back or, if Replayed is set, an earlier call with the same ID
//     did
//   - core.ReasonGone: no such vote stands
//   - core.ReasonClosed: the poll is closed
//   - core.ReasonNotOpen: the poll does not exist
//   - core.ReasonConflict: the ID belongs to another operation, such as the vote itself
//
// In a poll without Retract the error is a core.ErrInvalid.
func (g *Guard) Retract(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "retract", func() (core.Decision, error) { return g.retract(ctx, a) })
}

func (g *Guard) retract(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a.Cost = 1
	a, err := g.prepare(a)
	d := core.Decision{Guard: g.Name(), Attempt: a.WithoutCall()}
	if err != nil {
		return d, err
	}
	poll, err := g.find(ctx, a.Resource)
	switch {
	case errors.Is(err, ErrNoPoll):
		d.Reason = core.ReasonNotOpen
		return d, nil
	case err != nil:
		return d, err
	case !poll.Retract:
		return d, fmt.Errorf("%w: votes of this poll cannot be retracted: its Poll.Retract is not set",
			core.ErrInvalid)
	}
	v := newVoter(a.Actor)
	defer g.duplicates.Drop(v.in(a.Resource))
	args := []any{
		v.record(), script.EncodeUpTo(script.MaxRecord, a.Item), schedule.Milli(poll.Closes), g.rememberID(a),
		a.Call(), fieldOf(a.ID),
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteRetractScript,
		g.operationKeys(a.Resource, a.ID), g.inPart(g.withNow(append(args, g.audited(a)...)))...)
	if err = lost(err); err != nil {
		return d, err
	}
	r := script.ReadReply(value, 5, 5)
	reason, replayed, cast, number, choices := r.Text(), r.Flag(), r.Number(), r.Number(), r.Texts()
	if r.Err != nil {
		return d, r.Err
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.Limit = int64(max(poll.PerVoter, 1))
	d.Remaining = max(d.Limit-cast, 0)
	d.SetClaim(&ballot{choices: decodeAll(choices)})
	if d.Allowed = d.Reason == core.ReasonOK; d.Allowed {
		d.Attempt.Cost = number
	}
	return d, nil
}

// votedBefore is a remembered duplicate.
type votedBefore struct {
	perVoter, perChoice int // of the poll at that time
	item                string
	limit, remaining    int64
	choices             []string
}

// remember returns a decision in the form to remember, and whether to remember it. It skips polls with
// Change, where a vote through another process may let the same attempt pass, and decisions that take much
// memory.
func remember(poll *Poll, d core.Decision) (votedBefore, bool) {
	length := len(d.Attempt.Item)
	for _, choice := range Choices(d) {
		length += len(choice)
	}
	if d.Reason != core.ReasonDuplicate || poll.Change || length > 512 {
		return votedBefore{}, false
	}
	return votedBefore{poll.PerVoter, poll.PerChoice, d.Attempt.Item, d.Limit, d.Remaining,
		slices.Clone(Choices(d))}, true
}

// answers reports whether an attempt at this moment is the same duplicate.
func (v votedBefore) answers(poll *Poll, a core.Attempt, now time.Time) bool {
	same := v.limit == 1 || v.item == a.Item // a voter with a single vote has none left for any choice
	return same && v.perVoter == poll.PerVoter && v.perChoice == poll.PerChoice && !poll.Change &&
		(poll.Closes.IsZero() || now.Before(poll.Closes)) && !now.Before(poll.Opens)
}

func (v votedBefore) fill(d *core.Decision) {
	d.Reason, d.Source = core.ReasonDuplicate, core.SourceRemembered
	d.Limit, d.Remaining = v.limit, v.remaining
	d.SetClaim(&ballot{choices: slices.Clone(v.choices)})
}

// decodeAll decodes choices in place.
func decodeAll(encoded []string) []string {
	for i, text := range encoded {
		encoded[i] = script.Decode(text)
	}
	return encoded
}
