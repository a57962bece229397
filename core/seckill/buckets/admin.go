package buckets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/saleops"
)

var errNoItem = fmt.Errorf("%w: no item", core.ErrInvalid)

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description {
	return saleops.Describe[seckill.Status, Verification](g, g.shown, "outbox")
}

// shown is what an operator sees of a sale.
func (g *Guard) shown(ctx context.Context, item string) (shown any, err error) {
	whole, err := g.Status(ctx, item)
	if err != nil {
		return nil, err
	}
	err = g.ofSale(ctx, item, func(at *spread) (found bool, err error) {
		shown, err = g.parts.Shown(ctx, at.tags[0], whole) // all buckets have the same terms
		return true, err
	})
	return shown, err
}

// Sweep is [seckill.Guard.Sweep], with 100 reservations per bucket and call. It also completes moves between
// buckets that a dead process has left unfinished.
func (g *Guard) Sweep(ctx context.Context, item string) (int, error) {
	defer g.soldOut.Drop(item)
	return kit.Look(ctx, &g.Base, "sweep", core.Attempt{}, func() (swept int, err error) {
		_, err = g.locate(ctx, item, func(at *spread) (found bool, err error) {
			swept, found, err = at.sweep(ctx)
			return found, err
		})
		return swept, err
	})
}

func (s *spread) sweep(ctx context.Context) (swept int, found bool, err error) {
	counts := make([]int, len(s.tags))
	err = s.each(func(n int, tag string) (err error) {
		counts[n], err = s.g.parts.Sweep(ctx, tag)
		return err
	})
	for _, n := range counts {
		swept += n
	}
	if err == nil {
		var c collected
		if c, err = s.collect(ctx); err == nil {
			err = s.complete(ctx, c.loans)
		}
	}
	if errors.Is(err, errBucketLost) {
		return 0, false, nil
	}
	if swept > 0 {
		s.changed(ctx)
	}
	return swept, true, err
}

// SweepEvery is [seckill.Guard.SweepEvery].
func (g *Guard) SweepEvery(ctx context.Context, interval time.Duration, items func() []string) error {
	return saleops.SweepEvery(ctx, g.Name(), g.Sweep, interval, items)
}

// Restock is [seckill.Guard.Restock]. It returns the units of expired reservations to the stock where it
// would take away more than is left.
func (g *Guard) Restock(ctx context.Context, item, id string, units int64) (seckill.Status, error) {
	defer g.soldOut.Drop(item)
	return kit.Look(ctx, &g.Base, "restock", core.Attempt{}, func() (status seckill.Status, err error) {
		err = g.ofSale(ctx, item, func(at *spread) (found bool, err error) {
			status, found, err = at.restock(ctx, id, units)
			return found, err
		})
		return status, err
	})
}

// restock changes the stock of one bucket. If it must take away more units than the bucket has, it borrows
// them first.
func (s *spread) restock(
	ctx context.Context, id string, units int64,
) (status seckill.Status, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.g.Engine().SettleTimeout())
	defer cancel()
	status, found, err = s.status(ctx)
	if err != nil || !found {
		return status, found, err
	}
	home := s.homeOf(id)
	done, err := s.restocked(ctx, home, id)
	if err != nil {
		return status, true, err
	}
	if units > core.MaxAmount-status.Stock && !done { // no bucket knows the sum
		return status, true, fmt.Errorf("%w: a stock of %d and %d: at most 2^53-1 can be counted",
			core.ErrInvalid, status.Stock, units)
	}
	refused, err := s.restockHome(ctx, home, id, units)
	if err != nil {
		return status, true, err
	}
	switch {
	case errors.Is(refused, seckill.ErrNoSale):
		return status, false, nil
	case errors.Is(refused, seckill.ErrTooFewLeft):
		refused = fmt.Errorf("%w: %d, and %d are to be taken away", seckill.ErrTooFewLeft, status.Left, -units)
	case refused != nil && !errors.Is(refused, core.ErrInvalid):
		return status, true, refused
	}
	if refused == nil && !done {
		s.changed(ctx)
	}
	if status, _, err = s.status(ctx); err != nil {
		return status, true, err
	}
	return status, true, refused
}

// restockHome changes the stock of the home bucket, and gathers the units that it has to take away. It
// returns the bucket's refusal.
func (s *spread) restockHome(ctx context.Context, home int, id string, units int64) (refused, err error) {
	for enough := true; ; {
		_, refused = s.g.parts.Restock(ctx, s.tags[home], id, units)
		if !errors.Is(refused, seckill.ErrTooFewLeft) || !enough {
			return refused, nil
		}
		// When there is not enough, the bucket is asked once more: another call with the same ID may have
		// taken the units meanwhile, and then it is done.
		if enough, _, err = s.gather(ctx, home, -units); err != nil {
			return nil, err
		}
	}
}

