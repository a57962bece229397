package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	voteScript     = NewScript("vote", lua.Vote, Replayable)
	voteUndoScript = NewScript("vote_undo", lua.VoteUndo, Replayable)
)

// Poll is how one poll goes.
type Poll struct {
	// PerVoter is how many different choices each voter may make, at most 1000. Zero means 1.
	PerVoter int
	// Choices are the items that may be voted for; another item is an ErrInvalidAttempt. Nil allows any item, so the
	// application has to check them: otherwise voters add choices of their own to the tally.
	Choices []string
	// Opens and Closes bound the poll, to the millisecond. Zero: it is open already, it never closes.
	Opens, Closes time.Time
}

// VoteOptions are what Votes may be told.
type VoteOptions struct {
	// Poll is how every poll of the guard goes, unless Find is set. With neither, each voter has one vote for any item.
	Poll Poll
	// Find returns how a poll goes, by its name, which is the attempt's Resource. It is called on each attempt, so it
	// should answer from memory. ErrNoPoll refuses the attempt as ReasonNotOpen; any other error fails the check.
	Find func(ctx context.Context, poll string) (Poll, error)
	// Keep is how long a poll's votes are kept after the last one, or after the poll closes, whichever is later. Zero
	// means 30 days. A poll that nobody votes in for longer than this, and that has no closing time, starts anew.
	Keep time.Duration
}

// ErrNoPoll is what VoteOptions.Find returns for a poll that does not exist.
var ErrNoPoll = errors.New("core: no such poll")

// Votes counts each voter once: the Actor is the voter, the Resource the poll, the Item the choice, the Cost the weight.
//
// A voter's record and the tally change in the same script, so the sum of the tally is the sum of the records at all
// times. A vote is a claim: Settle with ok false takes it back.
type Votes struct {
	guard
	options VoteOptions
}

// Votes makes a vote guard. It panics when the name is taken or not a name, the options make no sense, or the engine has no
// Redis.
func (e *Engine) Votes(name string, options VoteOptions) *Votes {
	e.needRedis("Votes", name)
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
	return &Votes{guard: e.register("votes", name, voteScript, voteUndoScript), options: options}
}

func (p *Poll) check() error {
	if p.PerVoter < 0 || p.PerVoter > 1000 {
		return fmt.Errorf("core: %d choices a voter: give 1 to 1000", p.PerVoter)
	}
	if err := checkTimes(p.Opens, p.Closes); err != nil {
		return fmt.Errorf("core: a poll that %w", err)
	}
	return nil
}

// checkTimes finds times at which nothing can open and close. Scripts count milliseconds from 1970 on, and know 0 as no time.
func checkTimes(opens, closes time.Time) error {
	for what, at := range map[string]time.Time{"opens": opens, "closes": closes} {
		if !at.IsZero() && !countable(at) {
			return fmt.Errorf("%s at %v: give it a time from 1970 to 2200, or the zero Time for none", what, at)
		}
	}
	if !opens.IsZero() && !closes.IsZero() && !opens.Before(closes) {
		return fmt.Errorf("closes %v and opens %v is never open", closes, opens)
	}
	return nil
}

// countable reports whether scripts can count with a time.
func countable(t time.Time) bool { return t.Unix() >= 1 && t.Year() <= 2200 }

// Traits implements Guard: a vote needs a poll, and is taken back when the request fails.
func (g *Votes) Traits() Traits { return Traits{NeedsResource: true, Outage: OutageClosed} }

// Check implements Guard: it casts a vote. A refusal as ReasonDuplicate or ReasonQuota has the choices that stand.
func (g *Votes) Check(ctx context.Context, a Attempt) (Decision, error) {
	begun := time.Now()
	d, err := g.check(ctx, a)
	return d, g.observe(ctx, "check", begun, d, err)
}

