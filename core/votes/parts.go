package votes

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
)

// voter is the SHA-256 of a voter's ID. A record holds its first 12 bytes; its last 8 determine the part of
// the poll.
type voter [sha256.Size]byte

// voterBytes is the length of the prefix in a record.
const voterBytes = 12

func newVoter(actor string) voter { return sha256.Sum256([]byte(actor)) }

// encodedVoter is newVoter for an actor in the encoded form of the audit stream.
func encodedVoter(encoded string) (v voter) {
	if sum, long := strings.CutPrefix(encoded, "#"); long {
		if hash, err := base64.RawURLEncoding.DecodeString(sum); err == nil && len(hash) == len(v) {
			return voter(hash)
		}
	}
	return newVoter(script.Decode(encoded))
}

func (v voter) record() string { return string(v[:voterBytes]) }

// part returns the voter's part of a poll. An unknown number of parts, 0, gives the first part, which keeps
// the number.
func (v voter) part(parts int) int {
	if parts == 0 {
		return 0
	}
	return int(binary.BigEndian.Uint64(v[len(v)-8:]) % uint64(parts))
}

// in returns the key of the voter's duplicates in this process's memory.
func (v voter) in(poll string) string { return script.Encode(poll) + "|" + string(v[:]) }

// partTag returns the hash tag of a part. The first part has the poll's own tag, so a poll of one part has no
// other.
func partTag(poll string, part int) string {
	if part == 0 {
		return script.Encode(poll)
	}
	return script.JoinTag(script.Encode(poll), strconv.Itoa(part))
}

// partKeys returns the keys of an operation in one part of a poll, in the order of the scripts' KEYS.
func (g *Guard) partKeys(poll string, part int, id string) []string {
	t := partTag(poll, part)
	bucket, _ := operationOf(id)
	keys := append(g.recordKeys(poll, part), g.Key(t, "op", bucket))
	if g.options.Audit {
		keys = append(keys, g.auditKey(poll, part))
	}
	return keys
}

// recordKeys returns the part's keys that do not depend on the operation: the voters, the tally, the book.
func (g *Guard) recordKeys(poll string, part int) []string {
	t := partTag(poll, part)
	return []string{g.Key(t, "voters"), g.Key(t, "tally"), g.Key(t, "book")}
}

// wholeKeys returns the part's keys that do not depend on the operation, with the audit stream if any.
func (g *Guard) wholeKeys(poll string, part int) []string {
	keys := g.recordKeys(poll, part)
	if g.options.Audit {
		keys = append(keys, g.auditKey(poll, part))
	}
	return keys
}

func (g *Guard) auditKey(poll string, part int) string {
	return g.Key(partTag(poll, part), "audit")
}

// divisions remembers the number of parts per poll. Redis stores the number with the first part, for as long
// as the poll. A remembered 0 means that the poll has another number than expected, so it must be read.
type divisions struct {
	*kit.Recall[string, int]
}

// dividedPolls bounds the number of polls in divisions.
const dividedPolls = 1 << 12

// newDivisions makes a memory for polls with the given Options.Keep. It never remembers a number for longer
// than that, because a poll may then have started again with another number.
func newDivisions(keep time.Duration) divisions {
	return divisions{kit.NewRecall[string, int](dividedPolls, min(time.Minute, keep))}
}

func (m divisions) find(poll string, now time.Time) (parts int, found bool) {
	parts, found = m.Find(poll, now)
	return parts, found && parts != 0
}

func (m divisions) hear(asked kit.Asked[string], parts int) { m.Hear(asked, parts, m.Longest()) }

// differ notes that a poll has another number of parts than expected, so the next operation reads it.
func (m divisions) differ(poll string) {
	m.Update(poll, func(int, bool) (int, bool) { return 0, true })
}

// differs reports whether a poll may have another number of parts than Options.Spread.
func (m divisions) differs(poll string) bool {
	_, known := m.Last(poll)
	return known
}

