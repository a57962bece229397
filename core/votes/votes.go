package votes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	voteScript        = core.NewScript("vote", lua.Vote, core.Idempotent)
	voteUndoScript    = core.NewScript("vote_undo", lua.VoteUndo, core.Idempotent)
	voteRetractScript = core.NewScript("vote_retract", lua.VoteRetract, core.Idempotent)
	voteVoidScript    = core.NewScript("vote_void", lua.VoteVoid, core.Idempotent)
	voteSpreadScript  = core.NewScript("vote_spread", lua.VoteSpread, core.Idempotent)
	voteRepairScript  = core.NewScript("vote_repair", lua.VoteRepair, core.Idempotent)
)

// Poll is how one poll goes. What is changed while it runs holds from then on; the votes that were cast before count.
type Poll struct {
	// PerVoter is how many votes each voter has in the poll, at most 1000. Zero means 1.
	PerVoter int
	// PerChoice is how many of them may be for one and the same choice, at most 1000. Zero means 1.
	PerChoice int
	// PerDay is how many of them a voter may cast on one Day, at most 1000. Zero: as many as in the poll.
	PerDay int
	// Day says which days there are, for PerDay. Nil means Daily(time.UTC).
	Day period.Period
	// Change lets a voter who has one vote change it by voting for another choice. With more votes than one a voter takes
	// back what he does not want any more: set Retract.
	Change bool
	// Retract lets a voter take votes back: see Votes.Retract.
	Retract bool
	// Choices are the items that may be voted for; another item is an ErrInvalidAttempt. Nil allows any item, so the
	// application has to check them: otherwise voters add choices of their own to the tally.
	Choices []string
	// Opens and Closes bound the poll, to the millisecond. Zero: it is open already, it never closes.
	Opens, Closes time.Time
}

// VoteOptions are what Votes may be told.
type Options struct {
	// Poll is how every poll of the guard goes, unless Find is set. With neither, each voter has one vote for any item.
	Poll Poll
	// Find returns how a poll goes, by its name, which is the attempt's Resource. It is called on each attempt, so it
	// should answer from memory. ErrNoPoll refuses the attempt as ReasonNotOpen; any other error fails the check.
	Find func(ctx context.Context, poll string) (Poll, error)
	// Keep is how long a poll's votes are kept after the last one, or after the poll closes, whichever is later; where nothing
	// closes the poll, it may be a little longer. Zero means 30 days. A poll that nobody votes in for longer than this, and that has no closing time, starts anew; of one with
	// a Spread, each part by itself.
	Keep time.Duration
	// Spread is in how many parts each poll is divided, by voter, at most 256, so that a poll that everybody votes in at once
	// uses all masters of a cluster: ten times their number makes the parts even. Zero means 1, which is right for all
	// but the hottest polls, and on a single server.
	//
	// A poll keeps the number that its first vote found, whatever is set later or in other processes, so nobody votes twice. With
	// more parts than one, an operation ID is known within its voter's part: another voter's use of it may go unnoticed.
	Spread int
	// Audit keeps a stream of all that happens to votes, which Audit reads and Void needs. It is kept as long as the poll, and
	// never trimmed: about 100 bytes a vote with a short voter, operation ID and origin. All processes that share a guard need the
	// same, or there are gaps.
	Audit bool
}

// ErrNoPoll is what VoteOptions.Find returns for a poll that does not exist.
var ErrNoPoll = core.NewError("votes: no such poll", core.ErrNotFound)

// Votes counts each voter as often as the poll allows: the Actor is the voter, the Resource the poll, the Item the choice,
// the Cost the weight.
//
// A voter's record and the tally change in the same script, so the sum of the tally is the sum of the records at all
// times. A vote is a claim: Settle with ok false takes it back.
//
// Redis keeps less than 20 bytes for each vote, whatever the length of the voter's ID, of which a record has 96 bits of the
// SHA-256. Two voters of one poll who have those in common would count as one: the second would hear ReasonDuplicate. The chance that
// this happens to any two of ten million voters is 6e-16. Beside that there are, once for each different ballot (the choice,
// the weight, and with Poll.PerDay the day), some 150 bytes, and for each operation ID about 200: for ten minutes (see
// WithRetryHorizon) where the guard made the ID, and as long as the poll where it came from outside.
type Guard struct {
	core.Base
	options    Options
	clock      func() time.Time // this process's: a first guess at the day; the server's decides
	divisions  divisions
	duplicates *core.Recall[string, votedBefore]
}

