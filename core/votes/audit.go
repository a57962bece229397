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
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Event is an entry of the audit stream: one change of a vote.
type Event struct {
	// Kind says what happened.
	Kind EventKind
	// At is the time of the change by the server's clock.
	At time.Time
	// Voter, Choice and Weight are those of the vote. A voter, ID or origin of more than 96 bytes once
	// encoded has the name '#' and its SHA-256 in unpadded base64url. So does a choice of more than 1024
	// bytes that the poll does not name.
	Voter, Choice string
	Weight        int64
	// ID and Origin are the operation ID and the Origin of the attempt that made the change. For
	// [EventVoided] they are those of the vote.
	ID, Origin string
	// Former and FormerWeight are the vote that [EventChanged] replaced or [EventUndone] restored.
	// FormerWeight 0 means that there is none.
	Former       string
	FormerWeight int64
	// Position is the place of the event in the stream: [Guard.Audit] continues behind it.
	Position string

	message redis.XMessage // the raw entry
}

// EventKind is a kind of change to a vote.
type EventKind string

// The kinds of changes to a vote.
const (
	// EventCast: the vote was cast and counts.
	EventCast EventKind = "cast"
	// EventChanged: the vote replaced a former one, by Poll.Change, and counts.
	EventChanged EventKind = "changed"
	// EventRetracted: the voter took the vote back.
	EventRetracted EventKind = "retracted"
	// EventUndone: the vote was taken back because its request failed. If it had replaced a former one, that
	// counts again.
	EventUndone EventKind = "undone"
	// EventVoided: an operator voided the vote.
	EventVoided EventKind = "voided"
)

// ErrNoAudit is returned by [Guard.Audit] and [Guard.Void] when [Options].Audit is not set.
var ErrNoAudit = kit.NewError("votes: no audit stream: set votes.Options.Audit before the poll opens",
	core.ErrNotNow)

const maxAuditChunk = 1000

// Audit returns up to count events (1 to 1000) of a poll after a position, and the position after them, from
// which the next call continues. An empty position is the beginning. An empty result means that there are no
// more events, or that the poll is unknown; a shorter result than count does not.
//
// The script that makes a change also appends its event, so no change lacks one. Events are in the order in
// which they happened.
//
// An audit stream that Redis has lost is an [ErrLost], once its remaining events have been read.
//
// A position is opaque text. A malformed one is a core.ErrInvalid.
func (g *Guard) Audit(
	ctx context.Context, poll, after string, count int,
) (events []Event, position string, err error) {
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
		return nil, after, fmt.Errorf("%w: audit of poll %.100q with at most %d events: name a poll, and set 1 "+
			"to %d events",
			core.ErrInvalid, poll, count, maxAuditChunk)
	}
	name, err := g.choiceNames(ctx, poll)
	if err != nil {
		return nil, after, err
	}
	if after != "" {
		if _, err := parsePosition(after); err != nil {
			return nil, after, fmt.Errorf("%w: %.100q is no position in this poll", core.ErrInvalid, after)
		}
	}
	events, err := g.events(ctx, poll, chunk{cmp.Or(after, "0-0"), "+", count}, name)
	if err != nil {
		return nil, after, err
	}
	if len(events) == 0 {
		return nil, after, g.checkAudit(ctx, poll)
	}
	return events, events[len(events)-1].Position, nil
}

// parsePosition returns the milliseconds of a position in the stream, "milliseconds-number".
func parsePosition(text string) (milli int64, err error) {
	before, after, _ := strings.Cut(text, "-")
	if milli, err = strconv.ParseInt(before, 10, 64); err == nil {
		_, err = strconv.ParseInt(after, 10, 64)
	}
	return milli, err
}

// chunk is up to most events after a position, up to and including another.
type chunk struct {
	after, until string
	most         int
}

// events returns a chunk of the events of a poll.
func (g *Guard) events(ctx context.Context, poll string, of chunk, name choiceNames) ([]Event, error) {
	messages, err := script.Query(ctx, g.Engine().Runner,
		redis.NewXMessageSliceCmd(ctx, "xrange", g.auditKey(poll), "("+of.after, of.until, "count", of.most))
	if err != nil {
		return nil, err
	}
	events := make([]Event, len(messages))
	for i, message := range messages {
		if events[i], err = parseVoteEvent(message, name); err != nil {
			return nil, fmt.Errorf("poll %.100q: %w", poll, err)
		}
	}
	return events, nil
}

func (g *Guard) auditKey(poll string) string { return g.Key(g.tag(poll), "audit") }

