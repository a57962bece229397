package parts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
)

var errNumber = fmt.Errorf("%w: the number of its parts", votes.ErrLost)

// errPart is the error of a poll that has lost all keys of a part.
func errPart(n int) error { return fmt.Errorf("%w: its part %d", votes.ErrLost, n) }

// rules returns the rules of a poll, and reports whether there are any. Where there are none, votes.Guard
// says why.
func (g *Guard) rules(ctx context.Context, poll string) (votes.Poll, bool) {
	if g.options.Find == nil {
		return g.options.Poll, true
	}
	p, err := g.options.Find(ctx, poll)
	return p, err == nil
}

// heard is what a process remembers of a poll or of a part: the number of parts, and the closing by which the
// keys are kept.
type heard struct {
	parts  int
	closes time.Time
}

// covers reports whether the keys are kept for as long as the poll needs them, whatever its closing is now.
func (h heard) covers(p *votes.Poll) bool { return !p.Closes.After(h.closes) }

// number returns the number of parts of a poll, or 0 when the poll is not open and nobody has fixed a number
// yet.
func (g *Guard) number(ctx context.Context, poll string, p *votes.Poll) (int, error) {
	now := g.Engine().Now()
	if n, found := g.numbers.Find(poll, now); found && n.covers(p) {
		return n.parts, nil
	}
	asked := g.numbers.Ask(poll, now)
	parts, state, err := g.begin(ctx, partOf{poll, whole}, p, g.parts, false)
	if err == nil && state == undecided {
		parts, state, err = g.decideNumber(ctx, poll, p)
	}
	if err != nil || state != known {
		return 0, err
	}
	g.numbers.Hear(asked, heard{parts, p.Closes}, g.numbers.Longest())
	return parts, nil
}

// The states of a poll, or of a part, that the script parts/number tells.
const (
	closed    = 0 // the poll is not open, and nothing is known
	known     = 1
	undecided = 2 // the poll is open, and nothing is known
)

// begin asks for the number of parts of the whole poll, or whether a part is there. With decide it lets the
// poll begin in so many parts, or the part, which is one of so many.
func (g *Guard) begin(
	ctx context.Context, of partOf, p *votes.Poll, parts int, decide bool,
) (stored int, state int64, err error) {
	book, keep := g.Guard, g.keep.number
	if of.n != whole {
		book, keep = g.Part(of.n, parts), g.keep.part
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), numberScript, book.Keys(of.poll), parts,
		schedule.Milli(p.Opens), schedule.Milli(p.Closes), keep, kit.FlagOf(decide),
		g.Engine().ScriptNow(time.Millisecond), kit.FlagOf(of.n != whole))
	if err != nil {
		if strings.Contains(err.Error(), "GATEHOUSE lost: ") {
			err = fmt.Errorf("%w: %w", votes.ErrLost, err)
		}
		return 0, 0, err
	}
	r := script.ReadReply(value, 2, 2)
	number, state := r.Number(), r.Number()
	return int(number), state, check(number, r.Err)
}

func check(parts int64, err error) error {
	if err == nil && (parts < 1 || parts > most) {
		err = fmt.Errorf("unexpected number of parts: %d", parts)
	}
	return err
}

// decideNumber decides the number of parts of a poll that has none, unless a part is there: then the number
// is lost.
func (g *Guard) decideNumber(ctx context.Context, poll string, p *votes.Poll) (int, int64, error) {
	remains, err := g.hasParts(ctx, poll)
	if err != nil {
		return 0, 0, err
	}
	parts, state, err := g.begin(ctx, partOf{poll, whole}, p, g.parts, !remains)
	if err == nil && remains && state == undecided { // nobody has decided since: a part begins after it
		err = errNumber
	}
	return parts, state, err
}

// hasParts reports whether any part is there, of as many as a poll of this guard begins with.
func (g *Guard) hasParts(ctx context.Context, poll string) (bool, error) {
	if g.parts == 1 {
		return false, nil
	}
	var found atomic.Bool
	err := each(ctx, g.parts, func(ctx context.Context, n int) error {
		there, err := g.isThere(ctx, poll, n)
		if there {
			found.Store(true)
		}
		return err
	})
	return found.Load(), err
}

// isThere reports whether a part of a poll has a book.
func (g *Guard) isThere(ctx context.Context, poll string, n int) (bool, error) {
	book := g.Part(n, 0).Keys(poll)[2]
	found, err := script.Query(ctx, g.Engine().Runner, redis.NewIntCmd(ctx, "exists", book))
	return found > 0, err
}

