package seckill

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Repair restores the parts of a sale that were lost, and returns their names. A sale that has lost a part
// refuses all attempts, so no buyer's units change. Buyers can go on when Repair has returned. It is safe
// to call it twice, or for a sale that is whole.
//
// Buyers and timers of holds are restored from the reservations, reservations from the outbox, the sale
// itself from the reservations. Calls under way when a reservation was restored are forgotten: their holds
// are confirmed or expire, and [WaitingOf] does not know them. What was cancelled after its hold is restored
// as expired. If the source is lost too, or was never there ([Options].NoOutbox), Repair returns an ErrLost
// that names it. Then only [Guard.Discard] and a new Open help. A lost outbox is not restored and stops
// nothing; [Guard.Verify] shows it. ErrNoSale means that nothing is there.
func (g *Guard) Repair(ctx context.Context, item string) (restored []string, err error) {
	err = g.Call(ctx, "repair", core.Attempt{}, func() (err error) {
		if item == "" {
			return errNoItem
		}
		defer g.memory.gaveBack(item, "")
		restored, err = g.stockOf(item).repair(ctx)
		return err
	})
	return restored, err
}

// repair restores the parts of the sale, each from those before it.
func (s *stock) repair(ctx context.Context) (restored []string, err error) {
	there, err := s.exists(ctx, "sale", "buyers", "holds", "reservations")
	if err != nil {
		return nil, err
	}
	if len(there) == 0 {
		return nil, ErrNoSale
	}
	// The sale comes last: until it is there no script goes on.
	for _, step := range []struct {
		part, from string
		restore    func(ctx context.Context, other string, restored []string) ([]string, error)
	}{
		{"reservations", "sale", s.repairReservations},
		{"buyers", "reservations", s.repairBuyers},
		{"holds", "reservations", s.repairHolds},
		{"sale", "reservations", s.repairSale},
	} {
		if there[step.part] {
			continue
		}
		if !there[step.from] {
			return restored, fmt.Errorf("%w: %s and %s of %.100q: one of them is needed",
				ErrLost, step.part, step.from, s.item)
		}
		if restored, err = step.restore(ctx, step.from, restored); err != nil {
			return restored, err
		}
		there[step.part] = true
	}
	return restored, nil
}

// repairChunk is how many pairs one call writes.
const repairChunk = 1000

// put restores a part with these fields and values, or scores and members. The other part is there.
func (s *stock) put(ctx context.Context, part, other string, pairs, restored []string) ([]string, error) {
	kind := "hash"
	if part == "holds" {
		kind = "zset"
	}
	keys := []string{s.key(other), s.key(part), s.draft()}
	call := func(args ...any) error {
		value, err := s.g.runYes(ctx, s.g.Engine().SettleTimeout(), seckillRepairScript, keys, args...)
		if err != nil {
			return err
		}
		if done, err := script.ReadNumber(value); err != nil || done >= 0 {
			return err
		}
		return fmt.Errorf("%w: %s of %.100q, while %s was restored", ErrLost, other, s.item, part)
	}
	for chunk := range slices.Chunk(pairs, 2*repairChunk) {
		args := []any{kind}
		for _, word := range chunk {
			args = append(args, word)
		}
		if err := call(args...); err != nil {
			return restored, err
		}
	}
	if err := call("end"); err != nil {
		return restored, err
	}
	return append(restored, part), nil
}

// draft is a key for the data that one call of Repair restores.
func (s *stock) draft() string { return s.g.Key(s.tag, "repair", rand.Text()[:10]) }

// records calls f with the record of each reservation: its ID, state, buyer, quantity and end.
func (s *stock) records(ctx context.Context, f func(id string, words []string)) error {
	c := saleCount{ctx: ctx, stock: s}
	seen := map[string]bool{}
	c.scan("reservations", func(pairs []string) {
		for i := 0; i < len(pairs); i += 2 {
			id, words := pairs[i], strings.Fields(pairs[i+1])
			if strings.Contains(id, "|") || seen[id] {
				continue
			}
			seen[id] = true
			if len(words) < 5 {
				c.fail("reservation", id, pairs[i+1])
				return
			}
			f(id, words)
		}
	})
	return c.err
}