const (
	maxVotesEach = 1000
	maxSpread    = 256
)

// Votes makes a vote guard. It panics when the name is taken or not a name, the options make no sense, or the engine has no
// Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	e.NeedRedis("Votes", name)
	if err := options.Poll.check(); err != nil {
		panic(fmt.Sprintf("%v (guard %q)", err, name))
	}
	if options.Keep == 0 {
		options.Keep = 30 * 24 * time.Hour
	}
	if options.Keep < time.Second {
		panic(fmt.Sprintf("core: votes kept for %v are soon forgotten, and their voters vote again: "+
			"give Keep days (guard %q)", options.Keep, name))
	}
	if options.Spread < 0 || options.Spread > maxSpread {
		panic(fmt.Sprintf("core: polls spread over %d parts: give Spread 1 to %d, or 0 for one part (guard %q)",
			options.Spread, maxSpread, name))
	}
	options.Spread = max(options.Spread, 1)
	scripts := []*core.Script{
		voteScript, voteUndoScript, voteRetractScript, voteVoidScript, voteSpreadScript, voteRepairScript,
	}
	return &Guard{
		Base:       e.Register("votes", name, scripts...),
		options:    options,
		clock:      e.Now,
		divisions:  newDivisions(options.Keep),
		duplicates: newDuplicates(e.RefusalMemory()),
	}
}

func (p *Poll) check() error {
	for _, cap := range []struct {
		what  string
		votes int
	}{
		{"votes a voter", p.PerVoter}, {"votes a voter for one choice", p.PerChoice}, {"votes a voter on one day", p.PerDay},
	} {
		if cap.votes < 0 || cap.votes > maxVotesEach {
			return fmt.Errorf("core: %d %s: give 1 to %d, or 0 for the default", cap.votes, cap.what, maxVotesEach)
		}
	}
	if p.Change && p.PerVoter > 1 {
		return fmt.Errorf("core: a poll that votes are changed in, and %d votes a voter: which of them would a new one replace? "+
			"Use Retract in place of Change", p.PerVoter)
	}
	if err := schedule.Check(p.Opens, p.Closes); err != nil {
		return fmt.Errorf("core: a poll that %w", err)
	}
	return nil
}

var utcDays = period.Daily(time.UTC)

// day returns the day of a moment, as the scripts take it, or none where the poll has no cap by the day.
func (p *Poll) day(milli int64) (period.Span, error) {
	switch {
	case p.PerDay == 0:
		return period.Span{}, nil
	case p.Day == nil:
		return utcDays.At(milli)
	}
	return p.Day.At(milli)
}

// Traits implements Guard: a vote needs a poll, and is taken back when the request fails.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsResource: true, Outage: core.FailClosed}
}

// Check implements Guard: it casts a vote or, where the poll allows it, changes the voter's only one (ReasonChanged). Decision.Choices
// are the voter's votes that stand, also when refused as ReasonDuplicate or ReasonQuota. RetryAfter is the time until the
// poll opens, or until the day ends whose votes are used up.
//
// That a vote is a duplicate is remembered by the process for as long as WithRefusalMemory says, and answered to attempts that
// come without an operation ID, in polls that votes are not changed in: so long a vote that another process takes back is
// not seen.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.check(ctx, a) })
}

func (g *Guard) check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	unasked := a.ID == "" // madeID would not do: who asks again with a Decision's attempt has an ID that Redis may know
	a, err := a.PrepareClaim("the poll")
	d := core.Decision{Guard: g.Name(), Attempt: a}
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
	ctx, cancel := context.WithTimeout(ctx, g.Engine().Deadline()) // for all times that the server may be asked
	defer cancel()
	if err := g.cast(ctx, &d, v, &poll); err != nil {
		return d, err
	}
	if d.Allowed {
		g.duplicates.Drop(key)
	} else if before, worth := remember(&poll, d); worth {
		g.duplicates.Hear(asked, before, g.duplicates.Longest())
	}
	return d, nil
}