// restocked reports whether the bucket has done the restock with this ID.
func (s *spread) restocked(ctx context.Context, n int, id string) (bool, error) {
	return script.Query(ctx, s.g.Engine().Runner,
		redis.NewBoolCmd(ctx, "hexists", s.keys(n)[3], "restock|"+script.Encode(id)))
}

// Close is [seckill.Guard.Close].
func (g *Guard) Close(ctx context.Context, item string) error {
	return g.Call(ctx, "close", core.Attempt{}, func() error {
		return g.ofSale(ctx, item, func(at *spread) (found bool, err error) { return at.close(ctx) })
	})
}

// close closes all buckets. After it returned no error, no bucket admits a buyer.
func (s *spread) close(ctx context.Context) (found bool, err error) {
	there, closed := make([]bool, len(s.tags)), make([]bool, len(s.tags))
	err = s.each(func(n int, tag string) (err error) {
		closed[n], err = s.g.parts.Close(ctx, tag)
		if there[n] = !errors.Is(err, seckill.ErrNoSale); !there[n] {
			return nil
		}
		return err
	})
	if err == nil {
		var root bool
		_, root, err = s.g.askRoot(ctx, s.item, s.epoch, closes) // it is kept as long as they are
		closed = append(closed, root)
	}
	if err == nil && slices.Contains(closed, true) && slices.Contains(closed, false) {
		s.keep(ctx) // a call that died half-way has closed the others, maybe long ago
	}
	return !slices.Contains(there, false), err
}

// Status is [seckill.Guard.Status]. Left includes units on their way between buckets.
func (g *Guard) Status(ctx context.Context, item string) (seckill.Status, error) {
	return kit.Look(ctx, &g.Base, "status", core.Attempt{}, func() (status seckill.Status, err error) {
		err = g.ofSale(ctx, item, func(at *spread) (found bool, err error) {
			status, found, err = at.status(ctx)
			return found, err
		})
		return status, err
	})
}

// status reads the buckets until no units have moved between two reads, so that none is counted twice or
// missed. The buckets' Held and Sold are from moments between the two.
func (s *spread) status(ctx context.Context) (status seckill.Status, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.g.Engine().SettleTimeout())
	defer cancel()
	var before saleState
	for {
		state, found, err := s.lookAll(ctx)
		if err != nil || !found {
			return status, found, err
		}
		if before != nil && before.sameLoans(state) {
			status = state.sum()
			status.Epoch, err = strconv.ParseInt(s.epoch, 10, 64)
			return status, true, err
		}
		before = state
	}
}

// Discard is [seckill.Guard.Discard].
func (g *Guard) Discard(ctx context.Context, item string) error {
	return g.Call(ctx, "discard", core.Attempt{}, func() error {
		if item == "" {
			return errNoItem
		}
		defer g.soldOut.Drop(item)
		defer g.missed.Discarded(item)
		at, err := g.whereabouts(ctx, item)
		if err != nil {
			return err
		}
		if at != nil {
			for _, tag := range at.tags {
				if err := g.parts.Discard(ctx, tag); err != nil && !errors.Is(err, seckill.ErrNoSale) {
					return err
				}
			}
		}
		defer g.places.Drop(item)
		return g.parts.Discard(ctx, script.Encode(item)) // the root
	})
}

// Repair is [seckill.Guard.Repair]: the names of the parts that it restores have the number of their bucket.
// It also restores a root from its copy. A lost bucket is restored from its reservations and its outbox,
// which tells what it has lent and borrowed.
func (g *Guard) Repair(ctx context.Context, item string) (restored []string, err error) {
	err = g.Call(ctx, "repair", core.Attempt{}, func() (err error) {
		if item == "" {
			return errNoItem
		}
		defer g.soldOut.Drop(item)
		restored, err = g.repair(ctx, item)
		return err
	})
	return restored, err
}

func (g *Guard) repair(ctx context.Context, item string) (restored []string, err error) {
	at, err := g.whereabouts(ctx, item)
	if err == nil && at == nil {
		err = seckill.ErrNoSale
	}
	if err != nil {
		return nil, err
	}
	rooted, err := script.Query(ctx, g.Engine().Runner, redis.NewIntCmd(ctx, "exists", g.rootKeys(item)[0]))
	if err != nil {
		return nil, err
	}
	if rooted == 0 {
		if _, _, err := g.askRoot(ctx, item, at.epoch, restores); err != nil {
			return nil, err
		}
		restored = append(restored, "sale")
	}
	for n, tag := range at.tags {
		parts, err := g.parts.Repair(ctx, tag)
		for _, part := range parts {
			restored = append(restored, fmt.Sprintf("bucket %d: %s", n, part))
		}
		if err != nil {
			return restored, fmt.Errorf("bucket %d: %w", n, err)
		}
	}
	return restored, nil
}