// keep returns for how many milliseconds the scripts keep a poll after its last vote. A poll of several parts
// stays longer than Options.Keep, by the time for which any process may remember the number of its parts.
func (g *Guard) keep(parts int) int64 {
	keep := g.options.Keep
	if parts > 1 {
		keep += g.divisions.Longest()
	}
	return keep.Milliseconds()
}

// parts returns the number of parts of a poll, or 0 when the poll is not open and nobody has fixed a number
// yet. With a Spread of 1 it need not ask Redis: every vote sends the number that it assumes, and the first
// part corrects it.
func (g *Guard) parts(ctx context.Context, poll string, p *Poll) (int, error) {
	now := g.Engine().Now()
	if parts, found := g.divisions.find(poll, now); found {
		return parts, nil
	}
	if g.options.Spread == 1 && !g.divisions.differs(poll) {
		return 1, nil
	}
	asked := g.divisions.Ask(poll, now)
	parts, state, err := g.askSpread(ctx, poll, 0, g.options.Spread, p, false)
	if err == nil && state == spreadUndecided {
		parts, state, err = g.decideSpread(ctx, poll, p)
	}
	if err != nil || state != spreadKnown {
		return 0, err
	}
	g.divisions.hear(asked, parts)
	return parts, nil
}

// The states of a part that the script vote_spread tells.
const (
	spreadClosed    = 0 // the poll is not open, and nothing is known
	spreadKnown     = 1
	spreadUndecided = 2 // the poll is open, and nothing is known
)

// askSpread asks one part of a poll in how many parts the poll is divided. With decide it lets the part begin
// in a poll of so many parts.
func (g *Guard) askSpread(
	ctx context.Context, poll string, part, parts int, p *Poll, decide bool,
) (stored int, state int64, err error) {
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteSpreadScript,
		g.wholeKeys(poll, part), parts,
		schedule.Milli(p.Opens), schedule.Milli(p.Closes), g.keep(maxSpread), kit.FlagOf(decide),
		g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return 0, 0, lost(err)
	}
	r := script.ReadReply(value, 2, 2)
	number, state := r.Number(), r.Number()
	return int(number), state, checkParts(number, r.Err)
}

// decideSpread decides the number of parts of a poll whose first part is not there, unless other parts are:
// then the first one is lost.
func (g *Guard) decideSpread(ctx context.Context, poll string, p *Poll) (parts int, state int64, err error) {
	remains, err := g.hasOtherParts(ctx, poll)
	if err != nil {
		return 0, 0, err
	}
	parts, state, err = g.askSpread(ctx, poll, 0, g.options.Spread, p, !remains)
	if err == nil && remains && state == spreadUndecided { // nobody has decided since: a part begins after it
		err = errFirstPart
	}
	return parts, state, err
}

// hasOtherParts reports whether any part but the first one is there, of as many as Options.Spread says.
func (g *Guard) hasOtherParts(ctx context.Context, poll string) (bool, error) {
	var found atomic.Bool
	err := eachPart(ctx, g.options.Spread, func(ctx context.Context, part int) error {
		if part == 0 {
			return nil
		}
		n, err := script.Query(ctx, g.Engine().Runner, redis.NewIntCmd(ctx, "exists", g.recordKeys(poll, part)[2]))
		if n > 0 {
			found.Store(true)
		}
		return err
	})
	return found.Load(), err
}

// partState is what the first part of a poll knows of another one: see the script vote_part.
type partState string

const (
	partKnown partState = "known"
	partStale partState = "stale"
	partNone  partState = "none"
	partRoot  partState = "root"
)

// partState asks the first part of a poll about another part, or tells it that the part is there.
func (g *Guard) partState(
	ctx context.Context, poll string, part int, p *Poll, begun bool,
) (partState, error) {
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), votePartScript,
		g.recordKeys(poll, 0)[2:], part, schedule.Milli(p.Closes), g.keep(maxSpread), kit.FlagOf(begun),
		g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return "", err
	}
	r := script.ReadReply(value, 1, 1)
	return partState(r.Text()), r.Err
}