// cast asks Redis, again where the poll is divided otherwise or the server's clock is on another day than expected. It fills in the
// decision.
func (g *Guard) cast(ctx context.Context, d *core.Decision, v voter, poll *Poll) error {
	now := g.clock().UnixMilli()
	for range 4 {
		parts, err := g.parts(ctx, d.Attempt.Resource, poll)
		if err != nil {
			return err
		}
		today, err := poll.day(now)
		if err != nil {
			return err
		}
		number, err := g.castOnce(ctx, d, v, poll, parts, today)
		switch {
		case err != nil:
			return err
		case d.Reason == reasonSpread:
			g.divisions.differ(d.Attempt.Resource)
		case d.Reason == core.ReasonDayRolled:
			now = number
		default:
			return nil
		}
	}
	if d.Reason == reasonSpread {
		d.Reason = ""
		return errDivided
	}
	d.RetryAfter = time.Second
	return nil
}

// reasonSpread is what the scripts say when a poll is divided into another number of parts. Nobody else hears it.
const reasonSpread core.Reason = "spread"

var errDivided = errors.New("the parts of the poll do not agree how many there are: has Redis lost some of them?")

// castOnce calls the script once, and returns the number that its reply has.
func (g *Guard) castOnce(ctx context.Context, d *core.Decision, v voter, poll *Poll, parts int, day period.Span) (int64, error) {
	a := d.Attempt
	part := v.part(parts)
	perVoter := int64(max(poll.PerVoter, 1))
	args := []any{
		v.record(), core.EncodeUpTo(core.MaxRecord, a.Item), a.Cost, perVoter, max(poll.PerChoice, 1), core.FlagOf(poll.Change),
		poll.PerDay, day.Begins, day.Ends, schedule.Milli(poll.Opens), schedule.Milli(poll.Closes), g.keep(parts), g.rememberID(a), parts, a.Call(),
	}
	args = append(args, g.audited(a)...)
	if err := core.RoomToUndo(); err != nil {
		return 0, err
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), voteScript, g.partKeys(a.Resource, part, a.ID), append(args,
		g.Engine().ScriptNow(time.Millisecond))...)
	if err != nil {
		g.Engine().UndoLater(err, func(ctx context.Context) error { return g.undo(ctx, a, parts, core.TombstoneTTL) }) // observed
		d.Attempt = d.Attempt.WithoutCall()
		return 0, err
	}
	r := core.ReadReply(value, 5, 5)
	reason, replayed, cast, number, choices := r.Text(), r.Flag(), r.Number(), r.Number(), r.Texts()
	if r.Err != nil {
		return 0, r.Err
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.SetClaim(&ballot{parts: parts, choices: decodeAll(choices)})
	d.Allowed = d.Reason == core.ReasonOK || d.Reason == core.ReasonChanged
	d.Limit, d.Remaining = perVoter, max(perVoter-cast, 0)
	if d.Reason == core.ReasonNotOpen || d.Reason == core.ReasonQuota {
		d.RetryAfter = core.DurationOf(number, time.Millisecond)
	}
	return number, nil
}

// rememberID is how long the scripts keep the answer to an operation, in milliseconds; 0: as long as the votes.
func (g *Guard) rememberID(a core.Attempt) int64 {
	if a.MadeID() {
		return g.Engine().RetryHorizon().Milliseconds()
	}
	return 0
}

// audited is what the audit stream has of an attempt: who, under which operation ID, from where.
func (g *Guard) audited(a core.Attempt) []any {
	if !g.options.Audit {
		return []any{"", "", ""}
	}
	return []any{core.Encode(a.Actor), core.Encode(a.ID), core.Encode(a.Origin)}
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

// ballot is what Votes keeps with a decision.
type ballot struct {
	parts   int // in how many parts the poll was divided when the vote was cast
	choices []string
}

// Choices returns the voter's votes that stand in the poll, the newest last, after a Check or a Retract; nil where Redis was not asked.
func Choices(d core.Decision) []string {
	if b, ok := core.ClaimOf[*ballot](d); ok {
		return b.choices
	}
	return nil
}

// Settle implements Guard: core.Rollback takes the vote back, once. A vote that changed another restores it. A vote that does not stand
// any more, because its voter has retracted or changed it or it was voided, is left as it is.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if end.Commits() || !d.Allowed {
		return nil
	}
	cast, err := core.Claimed[*ballot](&g.Base, d)
	if err == nil && cast.parts == 0 {
		return nil // of Retract, which has taken nothing
	}
	if err != nil {
		return g.Observe(ctx, "settle", time.Now(), d, err)
	}
	return g.undo(ctx, d.Attempt, cast.parts, 0)
}

