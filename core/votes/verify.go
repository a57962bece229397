package votes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Verification compares the records of a poll with its tally. They agree unless something else changed the
// keys, or Redis lost data.
type Verification struct {
	// Poll is the name of the poll.
	Poll string `json:"poll"`
	// Records is the sum of the weights per choice by the records. It omits choices without votes.
	Records map[string]int64 `json:"records"`
	// Tally is the sum of the weights per choice by the tally.
	Tally map[string]int64 `json:"tally"`
	// Votes is the number of votes that stand.
	Votes int64 `json:"votes"`
	// Voided is the number of voided votes that still count as used: see [Guard.Void].
	Voided int64 `json:"voided"`
	// Voters is the number of voters who cast the votes in Votes and Voided.
	Voters int64 `json:"voters"`
	// Damaged is the number of records that are missing, or that are where no script finds them. Their voters
	// may vote again.
	Damaged int64 `json:"damaged"`
	// Lost names what Redis has lost: "tally" (or a choice of it), "audit", or "book". [Guard.Repair] makes the
	// tally anew and lets the audit stream begin anew.
	Lost []string `json:"lost,omitempty"`
	// Moving reports that the poll changed during every count, so the figures are of different moments.
	Moving bool `json:"moving,omitempty"`
}

// recordsAtOnce is roughly how many fields of the book one call reads, so that no call blocks Redis for long.
const recordsAtOnce = 1000

// Consistent reports whether records and tally were counted at one moment and agree.
func (r Verification) Consistent() bool { return !r.Moving && len(r.differences()) == 0 }

// differences describes where records and tally disagree, one difference per element.
func (r Verification) differences() []string {
	var found []string
	for _, choice := range r.choices() {
		if got, want := r.Tally[choice], r.Records[choice]; got != want {
			found = append(found, fmt.Sprintf("%.100q: the tally has %d, the records have %d (%+d)", choice, got, want,
				got-want))
		}
	}
	for _, what := range r.Lost {
		found = append(found, "lost: "+what)
	}
	if r.Damaged != 0 {
		found = append(found, fmt.Sprintf("damaged records: %d", r.Damaged))
	}
	return found
}

// choices returns all choices in alphabetical order.
func (r Verification) choices() []string {
	all := maps.Clone(r.Records)
	maps.Copy(all, r.Tally)
	return slices.Sorted(maps.Keys(all))
}

// String returns a table of the choices for an operator, followed by the differences between records and
// tally.
func (r Verification) String() string {
	verdict := "consistent"
	if r.Moving {
		verdict = "moving: the figures are of different moments; verify again when the poll is quiet"
	} else if !r.Consistent() {
		verdict = "NOT consistent"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "poll %q: %s\n%-32s %16s %16s\n", r.Poll, verdict, "", "records", "tally")
	for _, choice := range r.choices() {
		fmt.Fprintf(&b, "%-32s %16d %16d\n", fmt.Sprintf("%.30q", choice), r.Records[choice], r.Tally[choice])
	}
	fmt.Fprintf(&b, "votes: %d, voided: %d, voters: %d\n", r.Votes, r.Voided, r.Voters)
	for _, difference := range r.differences() {
		fmt.Fprintf(&b, "- %s\n", difference)
	}
	return b.String()
}

const (
	// verifyTries is how often a poll that changes meanwhile is counted.
	verifyTries = 3
	// verifyChunk is roughly how many buckets of records one call reads, so that no call blocks Redis for
	// long.
	verifyChunk = 100
	// slotBytes is the length of a record.
	slotBytes = voterBytes + 4
	// noBallot is the number in the record of a vote that was taken back.
	noBallot = "\x00\x00\x00"
)

// errDamaged explains why Repair does not compute the tally from the records.
var errDamaged = errors.New("records are damaged, so the tally stays as it is")

// Verify counts the records of a poll and compares them with its tally. It changes nothing. It reads in
// chunks, so a large poll takes a while: bound it with ctx. Verify counts a poll that changes meanwhile up
// to three times and then reports it as Moving. An unknown poll has no records and no tally. Lost names the
// lost parts of the poll.
func (g *Guard) Verify(ctx context.Context, poll string) (Verification, error) {
	return g.observeVerify(ctx, "verify", poll, false)
}