// mark is what a poll knows of one of its parts: see the script parts/begun.
type mark string

const (
	markKnown mark = "known"
	markStale mark = "stale"
	markNone  mark = "none"
	markRoot  mark = "root"
)

// mark asks a poll about a part, one of so many, or 0 for any, or tells it that the part is there.
func (g *Guard) mark(
	ctx context.Context, of partOf, parts int, closes time.Time, begun bool,
) (mark, error) {
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), begunScript, g.Keys(of.poll)[:1], of.n,
		schedule.Milli(closes), g.keep.mark, kit.FlagOf(begun), g.Engine().ScriptNow(time.Millisecond), parts)
	if err != nil {
		return "", err
	}
	r := script.ReadReply(value, 1, 1)
	return mark(r.Text()), r.Err
}

// join lets a part of a poll begin before its first vote, and tells the poll so. From then on a part that is
// not there is lost, until the time that the mark has. The order lets a process die at any moment: no mark is
// of a part that never was. A process asks once per minute and part. It returns of how many parts this
// is one: 0 for a part that has not begun, of a poll that is not open.
func (g *Guard) join(ctx context.Context, poll string, n, parts int, p *votes.Poll) (int, error) {
	key, now := partOf{poll, n}, g.Engine().Now()
	if h, found := g.begun.Find(key, now); found && h.parts == parts && h.covers(p) {
		return parts, nil
	}
	asked := g.begun.Ask(key, now)
	found, state, err := g.joinNow(ctx, poll, n, parts, p)
	switch {
	case err != nil:
		return parts, err
	case found == markKnown:
		g.begun.Hear(asked, heard{parts, p.Closes}, g.begun.Longest())
	case found == markNone && state == closed:
		return 0, nil
	}
	return parts, nil
}

// joinNow is join where nothing is remembered. Where the poll is another one by now, the part says that it is
// lost.
func (g *Guard) joinNow(
	ctx context.Context, poll string, n, parts int, p *votes.Poll,
) (found mark, state int64, err error) {
	found, err = g.mark(ctx, partOf{poll, n}, parts, p.Closes, false)
	if err != nil || found == markKnown || found == markRoot {
		return found, known, err
	}
	_, state, err = g.begin(ctx, partOf{poll, n}, p, parts, found == markNone)
	switch {
	case err != nil || state == closed:
		return found, state, err
	case state == undecided:
		return found, state, errPart(n)
	}
	found, err = g.mark(ctx, partOf{poll, n}, parts, p.Closes, true)
	return found, known, err
}

// unopened makes the script parts/number read only.
var unopened = votes.Poll{Opens: time.UnixMilli(core.MaxAmount)}

// storedNumber returns the number of parts of a poll, or 0 while nothing of the poll is stored. It writes
// nothing. What it returns is not known before the first vote, which may come at any moment: the parts that
// a caller reads then are none.
func (g *Guard) storedNumber(ctx context.Context, poll string) (int, error) {
	for remains := false; ; {
		parts, state, err := g.begin(ctx, partOf{poll, whole}, &unopened, 1, false)
		switch {
		case errors.Is(err, votes.ErrLost): // a poll of one part without its book: its guard says so
			return 1, nil
		case err != nil || state == known:
			return parts, err
		case remains:
			return 0, errNumber
		}
		// Where a part is found, the poll may have begun meanwhile.
		if remains, err = g.hasParts(ctx, poll); err != nil || !remains {
			return 0, err
		}
	}
}

// checkPart returns a votes.ErrLost when a part that is not there has begun.
func (g *Guard) checkPart(ctx context.Context, poll string, n int) error {
	if n == unknown || n == whole {
		return nil
	}
	there, err := g.isThere(ctx, poll, n)
	if err != nil || there {
		return err
	}
	found, err := g.mark(ctx, partOf{poll, n}, 0, time.Time{}, false)
	if err != nil || found != markKnown && found != markStale {
		return err
	}
	if there, err = g.isThere(ctx, poll, n); err == nil && !there { // else it has begun meanwhile
		err = errPart(n)
	}
	return err
}

// each calls f for every part of so many, up to 16 at a time, and returns the first error.
func each(ctx context.Context, parts int, f func(ctx context.Context, n int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, 16) // one process should not take more of the shared connections
	var all sync.WaitGroup
	for n := range parts {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			if err := f(ctx, n+1); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