// undo takes back the vote that the attempt's own call of Check was told of, in a poll of so many parts. If that call
// has not come yet, it shall not count when it comes within the time given.
func (g *Guard) undo(ctx context.Context, a core.Attempt, parts int, void time.Duration) error {
	v := newVoter(a.Actor)
	defer g.duplicates.Drop(v.in(a.Resource))
	return g.Call(ctx, "settle", a, func() (err error) {
		args := append([]any{v.record(), a.Call(), void.Milliseconds()}, g.audited(a)...)
		_, err = g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteUndoScript, g.partKeys(a.Resource, v.part(parts), a.ID), args...)
		return err
	})
}

// Retract takes the voter's newest vote for a choice (the attempt's Item) back, where Poll.Retract allows it: the tally and the
// voter's record have one vote less, and the voter may vote again. The attempt's Cost does not matter; the decision's has the weight
// that was taken back.
//
// It does so once for each operation ID: ask again with the Decision's Attempt when the answer did not come. The reasons are ReasonOK
// (replayed, when an earlier call with this ID did it), ReasonGone when no such vote stands, ReasonClosed, ReasonNotOpen when
// there is no such poll, and ReasonConflict when the ID is that of another operation, such as the vote's own. In a
// poll without Retract it is an ErrInvalidAttempt. A retraction stays: Settle does nothing.
func (g *Guard) Retract(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "retract", func() (core.Decision, error) { return g.retract(ctx, a) })
}

func (g *Guard) retract(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a.Cost = 1
	a, err := a.PrepareClaim("the poll")
	d := core.Decision{Guard: g.Name(), Attempt: a}
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
		return d, fmt.Errorf("%w: votes of this poll can not be retracted: its Poll.Retract is not set", core.ErrInvalid)
	}
	v := newVoter(a.Actor)
	defer g.duplicates.Drop(v.in(a.Resource))
	for range 3 {
		parts, err := g.parts(ctx, a.Resource, &poll)
		if err != nil {
			return d, err
		}
		args := []any{
			v.record(), core.EncodeUpTo(core.MaxRecord, a.Item), schedule.Milli(poll.Closes), g.rememberID(a), parts, a.Call(),
		}
		args = append(args, g.audited(a)...)
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteRetractScript, g.partKeys(a.Resource, v.part(parts), a.ID),
			append(args, g.Engine().ScriptNow(time.Millisecond))...)
		if err != nil {
			return d, err
		}
		r := core.ReadReply(value, 5, 5)
		reason, replayed, cast, number, choices := r.Text(), r.Flag(), r.Number(), r.Number(), r.Texts()
		if r.Err != nil {
			return d, r.Err
		}
		if core.Reason(reason) == reasonSpread {
			g.divisions.differ(a.Resource)
			continue
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
	return d, errDivided
}

// votedBefore is what is remembered of a duplicate.
type votedBefore struct {
	perVoter, perChoice int // as the poll was then
	item                string
	limit, remaining    int64
	choices             []string
}

// remember returns what a refusal is remembered as, and whether it is: not where a vote for another choice, by another process, would
// let the same attempt pass, and not what takes much memory.
func remember(poll *Poll, d core.Decision) (votedBefore, bool) {
	length := len(d.Attempt.Item)
	for _, choice := range Choices(d) {
		length += len(choice)
	}
	if d.Reason != core.ReasonDuplicate || poll.Change || length > 512 {
		return votedBefore{}, false
	}
	return votedBefore{poll.PerVoter, poll.PerChoice, d.Attempt.Item, d.Limit, d.Remaining, slices.Clone(Choices(d))}, true
}

// answers reports whether an attempt now is the same duplicate.
func (v votedBefore) answers(poll *Poll, a core.Attempt, now time.Time) bool {
	same := v.limit == 1 || v.item == a.Item // who has one vote has none for any choice
	return same && v.perVoter == poll.PerVoter && v.perChoice == poll.PerChoice && !poll.Change &&
		(poll.Closes.IsZero() || now.Before(poll.Closes)) && !now.Before(poll.Opens)
}

func (v votedBefore) fill(d *core.Decision) {
	d.Reason, d.Source = core.ReasonDuplicate, core.SourceRemembered
	d.Limit, d.Remaining = v.limit, v.remaining
	d.SetClaim(&ballot{choices: slices.Clone(v.choices)})
}

// decodeAll turns encoded choices back into what they were.
func decodeAll(encoded []string) []string {
	for i, text := range encoded {
		encoded[i] = core.Decode(text)
	}
	return encoded
}