func parseVoteEvent(message redis.XMessage, name choiceNames) (Event, error) {
	text := func(field string) string {
		value, _ := message.Values[field].(string)
		return value
	}
	milli, err := parsePosition(message.ID)
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
		Voter: script.Decode(text("voter")), Choice: name.of(text("choice")), Weight: number("weight"),
		ID: script.Decode(text("id")), Origin: script.Decode(text("origin")), FormerWeight: number("was"),
		Position: message.ID, message: message,
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

// VoidOptions select the votes that [Guard.Void] voids.
type VoidOptions struct {
	// Match reports whether to void a vote, given the event that cast it, [EventCast] or [EventChanged].
	// Required. Void calls it from one goroutine at a time.
	Match func(Event) bool
	// VoteAgain lets the voters of voided votes vote again. Without it their votes stay used, although they
	// do not count.
	VoteAgain bool
	// DryRun voids nothing and returns the result that Void would have.
	DryRun bool
}

// VoidResult is the result of [Guard.Void].
type VoidResult struct {
	// Matched is the number of votes that matched. Voided is the number of matched votes that stood and were
	// voided. The others had been retracted, changed, undone or voided before.
	Matched int64 `json:"matched"`
	Voided  int64 `json:"voided"`
	// Weights is the sum of the voided weights per choice.
	Weights map[string]int64 `json:"weights"`
}

// Void voids the votes of a poll that match: it takes them out of the tally and appends an [EventVoided] for
// each. It voids a vote at most once and skips votes that no longer stand, such as retracted ones. A later
// rollback or retraction of a voided vote changes nothing. Voiding a changed vote does not restore the former
// one.
//
// Void works while the poll is open and after it closes. It reads all events up to the last one at its
// beginning, and calls Redis once per matching vote: bound it with ctx. After an error, the result counts the
// votes voided so far, and another call voids the rest.
func (g *Guard) Void(ctx context.Context, poll string, options VoidOptions) (VoidResult, error) {
	return kit.Look(ctx, &g.Base, "void", core.Attempt{}, func() (VoidResult, error) {
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
		return fmt.Errorf("%w: voiding votes needs a poll and VoidOptions.Match: set both", core.ErrInvalid)
	}
	name, err := g.choiceNames(ctx, poll)
	if err != nil {
		return err
	}
	last, err := script.Query(ctx, g.Engine().Runner,
		redis.NewXMessageSliceCmd(ctx, "xrevrange", g.auditKey(poll), "+", "-", "count", 1))
	if err == nil && len(last) == 0 {
		err = g.checkAudit(ctx, poll)
	}
	if err != nil || len(last) == 0 {
		return err
	}
	run := rand.Text()[:10]
	v := voiding{poll, run, options, result}
	for after := "0-0"; ; {
		events, err := g.events(ctx, poll, chunk{after, last[0].ID, maxAuditChunk}, name)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if err := g.voidMatching(ctx, v, e); err != nil {
				return err
			}
		}
		after = events[len(events)-1].Position
	}
}

// voiding is a run that voids votes of a poll.
type voiding struct {
	poll, run string
	options   VoidOptions
	result    *VoidResult
}

// voidMatching voids the vote of an event if it matches and stands, and adds it to the result.
func (g *Guard) voidMatching(ctx context.Context, v voiding, e Event) error {
	if e.Kind != EventCast && e.Kind != EventChanged || !v.options.Match(e) {
		return nil
	}
	v.result.Matched++
	voided, err := g.voidOne(ctx, v.poll, v.run, e, v.options)
	if voided {
		v.result.Voided++
		v.result.Weights[e.Choice] += e.Weight
	}
	return err
}

// voidOne voids the vote of an event if it stands.
func (g *Guard) voidOne(
	ctx context.Context, poll, run string, e Event, options VoidOptions,
) (voided bool, err error) {
	text := func(field string) string {
		value, _ := e.message.Values[field].(string)
		return value
	}
	v := encodedVoter(text("voter"))
	if !options.DryRun {
		defer g.duplicates.Drop(v.in(poll))
	}
	keys := slices.Insert(g.Keys(poll), 3, g.Key(g.tag(poll), "void", run))
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteVoidScript, keys,
		v.record(), text("slot"), kit.FlagOf(options.VoteAgain), kit.FlagOf(options.DryRun), e.Position,
		text("voter"), text("id"), text("origin"))
	if err != nil {
		return false, lost(err)
	}
	n, err := script.ReadNumber(value)
	return n == 1, err
}