// join lets a part of a poll begin before its first vote, and tells the first part so. From then on a part
// that is not there is lost, until the time that the first part has noted. The order lets a process die at
// any moment: the first part knows no part that never was. A process asks once per minute and part.
func (g *Guard) join(ctx context.Context, poll string, p *Poll, part, parts int) error {
	key, now := partTag(poll, part), g.Engine().Now()
	if _, found := g.joined.Find(key, now); found || part == 0 || parts == 0 {
		return nil
	}
	asked := g.joined.Ask(key, now)
	state, err := g.partState(ctx, poll, part, p, false)
	switch {
	case err != nil:
		return err
	case state == partRoot:
		g.divisions.differ(poll)
		return nil // the vote finds out the same
	case state != partKnown:
		_, spread, err := g.askSpread(ctx, poll, part, parts, p, state == partNone)
		switch {
		case err != nil:
			return err
		case spread == spreadUndecided:
			return errPart(part)
		case spread == spreadClosed:
			return nil
		}
		if _, err := g.partState(ctx, poll, part, p, true); err != nil {
			return err
		}
	}
	g.joined.Hear(asked, true, g.joined.Longest())
	return nil
}

// storedParts returns the number of parts of a poll, or 1 for a poll without votes. It writes nothing.
func (g *Guard) storedParts(ctx context.Context, poll string) (int, error) {
	now := g.Engine().Now()
	if parts, found := g.divisions.find(poll, now); found {
		return parts, nil
	}
	asked := g.divisions.Ask(poll, now)
	stored, err := script.Query(ctx, g.Engine().Runner,
		redis.NewStringCmd(ctx, "hget", g.recordKeys(poll, 0)[2], ":parts"))
	if errors.Is(err, redis.Nil) {
		return 1, g.checkFirstPart(ctx, poll)
	}
	var parts int64
	if err == nil {
		parts, err = strconv.ParseInt(stored, 10, 64)
	}
	if err := checkParts(parts, err); err != nil {
		return 0, err
	}
	if parts > 1 {
		g.divisions.hear(asked, int(parts))
	}
	return int(parts), nil
}

// checkPart returns an ErrLost when a part that was not there has begun long ago. It reports whether the part
// is there by now.
func (g *Guard) checkPart(ctx context.Context, poll string, part int) (begun bool, err error) {
	if part == 0 {
		return false, nil
	}
	state, err := g.partState(ctx, poll, part, &Poll{}, false)
	if err != nil || state != partKnown && state != partStale {
		return false, err
	}
	n, err := script.Query(ctx, g.Engine().Runner, redis.NewIntCmd(ctx, "exists", g.recordKeys(poll, part)[2]))
	if err == nil && n == 0 {
		err = errPart(part)
	}
	return n > 0, err
}

// checkFirstPart returns an ErrLost when the first part of a poll is not there, but another one is.
func (g *Guard) checkFirstPart(ctx context.Context, poll string) error {
	remains, err := g.hasOtherParts(ctx, poll)
	if err != nil || !remains {
		return err
	}
	n, err := script.Query(ctx, g.Engine().Runner, redis.NewIntCmd(ctx, "exists", g.recordKeys(poll, 0)[2]))
	if err == nil && n == 0 { // else the poll has begun meanwhile
		err = errFirstPart
	}
	return err
}

func checkParts(parts int64, err error) error {
	if err == nil && (parts < 1 || parts > maxSpread) {
		err = errDivided
	}
	return err
}

// eachPart calls f for every part of a poll, up to 16 at a time, and returns the first error.
func eachPart(ctx context.Context, parts int, f func(ctx context.Context, part int) error) error {
	if parts == 1 {
		return f(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, 16) // one process should not take more of the shared connections
	var all sync.WaitGroup
	for part := range parts {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			if err := f(ctx, part); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