// moved is what the outbox of a bucket tells of its loans: how many units it has borrowed, less those that it
// has lent, and the fields of its hash. The loans are all said to be on their way: to accept one again is to
// accept it once.
func (g *Guard) moved(ctx context.Context, tag string) (units int64, fields map[string]string, err error) {
	const page = 1000
	fields = map[string]string{}
	for after, opened := "", false; ; {
		events, err := g.parts.Events(ctx, tag, after, page)
		if err != nil {
			return 0, nil, err
		}
		for _, e := range events {
			after = e.Position
			opened = opened || e.Kind == seckill.EventOpened
			ends := strings.Split(e.Key, "-") // from, to, number
			if e.Kind != seckill.EventMoved || len(ends) != 3 {
				continue
			}
			units += e.Quantity
			if e.Quantity < 0 {
				fields["lent|"+ends[1]] = fmt.Sprintf("%s %d", ends[2], -e.Quantity)
			} else {
				fields["accepted|"+ends[0]] = ends[2]
			}
		}
		if len(events) < page {
			if !opened {
				err = fmt.Errorf("%w: bucket %.100q has no outbox to restore it from", seckill.ErrLost, tag)
			}
			return units, fields, err
		}
	}
}

// saleState holds the contents of the hashes of all buckets.
type saleState []bucketState

// bucketState is the contents of the hash of one bucket.
type bucketState struct {
	seckill.Status
	moves    int64
	lent     map[int]loan  // the last to each bucket; 0 units when it is finished
	accepted map[int]int64 // the number of the last loan from each bucket
}

// lookAll reads the hashes of all buckets concurrently, so they are from different moments.
func (s *spread) lookAll(ctx context.Context) (state saleState, found bool, err error) {
	state = make(saleState, len(s.tags))
	there := make([]bool, len(s.tags))
	err = s.each(func(n int, _ string) (err error) {
		state[n], there[n], err = s.look(ctx, n)
		return err
	})
	return state, !slices.Contains(there, false), err
}

// look reads the hash of a bucket.
func (s *spread) look(ctx context.Context, n int) (state bucketState, found bool, err error) {
	fields, err := script.Query(ctx, s.g.Engine().Runner,
		redis.NewMapStringStringCmd(ctx, "hgetall", s.keys(n)[0]))
	if err != nil || fields["stock"] == "" {
		return state, false, err
	}
	number := func(text string) int64 {
		n, wrong := strconv.ParseInt(text, 10, 64)
		if wrong != nil && err == nil {
			err = fmt.Errorf("status of %.100q: %w", s.item, wrong)
		}
		return n
	}
	state.Stock, state.Left = number(fields["stock"]), number(fields["left"])
	state.Held, state.Sold = number(fields["held"]), number(fields["sold"])
	state.moves = number(fields["moves"])
	state.lent, state.accepted = map[int]loan{}, map[int]int64{}
	for field, text := range fields {
		what, other, _ := strings.Cut(field, "|")
		switch what {
		case "lent":
			to := int(number(other))
			nth, units, _ := strings.Cut(text, " ")
			state.lent[to] = loan{n, to, number(nth), number(units)}
		case "accepted":
			state.accepted[int(number(other))] = number(text)
		}
	}
	return state, err == nil, err
}

// sameLoans reports whether two states have the same loans. Then no units moved from the first to the second.
func (s saleState) sameLoans(other saleState) bool {
	return slices.EqualFunc(s, other, func(a, b bucketState) bool {
		return maps.Equal(a.lent, b.lent) && maps.Equal(a.accepted, b.accepted)
	})
}

// same reports whether two states are equal.
func (s saleState) same(other saleState) bool {
	return s.sameLoans(other) && slices.EqualFunc(s, other, func(a, b bucketState) bool {
		return a.Status == b.Status && a.moves == b.moves
	})
}

// inTransit returns the number of units on their way: lent, and not accepted.
func (s saleState) inTransit() (units int64) {
	for _, bucket := range s {
		for _, l := range bucket.lent {
			if l.to < len(s) && s[l.to].accepted[l.from] < l.number {
				units += l.units
			}
		}
	}
	return units
}

// sum adds up the buckets. Units on their way count as left.
func (s saleState) sum() (sum seckill.Status) {
	for _, bucket := range s {
		sum = plus(sum, bucket.Status)
	}
	sum.Stock += s.inTransit()
	sum.Left += s.inTransit()
	return sum
}

func plus(a, b seckill.Status) seckill.Status {
	return seckill.Status{
		Stock: a.Stock + b.Stock, Left: a.Left + b.Left, Held: a.Held + b.Held, Sold: a.Sold + b.Sold,
	}
}
