// Package parts divides hot polls into parts, by voter, so that one poll uses all masters of a cluster. A
// poll of package votes is kept in one slot, which is right on a single server, and in a cluster for all but
// the hottest polls: a master counts ten thousand votes a second.
//
// Make a [Guard] with [New] in place of votes.New; ten parts per master distribute the load evenly:
//
//	polls := parts.New(gate, "poll", 30, votes.Options{Find: find})
//
// # The number of parts
//
// The first vote fixes the number for its poll, whatever other processes or later ones say, so nobody votes
// twice. Polls that votes.New has begun go on in one part. The reverse fails: a guard of votes.New refuses a
// poll of several parts with a votes.ErrLost. To stop dividing polls, set the number to 1 until the running
// ones have ended.
//
// # Differences
//
// An operation ID is known only within its voter's part: the guard may not notice that another voter uses it.
// The order of audit events across voters is as exact as the masters' clocks, and results may be of slightly
// different moments in each part. Once nobody has voted in a part for votes.Options.Keep, that part starts
// again by itself. An observer hears of each part that is read.
//
// A part whose keys Redis has lost, as when a master comes back empty, is a votes.ErrLost to its voters, and
// for results; Repair cannot restore it. Voters of other parts vote on.
package parts

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	numberScript = script.New("parts_number", lua.Source("parts/number"), script.Idempotent)
	begunScript  = script.New("parts_begun", lua.Source("parts/begun"), script.Idempotent)
)

const (
	most       = 256     // parts of a poll
	remembered = 1 << 12 // polls, and parts, that a process remembers
)

// Guard is a votes.Guard whose polls are divided into parts. Make one with [New]. It is safe for concurrent
// use.
type Guard struct {
	*votes.Guard // of the polls of one part
	parts        int
	options      votes.Options
	numbers      *kit.Recall[string, heard]
	begun        *kit.Recall[partOf, heard]
	keep         keeps
}

// partOf is a part of a poll of several.
type partOf struct {
	poll string
	n    int
}

// Clone makes a key that does not keep a request in memory: see kit.NewRecall.
func (p partOf) Clone() partOf { return partOf{strings.Clone(p.poll), p.n} }

// keeps are for how many milliseconds keys are kept at least. What a process remembers it has heard up to a
// minute ago, so the mark of a part outlives what was voted by it, the part outlives its mark, and the number
// of parts outlives the parts.
type keeps struct{ mark, part, number int64 }

// New makes a guard with the given name, whose polls begin with so many parts, at most 256. It panics where
// votes.New does, and for another number.
func New(e *core.Engine, name string, parts int, options votes.Options) *Guard {
	if parts < 1 || parts > most {
		panic(fmt.Sprintf("parts: a poll of %d parts: set 1 to %d (guard %q)", parts, most, name))
	}
	keep := options.Keep
	if keep == 0 {
		keep = 30 * 24 * time.Hour
	}
	longest := min(time.Minute, keep) // a poll that is gone may have begun again with another number
	g := &Guard{
		parts:   parts,
		options: options,
		numbers: kit.NewRecall[string, heard](remembered, longest),
		begun:   kit.NewRecall[partOf, heard](remembered, longest),
		keep: keeps{mark: (keep + longest).Milliseconds(), part: (keep + 2*longest).Milliseconds(),
			number: (keep + 3*longest).Milliseconds()},
	}
	if keep >= time.Second { // else votes.New says what is wrong
		options.Keep = keep + 2*longest
	}
	e.Register(name, numberScript, begunScript) // so that Preload knows them
	e.Release(name)
	g.Guard = votes.New(e, name, options)
	return g
}

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description { return votes.Describe(g) }

// Check implements [core.Guard]: see the Check of votes.Guard.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	ctx, cancel := g.Engine().WithinDeadline(ctx) // one deadline for all calls
	defer cancel()
	return g.decide(ctx, "check", a, func(part *votes.Guard, a core.Attempt) (core.Decision, error) {
		return part.Check(ctx, a)
	})
}

// Retract takes a vote back: see the Retract of votes.Guard.
func (g *Guard) Retract(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.decide(ctx, "retract", a, func(part *votes.Guard, a core.Attempt) (core.Decision, error) {
		return part.Retract(ctx, a)
	})
}

// decide asks the voter's part. Where that says that something is lost, the poll or the part may only not be
// what this process remembers: then decide asks again, by nothing that is remembered.
func (g *Guard) decide(
	ctx context.Context, op string, a core.Attempt, ask func(*votes.Guard, core.Attempt) (core.Decision, error),
) (core.Decision, error) {
	for try := 0; ; try++ {
		begun := time.Now()
		part, n, err := g.prepare(ctx, a, try > 0)
		if err != nil {
			a, _ = a.PrepareClaim("the poll")
			d := core.Decision{Guard: g.Name(), Attempt: a.WithoutCall()}
			return d, g.Observe(ctx, op, begun, d, err)
		}
		d, err := ask(part, a)
		if !errors.Is(err, votes.ErrLost) {
			return d, err
		}
		if try == 2 || try == 1 && n != unknown { // nothing remembered was used
			if lost := g.checkPart(ctx, a.Resource, n); lost != nil {
				err = lost
			}
			return d, err
		}
		a = d.Attempt
	}
}

const (
	unknown = 0  // the part of a poll whose number of parts is unknown: no vote counts in it
	whole   = -1 // the part of a poll that has no others
)

// prepare returns the part of an attempt's voter, and its number. The part has begun, if the poll is open.
// With anew it forgets what is remembered of them.
func (g *Guard) prepare(
	ctx context.Context, a core.Attempt, anew bool,
) (part *votes.Guard, n int, err error) {
	if anew {
		g.numbers.Drop(a.Resource)
	}
	parts, p, found := 0, votes.Poll{}, false
	if a.Resource != "" && a.Actor != "" { // else the part says what is wrong
		p, found = g.rules(ctx, a.Resource)
	}
	if found {
		parts, err = g.number(ctx, a.Resource, &p)
	}
	switch {
	case err != nil || parts == 0:
		return g.Part(unknown, 0), unknown, err
	case parts == 1:
		return g.Guard, whole, nil
	}
	if n = partOfVoter(a.Actor, parts); anew {
		g.begun.Drop(partOf{a.Resource, n})
	}
	parts, err = g.join(ctx, a.Resource, n, parts, &p)
	return g.Part(n, parts), n, err
}

// partOfVoter returns the number of a voter's part, from 1. It goes by other bytes of the SHA-256 than a
// record.
func partOfVoter(actor string, parts int) int {
	sum := sha256.Sum256([]byte(actor))
	return 1 + int(binary.BigEndian.Uint64(sum[len(sum)-8:])%uint64(parts))
}
