package parts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

// count returns the number of parts of a poll for one of the calls below.
func (g *Guard) count(ctx context.Context, op, poll string) (int, error) {
	if poll == "" {
		return 1, nil // the part says what is wrong
	}
	begun := time.Now()
	parts, err := g.storedNumber(ctx, poll)
	if err != nil {
		err = g.Observe(ctx, op, begun, core.Decision{Guard: g.Name()}, err)
	}
	return parts, err
}

// undivided returns the guard of a poll of one part. Nobody has voted in a poll of none, so a part is read
// that has no votes: the poll's own keys may have the number of its parts by now.
func (g *Guard) undivided(parts int) *votes.Guard {
	if parts == 0 {
		return g.Part(unknown, 0)
	}
	return g.Guard
}

// empty is for a part in which nothing was found: it returns a votes.ErrLost when the part is lost.
func (g *Guard) empty(ctx context.Context, op, poll string, n int) error {
	begun := time.Now()
	err := g.checkPart(ctx, poll, n)
	if err != nil {
		err = g.Observe(ctx, op, begun, core.Decision{Guard: g.Name()}, err)
	}
	return err
}

// Tally returns the sums of all parts: see the Tally of votes.Guard.
func (g *Guard) Tally(ctx context.Context, poll string) (map[string]int64, error) {
	parts, err := g.count(ctx, "tally", poll)
	if err != nil {
		return nil, err
	} else if parts <= 1 {
		return g.undivided(parts).Tally(ctx, poll)
	}
	var mu sync.Mutex
	tally, unknown := map[string]int64{}, error(nil)
	err = each(ctx, parts, func(ctx context.Context, n int) error {
		sums, err := g.Part(n, parts).Tally(ctx, poll)
		noPoll := errors.Is(err, votes.ErrNoPoll)
		if err != nil && !noPoll {
			return err
		}
		mu.Lock()
		nothing := true
		for choice, sum := range sums {
			tally[choice] += sum
			nothing = nothing && sum == 0
		}
		if noPoll {
			unknown = err
		}
		mu.Unlock()
		if nothing {
			return g.empty(ctx, "tally", poll, n)
		}
		return nil
	})
	if err == nil && len(tally) == 0 {
		err = unknown
	}
	if err != nil {
		return nil, err
	}
	return tally, nil
}

// Top returns the choices with the most weight: see the Top of votes.Guard.
func (g *Guard) Top(ctx context.Context, poll string, n int) ([]votes.Rank, error) {
	tally, err := g.Tally(ctx, poll)
	if err != nil {
		return nil, err
	}
	return votes.Top(tally, n), nil
}

// Verify compares records and tally of all parts: see the Verify of votes.Guard. A lost part is a
// votes.ErrLost.
func (g *Guard) Verify(ctx context.Context, poll string) (votes.Verification, error) {
	return g.verify(ctx, "verify", poll, func(ctx context.Context, of *votes.Guard) (votes.Verification, error) {
		return of.Verify(ctx, poll)
	})
}

// Repair repairs each part by itself: see the Repair of votes.Guard.
func (g *Guard) Repair(ctx context.Context, poll string) (votes.Verification, error) {
	return g.verify(ctx, "repair", poll, func(ctx context.Context, of *votes.Guard) (votes.Verification, error) {
		return of.Repair(ctx, poll)
	})
}

func (g *Guard) verify(
	ctx context.Context, op, poll string, ask func(context.Context, *votes.Guard) (votes.Verification, error),
) (votes.Verification, error) {
	all := votes.Verification{Poll: poll, Records: map[string]int64{}, Tally: map[string]int64{}}
	parts, err := g.count(ctx, op, poll)
	if err != nil {
		return all, err
	} else if parts <= 1 {
		return ask(ctx, g.undivided(parts))
	}
	var mu sync.Mutex
	err = each(ctx, parts, func(ctx context.Context, n int) error {
		one, err := ask(ctx, g.Part(n, parts))
		mu.Lock()
		add(&all, one)
		mu.Unlock()
		if err == nil && len(one.Records)+len(one.Tally)+len(one.Lost) == 0 && one.Voided == 0 {
			err = g.empty(ctx, op, poll, n)
		}
		return err
	})
	return all, err
}

// add adds a part to what is known of all.
func add(all *votes.Verification, one votes.Verification) {
	for choice, sum := range one.Records {
		all.Records[choice] += sum
	}
	for choice, sum := range one.Tally {
		all.Tally[choice] += sum
	}
	all.Votes += one.Votes
	all.Voters += one.Voters
	all.Voided += one.Voided
	all.Damaged += one.Damaged
	all.Moving = all.Moving || one.Moving
	for _, what := range one.Lost {
		if !slices.Contains(all.Lost, what) {
			all.Lost = append(all.Lost, what)
		}
	}
}

// partEvent is an event and the number of its part.
type partEvent struct {
	votes.Event
	n int
}

// Audit returns events of all parts: see the Audit of votes.Guard. A position is the list of those in the
// parts.
func (g *Guard) Audit(
	ctx context.Context, poll, after string, count int,
) (events []votes.Event, position string, err error) {
	parts, err := g.count(ctx, "audit", poll)
	if err != nil {
		return nil, after, err
	} else if parts <= 1 || count < 1 {
		return g.undivided(parts).Audit(ctx, poll, after, count)
	}
	positions := make([]string, parts)
	if after != "" {
		positions = strings.Split(after, ",")
	}
	if len(positions) != parts {
		return nil, after, fmt.Errorf("%w: %.100q is no position in this poll", core.ErrInvalid, after)
	}
	// A part that returns a full page may have more events, so later events of other parts wait for the next
	// call. This page size ensures progress.
	pages, full := make([][]partEvent, parts), max(count/parts, min(count, 16))
	err = each(ctx, parts, func(ctx context.Context, n int) error {
		page, _, err := g.Part(n, parts).Audit(ctx, poll, positions[n-1], full)
		if err == nil && len(page) == 0 {
			err = g.empty(ctx, "audit", poll, n)
		}
		for _, e := range page {
			pages[n-1] = append(pages[n-1], partEvent{e, n})
		}
		return err
	})
	if err != nil {
		return nil, after, err
	}
	all := slices.SortedStableFunc(slices.Values(slices.Concat(pages...)), compare)
	for _, e := range all[:min(len(all), count)] {
		events, positions[e.n-1] = append(events, e.Event), e.Position
		if page := pages[e.n-1]; len(page) == full && page[full-1].Position == e.Position {
			break
		}
	}
	if len(events) == 0 {
		return nil, after, nil
	}
	return events, strings.Join(positions, ","), nil
}

// compare orders events by time. Those of one part are in order already.
func compare(a, b partEvent) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.n, b.n)) }

// Void voids votes in one part after the other: see the Void of votes.Guard.
func (g *Guard) Void(ctx context.Context, poll string, options votes.VoidOptions) (votes.VoidResult, error) {
	all := votes.VoidResult{Weights: map[string]int64{}}
	parts, err := g.count(ctx, "void", poll)
	if err != nil {
		return all, err
	} else if parts <= 1 {
		return g.undivided(parts).Void(ctx, poll, options)
	}
	for n := 1; n <= parts && err == nil; n++ {
		var one votes.VoidResult
		one, err = g.Part(n, parts).Void(ctx, poll, options)
		all.Matched += one.Matched
		all.Voided += one.Voided
		for choice, weight := range one.Weights {
			all.Weights[choice] += weight
		}
		if err == nil && one.Matched == 0 {
			err = g.empty(ctx, "void", poll, n)
		}
	}
	return all, err
}