// Repair sets the tally to the sums of the records where they differ or the tally is lost, and lets an audit
// stream that is lost begin anew. It returns what [Guard.Verify] found before.
//
// It repairs the poll in one atomic step, and only if nothing changed since its records were counted. A poll
// that keeps changing stays as it is, and is reported as Moving. Damaged records are an error, and the tally
// stays as it is.
func (g *Guard) Repair(ctx context.Context, poll string) (Verification, error) {
	return g.observeVerify(ctx, "repair", poll, true)
}

func (g *Guard) observeVerify(ctx context.Context, op, poll string, repair bool) (Verification, error) {
	return kit.Look(ctx, &g.Base, op, core.Attempt{},
		func() (Verification, error) { return g.verify(ctx, poll, repair) })
}

func (g *Guard) verify(ctx context.Context, poll string, repair bool) (Verification, error) {
	r := Verification{Poll: poll, Records: map[string]int64{}, Tally: map[string]int64{}}
	if poll == "" { // without a hash tag, the keys would be in several slots
		return r, fmt.Errorf("%w: no poll: name one", core.ErrInvalid)
	}
	name, err := g.choiceNames(ctx, poll)
	if err != nil {
		return r, err
	}
	c, err := g.countAndRepair(ctx, poll, repair)
	for kept, sum := range c.records {
		r.Records[name.of(kept)] += sum
	}
	for kept, sum := range c.tally.sums {
		r.Tally[name.of(kept)] += sum
	}
	r.Votes, r.Voters, r.Voided, r.Damaged, r.Moving = c.votes, c.voters, c.voided, c.damaged, c.moving
	r.Lost = c.tally.missing()
	return r, err
}

// countAndRepair counts a poll until nothing changes meanwhile, at most verifyTries times, and repairs it if
// asked to.
func (g *Guard) countAndRepair(ctx context.Context, poll string, repair bool) (c pollCount, err error) {
	for range verifyTries {
		if c, err = g.count(ctx, poll); err != nil || c.moving {
			if err != nil {
				return c, err
			}
			continue
		}
		if !repair || maps.Equal(c.records, c.tally.sums) && len(c.tally.missing()) == 0 {
			return c, nil
		}
		if c.damaged != 0 {
			return c, fmt.Errorf("poll %.100q: %w: %d", poll, errDamaged, c.damaged)
		}
		args := []any{c.changes}
		for choice, sum := range c.records {
			args = append(args, choice, sum)
		}
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteRepairScript,
			g.Keys(poll), args...)
		if err != nil {
			return c, err
		}
		if done, err := script.ReadNumber(value); err != nil || done == 1 {
			return c, err
		}
		c.moving = true
	}
	return c, nil
}

// pollCount is the count of a poll, by the names of choices that Redis keeps.
type pollCount struct {
	records                        map[string]int64
	tally                          keptTally
	votes, voters, voided, damaged int64
	changes                        string
	moving                         bool
}

// count counts a poll once. The result is moving when the poll changed meanwhile.
func (g *Guard) count(ctx context.Context, poll string) (c pollCount, err error) {
	keys := g.Keys(poll)
	voters, book := keys[0], keys[2]
	before, err := g.markOf(ctx, book)
	if err != nil {
		return c, err
	}
	if c.tally, err = g.keptTally(ctx, poll); err != nil {
		return c, err
	}

	// A record has only the number of its ballot, so count the numbers first.
	slots := slotCount{buckets: before.buckets, seen: map[uint64]bool{}, ballots: map[string]int64{}}
	err = g.scan(ctx, voters, verifyChunk, slots.bucket)
	if err == nil {
		err = g.countBallots(ctx, book, &slots, &c)
	}
	if err != nil {
		return c, fmt.Errorf("poll %.100q: %w", poll, err)
	}
	after, err := g.markOf(ctx, book)
	c.voters, c.changes = slots.voters, before.changes
	c.damaged = slots.misplaced + max(before.slots-slots.slots, slots.slots-before.slots)
	c.moving = before != after
	return c, err
}

// voteMark identifies a state of a poll: two equal marks mean that nothing changed in between.
type voteMark struct {
	changes        string // the number of records, and of changes
	slots, buckets int64
}

