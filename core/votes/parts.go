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

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/redis/go-redis/v9"
)

// voter is what the records have of a voter: of the SHA-256 of the ID the first 12 bytes, and the last 8 decide the part of the
// poll.
type voter [sha256.Size]byte

// voterBytes is how much of it a record has.
const voterBytes = 12

func newVoter(actor string) voter { return sha256.Sum256([]byte(actor)) }

// encodedVoter is newVoter of an actor as the audit stream has it.
func encodedVoter(encoded string) (v voter) {
	if sum, long := strings.CutPrefix(encoded, "#"); long {
		if hash, err := base64.RawURLEncoding.DecodeString(sum); err == nil && len(hash) == len(v) {
			return voter(hash)
		}
	}
	return newVoter(core.Decode(encoded))
}

func (v voter) record() string { return string(v[:voterBytes]) }

// part is the voter's part of a poll. While nobody knows how many there are it is the first, which will know.
func (v voter) part(parts int) int {
	if parts == 0 {
		return 0
	}
	return int(binary.BigEndian.Uint64(v[len(v)-8:]) % uint64(parts))
}

// in is a key for what this process remembers of the voter in a poll.
func (v voter) in(poll string) string { return core.Encode(poll) + "|" + string(v[:]) }

// partTag is the hash tag of one part of a poll. The first part has the poll's own, so a poll of one part has no other.
func partTag(poll string, part int) string {
	if part == 0 {
		return core.Encode(poll)
	}
	return core.JoinTag(core.Encode(poll), strconv.Itoa(part))
}

// partKeys are the keys of an operation in one part of a poll, in the order of the scripts' KEYS.
func (g *Guard) partKeys(poll string, part int, id string) []string {
	t := partTag(poll, part)
	keys := append(g.recordKeys(poll, part), g.Key(t, "op", core.Encode(id)))
	if g.options.Audit {
		keys = append(keys, g.auditKey(poll, part))
	}
	return keys
}

// recordKeys are those of partKeys that do not depend on the operation: the voters, the tally, the book.
func (g *Guard) recordKeys(poll string, part int) []string {
	t := partTag(poll, part)
	return []string{g.Key(t, "voters"), g.Key(t, "tally"), g.Key(t, "book")}
}

func (g *Guard) auditKey(poll string, part int) string {
	return g.Key(partTag(poll, part), "audit")
}

// divisions is what this process remembers of how many parts the polls have. The number is stored beside the first part,
// and stays as long as the poll does. A number of 0 is no answer: the poll has another number than was expected.
type divisions struct {
	*core.Recall[string, int]
}

// dividedPolls is of how many polls a process remembers it.
const dividedPolls = 1 << 12

// newDivisions makes a memory for polls that are kept for so long. Where a number is forgotten too late, a poll could
// have started anew with another, so it is never remembered for longer than polls are kept.
func newDivisions(keep time.Duration) divisions {
	return divisions{core.NewRecall[string, int](dividedPolls, min(time.Minute, keep))}
}

func (m divisions) find(poll string, now time.Time) (parts int, found bool) {
	parts, found = m.Find(poll, now)
	return parts, found && parts != 0
}

func (m divisions) hear(asked core.Asked[string], parts int) { m.Hear(asked, parts, m.Longest()) }

// differ takes note that a poll has another number of parts than expected: it has to be asked for.
func (m divisions) differ(poll string) {
	m.Update(poll, func(int, bool) (int, bool) { return 0, true })
}

// differs reports whether a poll may have another number of parts than a guess would be.
func (m divisions) differs(poll string) bool {
	_, known := m.Last(poll)
	return known
}

// keep is how long the scripts keep a poll of so many parts after its last vote: for as long as anybody may remember their number,
// longer than the options say.
func (g *Guard) keep(parts int) int64 {
	keep := g.options.Keep
	if parts > 1 {
		keep += g.divisions.Longest()
	}
	return keep.Milliseconds()
}

// parts returns into how many parts a poll is divided. Who would have one part need not ask: the first part knows better, and
// every vote tells which number it believes in. It is 0 where nobody has decided it, and nobody can: the poll is not open.
func (g *Guard) parts(ctx context.Context, poll string, p *Poll) (int, error) {
	now := g.Engine().Now()
	if parts, found := g.divisions.find(poll, now); found {
		return parts, nil
	}
	if g.options.Spread == 1 && !g.divisions.differs(poll) {
		return 1, nil
	}
	asked := g.divisions.Ask(poll, now)
	keys := g.recordKeys(poll, 0)
	if g.options.Audit {
		keys = append(keys, g.auditKey(poll, 0))
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteSpreadScript, keys,
		g.options.Spread, schedule.Milli(p.Opens), schedule.Milli(p.Closes), g.keep(maxSpread), g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return 0, err
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

// storedParts returns into how many parts a poll is divided, and 1 for one that nobody has voted in. It writes nothing.
func (g *Guard) storedParts(ctx context.Context, poll string) (int, error) {
	now := g.Engine().Now()
	if parts, found := g.divisions.find(poll, now); found {
		return parts, nil
	}
	asked := g.divisions.Ask(poll, now)
	stored, err := core.Query(ctx, g.Engine(), redis.NewStringCmd(ctx, "hget", g.recordKeys(poll, 0)[2], ":parts"))
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

// eachPart calls f for so many parts of a poll, several at a time, and returns the first error.
func eachPart(ctx context.Context, parts int, f func(ctx context.Context, part int) error) error {
	if parts == 1 {
		return f(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, 16) // calls at once: more than one process should not take of everybody's connections
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
