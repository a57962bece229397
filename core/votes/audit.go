package votes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/redis/go-redis/v9"
)

// VoteEvent is one thing that has happened to a vote.
type Event struct {
	// Kind is what has happened.
	Kind EventKind
	// At is when, by the server's clock.
	At time.Time
	// Voter, Choice and Weight are those of the vote. Voters, IDs and origins that are long, more than 96 bytes once encoded, have the
	// name '#' and their SHA-256 in unpadded base64url; so have choices of more than 1024 bytes that the poll does not name.
	Voter, Choice string
	Weight        int64
	// ID is the operation ID, and Origin the Attempt's: of the attempt that did it, and of VoteVoided those of the vote.
	ID, Origin string
	// Former and FormerWeight are the vote that VoteChanged has replaced, or that VoteUndone has restored. FormerWeight 0: none.
	Former       string
	FormerWeight int64

	part     int
	position string         // in the stream of its part
	message  redis.XMessage // as it is there
}

// VoteEventKind is what has happened to a vote.
type EventKind string

// What happens to votes.
const (
	// VoteCast: it counts.
	EventCast EventKind = "cast"
	// VoteChanged: it counts, in place of a former one. See Poll.Change.
	EventChanged EventKind = "changed"
	// VoteRetracted: its voter has taken it back.
	EventRetracted EventKind = "retracted"
	// VoteUndone: it was taken back because its request failed, and a former one that it had replaced counts again.
	EventUndone EventKind = "undone"
	// VoteVoided: an operator has voided it.
	EventVoided EventKind = "voided"
)

// ErrNoAudit is returned by Audit and Void where VoteOptions.Audit is not set.
var ErrNoAudit = core.NewError("votes: no audit stream is kept: set VoteOptions.Audit before the poll opens", core.ErrNotNow)

const maxAuditChunk = 1000

// Audit returns what has happened in a poll after a position, at most count events (1 to 1000), and the position to go on from. An
// empty position is the beginning. When there is nothing more the result is empty, also for an unknown poll; otherwise it may
// have fewer than count events, though there are more.
//
// Each event is appended by the script that does it, so no change is without its event. The events of one voter are in the
// order in which they happened. Of a poll with a Spread so are all events, as far as the clocks of the masters agree. A position is
// opaque text; one that is none is an ErrInvalidAttempt.
func (g *Guard) Audit(ctx context.Context, poll, after string, count int) (events []Event, position string, err error) {
	err = g.Call(ctx, "audit", core.Attempt{}, func() error {
		events, position, err = g.audit(ctx, poll, after, count)
		return err
	})
	return events, position, err
}

func (g *Guard) audit(ctx context.Context, poll, after string, count int) ([]Event, string, error) {
	switch {
	case !g.options.Audit:
		return nil, after, ErrNoAudit
	case poll == "" || count < 1 || count > maxAuditChunk:
		return nil, after, fmt.Errorf("%w: audit of poll %.100q, %d events at most: name the poll, and ask for 1 to %d",
			core.ErrInvalid, poll, count, maxAuditChunk)
	}
	name, err := g.choiceNames(ctx, poll)
	if err != nil {
		return nil, after, err
	}
	parts, err := g.storedParts(ctx, poll)
	if err != nil {
		return nil, after, err
	}
	positions, err := parsePositions(after, parts)
	if err != nil {
		return nil, after, err
	}

	// What comes behind the last event of a part that has more to tell must wait for that. So many of each make progress.
	most := max(count/parts, min(count, 16))
	var mu sync.Mutex
	var events []Event
	var until *Event
	err = eachPart(ctx, parts, func(ctx context.Context, part int) error {
		found, err := g.partEvents(ctx, poll, part, positions[part], "+", most, name)
		mu.Lock()
		defer mu.Unlock()
		events = append(events, found...)
		if len(found) == most {
			if last := &found[most-1]; until == nil || compareEvents(*last, *until) < 0 {
				until = last
			}
		}
		return err
	})
	if err != nil {
		return nil, after, err
	}
	slices.SortFunc(events, compareEvents)
	if until != nil {
		events = slices.DeleteFunc(events, func(e Event) bool { return compareEvents(e, *until) > 0 })
	}
	events = events[:min(len(events), count)]
	if len(events) == 0 {
		return nil, after, nil
	}
	for _, e := range events {
		positions[e.part] = e.position
	}
	return events, strings.Join(positions, ","), nil
}