func (s *stock) repairBuyers(ctx context.Context, from string, restored []string) ([]string, error) {
	units, failed := map[string]int64{}, error(nil)
	err := s.records(ctx, func(_ string, words []string) {
		if words[0] == string(StateHeld) || words[0] == string(StateSold) {
			n, err := strconv.ParseInt(words[2], 10, 64)
			if err != nil {
				failed = err
			}
			units[words[1]] += n
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return restored, err
	}
	terms, err := s.openedWith(ctx)
	if err != nil {
		return restored, err
	}
	pairs := []string{"|", terms[0]}
	for buyer, n := range units {
		pairs = append(pairs, buyer, strconv.FormatInt(n, 10))
	}
	return s.put(ctx, "buyers", from, pairs, restored)
}

func (s *stock) repairHolds(ctx context.Context, from string, restored []string) ([]string, error) {
	pairs := []string{"+inf", "|"}
	err := s.records(ctx, func(id string, words []string) {
		if words[0] == string(StateHeld) {
			pairs = append(pairs, words[3], id)
		}
	})
	if err != nil {
		return restored, err
	}
	return s.put(ctx, "holds", from, pairs, restored)
}

// openedWith returns the terms that the sale was opened with: epoch, stock, opens, closes, per_buyer, hold,
// keep.
func (s *stock) openedWith(ctx context.Context) ([]string, error) {
	text, err := script.Query(ctx, s.g.Engine().Runner,
		redis.NewStringCmd(ctx, "hget", s.key("reservations"), "|"))
	if err != nil {
		return nil, err
	}
	terms := strings.Fields(text)
	if len(terms) != 7 {
		return nil, fmt.Errorf("terms of %.100q: unexpected %.100q", s.item, text)
	}
	return terms, nil
}

// retold is what the outbox tells of a sale.
type retold struct {
	epoch        string
	stock        int64
	reservations map[string]*retoldReservation // by their IDs as they are kept
	restocks     map[string]int64
	failed       map[string][]string // of a buyer: each ID and its events, as seckill_reserve has them
}

func newRetold() *retold {
	return &retold{
		reservations: map[string]*retoldReservation{}, restocks: map[string]int64{}, failed: map[string][]string{},
	}
}

type retoldReservation struct{ state, buyer, quantity, ends, event string }

// retell reads the outbox.
func (s *stock) retell(ctx context.Context) (*retold, error) {
	told := newRetold()
	if s.g.options.NoOutbox {
		return nil, fmt.Errorf("%w: %.100q has no outbox to restore it from", ErrLost, s.item)
	}
	for after := "-"; ; {
		messages, err := script.Query(ctx, s.g.Engine().Runner, redis.NewXMessageSliceCmd(ctx,
			"xrange", s.key("outbox"), after, "+", "count", verifyChunk))
		if err != nil {
			return nil, err
		}
		for _, message := range messages {
			e, err := ParseEvent(message)
			if err != nil {
				return nil, err
			}
			buyer, _ := message.Values["buyer"].(string)
			told.tell(e, buyer)
			after = "(" + message.ID
		}
		if len(messages) < verifyChunk {
			break
		}
	}
	if told.epoch == "" {
		return nil, fmt.Errorf("%w: the outbox of %.100q does not tell of its opening", ErrLost, s.item)
	}
	return told, nil
}

// tell takes note of one event. The buyer is as the outbox has it.
func (r *retold) tell(e Event, buyer string) {
	units := strconv.FormatInt(e.Quantity, 10)
	switch e.Kind {
	case EventOpened:
		*r = *newRetold() // of an earlier sale nothing counts
		r.epoch, r.stock = strconv.FormatInt(e.Epoch, 10), e.Quantity
	case EventHeld:
		ends := strconv.FormatInt(e.Ends.UnixMilli(), 10)
		r.reservations[e.Key] = &retoldReservation{"held", buyer, units, ends, e.Position}
	case EventSold, EventCancelled, EventExpired:
		known := r.reservations[e.Key]
		if known == nil {
			known = &retoldReservation{"", buyer, units, "0", "-"}
			r.reservations[e.Key] = known
		}
		began := known.event
		known.state, known.event = string(e.Kind), "-"
		if e.Kind != EventSold {
			r.failed[buyer] = append(r.failed[buyer], strings.Join([]string{e.Key, began, e.Position}, " "))
			known.event = strconv.Itoa(len(r.failed[buyer]))
		}
	case EventRestocked:
		r.restocks[e.Key] = e.Quantity
	case EventMoved, EventClosed, EventWithdrawn: // which a cancelled one follows
	}
}

func (s *stock) repairReservations(ctx context.Context, from string, restored []string) ([]string, error) {
	told, err := s.retell(ctx)
	if err != nil {
		return restored, err
	}
	fields, err := script.Query(ctx, s.g.Engine().Runner,
		redis.NewMapStringStringCmd(ctx, "hgetall", s.key("sale")))
	if err != nil {
		return restored, err
	}
	opened, ok := cutLastWord(fields["terms"])
	if !ok {
		return restored, fmt.Errorf("terms of %.100q: unexpected %.100q", s.item, fields["terms"])
	}
	pairs := []string{"|", fmt.Sprintf("%s %d %s", fields["epoch"], told.stock, opened)}
	for id, r := range told.reservations {
		pairs = append(pairs, id, strings.Join([]string{r.state, r.buyer, r.quantity, r.ends, r.event}, " "))
	}
	for id, units := range told.restocks {
		pairs = append(pairs, "restock|"+id, strconv.FormatInt(units, 10))
	}
	most, err := failedMost(opened)
	if err != nil {
		return restored, err
	}
	for buyer, failed := range told.failed {
		pairs = append(pairs, "failed|"+buyer, strconv.Itoa(len(failed)))
		for i, one := range failed {
			pairs = append(pairs, fmt.Sprintf("failed|%s|%d", buyer, (int64(i)+1)%most), one)
		}
	}
	return s.put(ctx, "reservations", from, pairs, restored)
}

// failedMost returns how many failed reservations of a buyer are kept in a sale with these terms.
func failedMost(terms string) (int64, error) {
	words := strings.Fields(terms) // opens closes per_buyer ...
	if len(words) < 3 {
		return 0, fmt.Errorf("unexpected terms %.100q", terms)
	}
	perBuyer, err := strconv.ParseInt(words[2], 10, 64)
	return max(16, min(perBuyer, 500)), err
}

// cutLastWord returns the terms of a sale without until when its keys are kept.
func cutLastWord(terms string) (string, bool) {
	at := strings.LastIndexByte(terms, ' ')
	return terms[:max(at, 0)], at > 0
}

func (s *stock) repairSale(ctx context.Context, from string, restored []string) ([]string, error) {
	terms, err := s.openedWith(ctx)
	if err != nil {
		return restored, err
	}
	stock, err := strconv.ParseInt(terms[1], 10, 64)
	if err != nil {
		return restored, err
	}
	c := saleCount{ctx: ctx, stock: s}
	c.reservations() // held and sold
	restocks := map[string]int64{}
	c.scan("reservations", func(pairs []string) {
		for i := 0; i < len(pairs); i += 2 {
			if id, found := strings.CutPrefix(pairs[i], "restock|"); found {
				restocks[id] = c.number("restock", id, pairs[i+1])
			}
		}
	})
	if c.err != nil {
		return restored, c.err
	}
	for units := range maps.Values(restocks) {
		stock += units
	}
	moved, fields, err := s.g.moved(ctx, s.item)
	if err != nil {
		return restored, err
	}
	stock += moved
	held, sold := c.Reservations.Held, c.Reservations.Sold
	left := stock - held - sold
	for field, n := range map[string]int64{"stock": stock, "left": left, "held": held, "sold": sold} {
		fields[field] = strconv.FormatInt(n, 10)
	}
	// Greater than before, so that a comparison shows the change.
	fields["epoch"], fields["moves"] = terms[0], strconv.FormatInt(s.g.Engine().Now().UnixMilli(), 10)
	fields["terms"] = strings.Join(terms[2:], " ") + " 0" // the next change renews all TTLs
	var pairs []string
	for field, value := range fields {
		pairs = append(pairs, field, value)
	}
	return s.put(ctx, "sale", from, pairs, restored)
}