func (g *Guard) markOf(ctx context.Context, book string) (m voteMark, err error) {
	state, err := script.Query(ctx, g.Engine().Runner, redis.NewStringCmd(ctx, "hget", book, ":state"))
	if errors.Is(err, redis.Nil) {
		return voteMark{changes: "0 0", buckets: 1}, nil
	}
	if err != nil {
		return m, err
	}
	words := strings.Split(state, " ")
	if len(words) != 6 {
		return m, fmt.Errorf("unexpected state %.100q", state)
	}
	m.changes = words[0] + " " + words[1]
	if m.slots, err = strconv.ParseInt(words[0], 10, 64); err == nil {
		m.buckets, err = strconv.ParseInt(words[2], 10, 64)
	}
	if err == nil && m.buckets < 1 {
		err = fmt.Errorf("unexpected number of buckets: %d", m.buckets)
	}
	return m, err
}

// slotCount counts the records of a poll.
type slotCount struct {
	buckets                  int64
	seen                     map[uint64]bool
	ballots                  map[string]int64 // records by the number of their ballot
	slots, voters, misplaced int64
}

// bucket counts the records of one bucket. It ignores a bucket that it has seen, because HSCAN may return it
// twice.
func (s *slotCount) bucket(field, value string) error {
	number, err := strconv.ParseUint(field, 10, 64)
	if err != nil || len(value)%slotBytes != 0 {
		return fmt.Errorf("malformed bucket %.100q of %d bytes", field, len(value))
	}
	if s.seen[number] {
		return nil
	}
	s.seen[number] = true
	last := ""
	for at := 0; at < len(value); at += slotBytes {
		record := value[at : at+slotBytes]
		s.slots++
		if s.indexOf(record) != number {
			s.misplaced++
		}
		ballot := record[voterBytes : slotBytes-1]
		s.ballots[ballot]++
		if ballot != noBallot && record[:voterBytes] != last { // the records of one voter stand together
			last = record[:voterBytes]
			s.voters++
		}
	}
	return nil
}

// indexOf returns the number of a record's bucket, as the scripts compute it.
func (s *slotCount) indexOf(record string) uint64 {
	hash, buckets := uint64(binary.BigEndian.Uint32([]byte(record[:4]))), uint64(s.buckets)
	half := uint64(1) << (bits.Len64(buckets) - 1)
	if index := hash % (2 * half); index < buckets {
		return index
	}
	return hash % half
}

// countBallots looks up the ballots by number and adds their weights to c.
func (g *Guard) countBallots(ctx context.Context, book string, slots *slotCount, c *pollCount) error {
	c.records = map[string]int64{}
	delete(slots.ballots, noBallot) // votes that were taken back
	done := map[string]bool{}
	err := g.scan(ctx, book, recordsAtOnce, func(field, value string) error {
		number, isNumber := strings.CutPrefix(field, "#")
		if !isNumber {
			return nil
		}
		choice, rest, _ := strings.Cut(value, " ")
		weight, _, _ := strings.Cut(rest, " ")
		units, err := strconv.ParseInt(weight, 10, 64)
		if err != nil {
			return fmt.Errorf("ballot %.100q: unexpected %.100q: %w", field, value, err)
		}
		n := slots.ballots[number]
		switch {
		case n == 0 || done[number]:
		case units == 0:
			c.voided += n
		default:
			c.votes += n
			c.records[choice] += n * units
		}
		done[number] = true
		return nil
	})
	for number, n := range slots.ballots {
		if !done[number] {
			slots.misplaced += n // their ballot is lost
		}
	}
	return err
}

// scan calls f with each field of a hash. HSCAN may return a field more than once.
func (g *Guard) scan(ctx context.Context, key string, chunk int, f func(field, value string) error) error {
	for cursor := "0"; ; {
		value, err := script.Query(ctx, g.Engine().Runner, redis.NewCmd(ctx, "hscan", key, cursor, "count", chunk))
		if err != nil {
			return err
		}
		r := script.ReadReply(value, 2, 2)
		cursor = r.Text()
		pairs := r.Texts()
		if r.Err != nil {
			return r.Err
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			if err := f(pairs[i], pairs[i+1]); err != nil {
				return err
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}