// compareEvents orders events by time and, of one part, as they are in the stream.
func compareEvents(a, b Event) int {
	if a.part == b.part {
		return comparePositions(a.position, b.position)
	}
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.part, b.part))
}

// comparePositions orders positions of one stream: "milliseconds-number".
func comparePositions(a, b string) int {
	aMilli, aNumber, _ := parsePosition(a)
	bMilli, bNumber, _ := parsePosition(b)
	return cmp.Or(cmp.Compare(aMilli, bMilli), cmp.Compare(aNumber, bNumber))
}

func parsePosition(text string) (milli, number int64, err error) {
	before, after, _ := strings.Cut(text, "-")
	milli, err = strconv.ParseInt(before, 10, 64)
	if err == nil {
		number, err = strconv.ParseInt(after, 10, 64)
	}
	return milli, number, err
}

// parsePositions reads the position in each part's stream: "0-0" is the beginning.
func parsePositions(text string, parts int) ([]string, error) {
	if text == "" {
		return slices.Repeat([]string{"0-0"}, parts), nil
	}
	positions := strings.Split(text, ",")
	if len(positions) > parts {
		return nil, fmt.Errorf("%w: %.100q is no position in this poll", core.ErrInvalid, text)
	}
	for _, one := range positions {
		if _, _, err := parsePosition(one); err != nil {
			return nil, fmt.Errorf("%w: %.100q is no position in this poll", core.ErrInvalid, text)
		}
	}
	for len(positions) < parts { // of a time at which nobody had voted
		positions = append(positions, "0-0")
	}
	return positions, nil
}

// partEvents returns the events of one part after a position, up to and including another.
func (g *Guard) partEvents(
	ctx context.Context, poll string, part int, after, until string, count int, name choiceNames,
) ([]Event, error) {
	messages, err := core.Query(ctx, g.Engine(),
		redis.NewXMessageSliceCmd(ctx, "xrange", g.auditKey(poll, part), "("+after, until, "count", count))
	if err != nil {
		return nil, err
	}
	events := make([]Event, len(messages))
	for i, message := range messages {
		if events[i], err = parseVoteEvent(message, name); err != nil {
			return nil, fmt.Errorf("poll %.100q: %w", poll, err)
		}
		events[i].part = part
	}
	return events, nil
}

func parseVoteEvent(message redis.XMessage, name choiceNames) (Event, error) {
	text := func(field string) string {
		value, _ := message.Values[field].(string)
		return value
	}
	milli, _, err := parsePosition(message.ID)
	errs := []error{err}
	number := func(field string) int64 {
		if text(field) == "" {
			return 0
		}
		n, err := strconv.ParseInt(text(field), 10, 64)
		errs = append(errs, err)
		return n
	}
	e := Event{
		Kind: EventKind(text("event")), At: time.UnixMilli(milli),
		Voter: core.Decode(text("voter")), Choice: name.of(text("choice")), Weight: number("weight"),
		ID: core.Decode(text("id")), Origin: core.Decode(text("origin")), FormerWeight: number("was"),
		position: message.ID, message: message,
	}
	if e.FormerWeight != 0 {
		e.Former = name.of(text("former"))
	}
	if number("slot") == 0 || e.Kind == "" || e.Voter == "" {
		errs = append(errs, errors.New("fields are missing"))
	}
	if err := errors.Join(errs...); err != nil {
		return Event{}, fmt.Errorf("message %.100q is not an event of a poll: %w", message.ID, err)
	}
	return e, nil
}

