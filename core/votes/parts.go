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
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
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
	return newVoter(core.Decode(encoded))
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
func (v voter) in(poll string) string { return core.Encode(poll) + "|" + string(v[:]) }

// partTag returns the hash tag of a part. The first part has the poll's own tag, so a poll of one part has no
// other.
func partTag(poll string, part int) string {
	if part == 0 {
		return core.Encode(poll)
	}
	return core.JoinTag(core.Encode(poll), strconv.Itoa(part))
}

// partKeys returns the keys of an operation in one part of a poll, in the order of the scripts' KEYS.
func (g *Guard) partKeys(poll string, part int, id string) []string {
	t := partTag(poll, part)
	keys := append(g.recordKeys(poll, part), g.Key(t, "op", core.Encode(id)))
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

// wholeKeys returns the part's keys that do not depend on the operation, with the audit stream if there is one.
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
	*core.Recall[string, int]
}

// dividedPolls bounds the number of polls in divisions.
const dividedPolls = 1 << 12

// newDivisions makes a memory for polls with the given Options.Keep. It never remembers a number for longer
// than that, because a poll may then have started again with another number.
func newDivisions(keep time.Duration) divisions {
	return divisions{core.NewRecall[string, int](dividedPolls, min(time.Minute, keep))}
}

func (m divisions) find(poll string, now time.Time) (parts int, found bool) {
	parts, found = m.Find(poll, now)
	return parts, found && parts != 0
}

func (m divisions) hear(asked core.Asked[string], parts int) { m.Hear(asked, parts, m.Longest()) }

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
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteSpreadScript, g.wholeKeys(poll, 0),
		g.options.Spread, schedule.Milli(p.Opens), schedule.Milli(p.Closes), g.keep(maxSpread),
		g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return 0, lost(err)
	}
	r := core.ReadReply(value, 2, 2)
	parts, stored := r.Number(), r.Flag()
	if err := checkParts(parts, r.Err); err != nil {
		return 0, err
	}
	if !stored {
		return 0, nil
	}
	g.divisions.hear(asked, int(parts))
	return int(parts), nil
}

// storedParts returns the number of parts of a poll, or 1 for a poll without votes. It writes nothing.
func (g *Guard) storedParts(ctx context.Context, poll string) (int, error) {
	now := g.Engine().Now()
	if parts, found := g.divisions.find(poll, now); found {
		return parts, nil
	}
	asked := g.divisions.Ask(poll, now)
	stored, err := core.Query(ctx, g.Engine(),
		redis.NewStringCmd(ctx, "hget", g.recordKeys(poll, 0)[2], ":parts"))
	if errors.Is(err, redis.Nil) {
		return 1, nil
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
