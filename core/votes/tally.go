package votes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Tally returns the sum of the weights per choice. It includes every choice that has votes or that the poll
// names. If [Options].Find does not know the poll, and it has no votes, the error is an [ErrNoPoll]. If the
// poll has lost its tally, the error is an [ErrLost].
//
// A choice that the poll does not name, and that is longer than 1024 bytes once encoded, has the name by
// which Redis keeps it: '#' and its SHA-256 in unpadded base64url.
//
// The cost grows with the number of choices.
func (g *Guard) Tally(ctx context.Context, poll string) (map[string]int64, error) {
	return kit.Look(ctx, &g.Base, "tally", core.Attempt{},
		func() (map[string]int64, error) { return g.tally(ctx, poll) })
}

func (g *Guard) tally(ctx context.Context, poll string) (map[string]int64, error) {
	name, err := g.choiceNames(ctx, poll)
	if err != nil {
		return nil, err
	}
	kept, err := g.keptTally(ctx, poll)
	if err == nil {
		err = kept.err(poll)
	}
	tally := make(map[string]int64, len(name))
	for _, choice := range name {
		tally[choice] = 0
	}
	for choice, sum := range kept.sums {
		tally[name.of(choice)] += sum
	}
	if err == nil && len(tally) == 0 { // the votes of a poll that Find has forgotten are still told
		if _, err = g.find(ctx, poll); err != nil {
			err = fmt.Errorf("%w: %.100q", err, poll)
		}
	}
	if err != nil {
		return nil, err
	}
	return tally, nil
}

// keptTally reads the tally of a poll.
func (g *Guard) keptTally(ctx context.Context, poll string) (tally keptTally, err error) {
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), voteTallyScript, g.Keys(poll))
	if err != nil {
		return tally, err
	}
	r := script.ReadReply(value, 3, 3)
	tally.lost, tally.auditIsLost = r.Text(), r.Flag()
	pairs := r.Texts()
	if r.Err != nil {
		return tally, r.Err
	}
	tally.sums = make(map[string]int64, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		if tally.sums[pair[0]], err = strconv.ParseInt(pair[len(pair)-1], 10, 64); err != nil {
			return tally, fmt.Errorf("tally of %.100q: %w", poll, err)
		}
	}
	return tally, nil
}

// choiceNames maps the names that Redis keeps to the choices that a poll names.
type choiceNames map[string]string

func (g *Guard) choiceNames(ctx context.Context, poll string) (choiceNames, error) {
	found, err := g.find(ctx, poll)
	if err != nil && !errors.Is(err, ErrNoPoll) {
		return nil, err
	}
	names := make(choiceNames, len(found.Choices))
	for _, choice := range found.Choices {
		names[script.EncodeUpTo(script.MaxRecord, choice)] = choice
	}
	return names, nil
}

func (n choiceNames) of(kept string) string {
	if choice, ok := n[kept]; ok {
		return choice
	}
	return script.Decode(kept)
}

// Rank is a choice and the sum of its weights. [Guard.Top] returns them in order.
type Rank struct {
	Choice string `json:"choice"`
	Weight int64  `json:"weight"`
}

// Top returns the n choices of a poll with the most weight, in descending order. An n of 0 or less returns
// all choices. Choices of equal weight are in alphabetical order, so the result is stable. Top reads the
// whole [Guard.Tally].
func (g *Guard) Top(ctx context.Context, poll string, n int) ([]Rank, error) {
	tally, err := g.Tally(ctx, poll)
	if err != nil {
		return nil, err
	}
	return Top(tally, n), nil
}

// Top returns the n choices of a tally with the most weight, as [Guard.Top] does.
func Top(tally map[string]int64, n int) []Rank {
	top := make([]Rank, 0, len(tally))
	for choice, weight := range tally {
		top = append(top, Rank{choice, weight})
	}
	slices.SortFunc(top, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Choice, b.Choice))
	})
	if n > 0 && n < len(top) {
		top = top[:n]
	}
	return top
}