// VoidOptions say which votes are voided, and how.
type VoidOptions struct {
	// Match reports whether a vote is to be voided, by the event with which it was cast: VoteCast or VoteChanged. Required. It is called
	// by one goroutine at a time.
	Match func(Event) bool
	// VoteAgain lets the voters of voided votes vote again. Without it their votes stay used, though they do not count.
	VoteAgain bool
	// DryRun only looks: nothing is voided, and the result says what would be.
	DryRun bool
}

// VoidResult is what Void has done.
type VoidResult struct {
	// Matched is how many votes matched, Voided how many of them stood and were voided. The others had been retracted, changed, undone
	// or voided before.
	Matched int64 `json:"matched"`
	Voided  int64 `json:"voided"`
	// Weights is what was voided of each choice.
	Weights map[string]int64 `json:"weights"`
}

// Void voids the votes of a poll that match: they leave the tally, and a VoteVoided event says so. A vote is voided once, however
// often Void is called; what has become of it before, such as a retraction, is not done again, and what its request or
// voter does later finds nothing to take back. A changed vote that is voided does not restore the former one.
//
// It works while votes go on, and after the closing. It goes through all events that there are when it begins, one after the other,
// and each vote that matches takes a call to Redis: bound it with ctx. After an error the result says what was voided so far, and
// calling again voids the rest.
func (g *Guard) Void(ctx context.Context, poll string, options VoidOptions) (VoidResult, error) {
	return core.Look(ctx, &g.Base, "void", core.Attempt{}, func() (VoidResult, error) {
		result := VoidResult{Weights: map[string]int64{}}
		err := g.void(ctx, poll, options, &result)
		return result, err
	})
}

func (g *Guard) void(ctx context.Context, poll string, options VoidOptions, result *VoidResult) error {
	switch {
	case !g.options.Audit:
		return ErrNoAudit
	case poll == "" || options.Match == nil:
		return fmt.Errorf("%w: to void votes, name the poll, and give a Match that says which", core.ErrInvalid)
	}
	name, err := g.choiceNames(ctx, poll)
	if err != nil {
		return err
	}
	parts, err := g.storedParts(ctx, poll)
	run := rand.Text()[:10]
	for part := 0; part < parts && err == nil; part++ {
		err = g.voidPart(ctx, poll, part, name, func(e Event) error {
			result.Matched++
			voided, err := g.voidOne(ctx, poll, run, e, options)
			if voided {
				result.Voided++
				result.Weights[e.Choice] += e.Weight
			}
			return err
		}, options.Match)
	}
	return err
}

// voidPart calls void for each vote of a part of the poll that matches, as far as the part's events go when it begins.
func (g *Guard) voidPart(
	ctx context.Context, poll string, part int, name choiceNames, void func(Event) error, match func(Event) bool,
) error {
	last, err := core.Query(ctx, g.Engine(),
		redis.NewXMessageSliceCmd(ctx, "xrevrange", g.auditKey(poll, part), "+", "-", "count", 1))
	if err != nil || len(last) == 0 {
		return err
	}
	for after := "0-0"; ; {
		events, err := g.partEvents(ctx, poll, part, after, last[0].ID, maxAuditChunk, name)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if e.Kind != EventCast && e.Kind != EventChanged || !match(e) {
				continue
			}
			if err := void(e); err != nil {
				return err
			}
		}
		after = events[len(events)-1].position
	}
}

// voidOne voids the vote of one event, if it stands.
func (g *Guard) voidOne(ctx context.Context, poll, run string, e Event, options VoidOptions) (voided bool, err error) {
	text := func(field string) string {
		value, _ := e.message.Values[field].(string)
		return value
	}
	v := encodedVoter(text("voter"))
	if !options.DryRun {
		defer g.duplicates.Drop(v.in(poll))
	}
	keys := append(g.recordKeys(poll, e.part), g.Key(partTag(poll, e.part), "void", run), g.auditKey(poll, e.part))
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteVoidScript, keys,
		v.record(), text("slot"), core.FlagOf(options.VoteAgain), core.FlagOf(options.DryRun), e.position,
		text("voter"), text("id"), text("origin"))
	if err != nil {
		return false, err
	}
	n, err := core.ReadNumber(value)
	return n == 1, err
}