func (g *Votes) check(ctx context.Context, a Attempt) (Decision, error) {
	a, err := a.prepareClaim("the poll")
	d := Decision{Guard: g.name, Attempt: a}
	if err != nil {
		return d, err
	}
	poll, err := g.find(ctx, a.Resource)
	if errors.Is(err, ErrNoPoll) {
		d.Reason = ReasonNotOpen
		return d, nil
	}
	if err != nil {
		return d, err
	}
	if poll.Choices != nil && !slices.Contains(poll.Choices, a.Item) {
		return d, fmt.Errorf("%w: %.100q is not a choice of this poll", ErrInvalidAttempt, a.Item)
	}

	perVoter := int64(max(poll.PerVoter, 1))
	remember := int64(0)
	if a.madeID {
		remember = g.engine.retryHorizon.Milliseconds()
	}
	value, err := g.engine.run(ctx, g.engine.deadline, voteScript, g.voteKeys(a),
		encode(a.Actor), encodeUpTo(maxRecord, a.Item), a.Cost, perVoter, unixMilli(poll.Opens), unixMilli(poll.Closes),
		g.options.Keep.Milliseconds(), remember, a.call, g.engine.now(time.Millisecond))
	if err != nil {
		g.engine.undoLater(err, func(ctx context.Context) error { return g.undo(ctx, a, voidFor) }) // observed
		d.Attempt.call = ""
		return d, err
	}
	r := readReply(value, 5, 5)
	reason, replayed, cast := r.text(), r.flag(), r.number()
	retry, choices := r.duration(time.Millisecond), r.text()
	if r.err != nil {
		return d, r.err
	}
	d.Reason, d.Replayed, d.Source = Reason(reason), replayed, SourceRedis
	d.Allowed = d.Reason == ReasonOK
	d.Limit, d.Remaining, d.RetryAfter = perVoter, max(perVoter-cast, 0), retry
	d.Choices = parseChoices(choices)
	return d, nil
}

func (g *Votes) find(ctx context.Context, name string) (Poll, error) {
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

// Settle implements Guard: not ok takes the vote back, once.
func (g *Votes) Settle(ctx context.Context, d Decision, ok bool) error {
	if ok || !d.Allowed {
		return nil
	}
	return g.undo(ctx, d.Attempt, 0)
}

// voidFor is how long a call that was given up does not count when it comes after its undo.
const voidFor = time.Minute

// undo takes back the vote that the attempt's own call of Check was told of. If that call has not come yet, it shall not count
// when it comes within the time given.
func (g *Votes) undo(ctx context.Context, a Attempt, void time.Duration) error {
	begun := time.Now()
	_, err := g.engine.run(ctx, g.engine.settleLimit(), voteUndoScript, g.voteKeys(a),
		encode(a.Actor), encodeUpTo(maxRecord, a.Item), a.Cost, a.call, void.Milliseconds())
	return g.observe(ctx, "settle", begun, Decision{Guard: g.name, Attempt: a}, err)
}

// Tally returns the sum of weights of each choice: those that have any, and those that the poll names. A very long choice, 1024 bytes
// once encoded, that the poll does not name has the name by which it is kept: '#' and its SHA-256 in unpadded base64url.
// An unknown poll has an empty tally.
func (g *Votes) Tally(ctx context.Context, poll string) (map[string]int64, error) {
	begun := time.Now()
	tally, err := g.tally(ctx, poll)
	return tally, g.observe(ctx, "tally", begun, Decision{Guard: g.name}, err)
}

func (g *Votes) tally(ctx context.Context, poll string) (map[string]int64, error) {
	sums, err := query(ctx, g.engine, redis.NewMapStringStringCmd(ctx, "hgetall", g.keys.key(encode(poll), "tally")))
	if err != nil {
		return nil, err
	}
	found, err := g.find(ctx, poll)
	if err != nil && !errors.Is(err, ErrNoPoll) {
		return nil, err
	}
	tally := make(map[string]int64, len(sums))
	named := map[string]string{}
	for _, choice := range found.Choices {
		tally[choice] = 0
		named[encodeUpTo(maxRecord, choice)] = choice
	}
	for kept, sum := range sums {
		n, err := strconv.ParseInt(sum, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("tally of %.100q: %w", poll, err)
		}
		choice, ok := named[kept]
		if !ok {
			choice = decode(kept)
		}
		tally[choice] += n
	}
	return tally, nil
}

func (g *Votes) voteKeys(a Attempt) []string {
	poll := encode(a.Resource)
	return []string{g.keys.key(poll, "voters"), g.keys.key(poll, "tally"), g.keys.key(poll, "op", encode(a.ID))}
}

// parseChoices reads a voter's record: "choice=weight", separated by spaces.
func parseChoices(record string) []string {
	var choices []string
	for _, one := range strings.Fields(record) {
		choice, _, _ := strings.Cut(one, "=")
		choices = append(choices, decode(choice))
	}
	return choices
}

// unixMilli is a time as scripts take it: 0 where there is none.
func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
