package seckill

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
)

// bucket is the stock of a sale in one slot of Redis: a whole sale at the item's own keys, or one part of
// a [spread].
type bucket struct {
	g      *Guard
	item   string
	number int    // in a spread
	tag    string // of its keys
	epoch  string // part of the keys in a spread; empty: the item's own keys
}

// single returns the stock of a sale at the item's own keys.
func (g *Guard) single(item string) *bucket {
	return &bucket{g: g, item: item, tag: script.Encode(item)}
}

func (b *bucket) key(field string) string {
	if b.epoch == "" {
		return b.g.Key(b.tag, field)
	}
	return b.g.Key(b.tag, field, b.epoch)
}

// keys returns the keys of the bucket in the order of the scripts' KEYS.
func (b *bucket) keys() []string {
	keys := []string{b.key("sale"), b.key("buyers"), b.key("holds"), b.key("reservations")}
	if !b.g.options.NoOutbox {
		keys = append(keys, b.key("outbox"))
	}
	return keys
}

// now returns the last argument of the scripts: see [core.Engine.ScriptNow].
func (b *bucket) now() any { return b.g.Engine().ScriptNow(time.Millisecond) }

// run runs a script whose reply nobody relies on.
func (b *bucket) run(ctx context.Context, s *script.Script, args ...any) (any, error) {
	return b.g.Engine().RunWithin(ctx, b.g.Engine().SettleTimeout(), s, b.keys(), args...)
}

// runYes runs a script whose yes must last: see [Guard.runYes].
func (b *bucket) runYes(ctx context.Context, s *script.Script, args ...any) (any, error) {
	return b.g.runYes(ctx, b.g.Engine().SettleTimeout(), s, b.keys(), args...)
}

func (b *bucket) same(other stock) bool {
	of, ok := other.(*bucket)
	return ok && of.tag == b.tag && of.epoch == b.epoch
}

// open returns 1 when it has opened the bucket, 0 when that exists, and 2 when the item has a root of several
// buckets. It returns ErrRemains when the bucket does not exist and keys of an earlier one do.
func (b *bucket) open(ctx context.Context, share int64, terms terms) (int64, error) {
	value, err := b.runYes(ctx, seckillOpenScript,
		share, terms.opens, terms.closes, terms.perBuyer, terms.hold, terms.keep, b.epoch, b.now())
	if err != nil {
		return 0, err
	}
	reply, err := script.ReadNumber(value)
	if err == nil && reply < 0 {
		err = fmt.Errorf("%w (%.100q)", ErrRemains, b.item)
	}
	return reply, err
}

// terms are the terms of a sale as the scripts take them: times and durations in milliseconds.
type terms struct{ opens, closes, perBuyer, hold, keep any }

// termsOf returns the terms of a sale that is kept for the duration keep after its last change.
func termsOf(sale Sale, keep time.Duration) terms {
	return terms{
		opens: schedule.Milli(sale.Opens), closes: schedule.Milli(sale.Closes),
		perBuyer: sale.PerBuyer, hold: sale.Hold.Milliseconds(), keep: keep.Milliseconds(),
	}
}

func (b *bucket) reserve(ctx context.Context, a core.Attempt) (d core.Decision, then next, err error) {
	d = core.Decision{Guard: b.g.Name(), Attempt: a}
	value, err := b.ask(ctx, a)
	if err != nil {
		return d, decided, err
	}
	var reason, state string
	var replayed, more bool
	var left, stock int64
	var wait time.Duration
	var r *script.Reply
	if _, short := value.(string); short { // most refusals
		r = script.ReadWords(value, 3)
		reason, left, stock = r.Text(), r.Number(), r.Number()
	} else {
		r = script.ReadReply(value, 7, 7)
		reason, replayed, state = r.Text(), r.Flag(), r.Text()
		left, stock, wait, more = r.Number(), r.Number(), r.Duration(time.Millisecond), r.Flag()
	}
	if r.Err != nil {
		return d, decided, r.Err
	}
	if part, lost := strings.CutPrefix(reason, "lost "); lost {
		d.Reason, d.Source = core.ReasonNotReady, core.SourceRedis
		d.SetClaim(lostPart(part))
		return d, askRoot, nil
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.Kept = replayed && State(state) == StateSold
	d.SetClaim(State(state))
	d.Allowed = d.Reason == core.ReasonOK
	d.Limit, d.Remaining = stock, left
	switch {
	case d.Allowed:
		d.ResetAfter = wait
	case d.Reason == core.ReasonInProgress:
		d.RetryAfter = min(wait, askInProgress)
	default:
		d.RetryAfter = wait
	}
	switch {
	case more:
		then = askAgain
	case d.Reason == core.ReasonNotReady:
		then = askRoot
	}
	return d, then, nil
}

// ask runs the script for an attempt, or one for the attempts of the same moment at this bucket. A guard that
// is Acked asks for each attempt by itself: it waits for replicas on the connection of the script.
func (b *bucket) ask(ctx context.Context, a core.Attempt) (any, error) {
	e, keys := b.g.Engine(), b.keys()
	args := []any{sweepMost, b.now(), script.Encode(a.ID), script.Encode(a.Actor), a.Cost, a.Call()}
	if b.g.options.Durability != Fast {
		return b.g.runYes(ctx, e.Deadline(), seckillReserveScript, keys, args...)
	}
	return e.RunJoined(ctx, e.Deadline(), script.Joint{
		Script: seckillReserveJoinedScript, Group: keys[0], Args: args[:2], Own: args[2:],
	}, seckillReserveScript, keys, args...)
}

// borrow does nothing: a sale of one bucket has no other to borrow from.
func (b *bucket) borrow(context.Context, *core.Decision, time.Time) (next, error) {
	return decided, nil
}

func (b *bucket) reserved(d core.Decision, asked saleAsked) { b.g.memory.hear(d, asked) }

func (b *bucket) end(ctx context.Context, e ending, a core.Attempt) (core.Decision, error) {
	d := core.Decision{Guard: b.g.Name(), Attempt: core.Attempt{Resource: a.Resource, ID: a.ID}}
	args := append([]any{script.Encode(a.ID)}, e.args(a)...)
	value, err := e.run(ctx, b.g.Engine().SettleTimeout(), e.script, b.keys(), args...)
	if err != nil {
		return d, err
	}
	r := script.ReadReply(value, 6, 6)
	reason, replayed, buyer := r.Text(), r.Flag(), r.Text()
	quantity, left, stock := r.Number(), r.Number(), r.Number()
	if r.Err == nil {
		r.Err = lostError(b.item, reason)
	}
	if r.Err != nil {
		return d, r.Err
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.Attempt.Actor, d.Attempt.Cost = script.Decode(buyer), quantity
	d.Limit, d.Remaining = stock, left
	if d.Allowed = d.Reason == core.ReasonOK; d.Allowed {
		d.SetClaim(e.state)
	}
	return d, nil
}

// askInProgress is when a caller whose reservation is in progress should ask again: others who
// share it settle when their requests end.
const askInProgress = time.Second

// sweepWords is the number of words in a reply of seckill_sweep without open loans.
const sweepWords = 4

func (b *bucket) sweep(ctx context.Context) (swept int64, found bool, err error) {
	value, err := b.run(ctx, seckillSweepScript, sweepMost, b.now())
	if err != nil {
		return 0, false, err
	}
	r := script.ReadReply(value, sweepWords, sweepWords+3*maxBuckets)
	reason, swept := r.Text(), r.Number()
	if reason == "not_ready" {
		return 0, false, nil
	}
	if err := lostError(b.item, reason); err != nil {
		return 0, true, err
	}
	return swept, true, r.Err
}

func (b *bucket) status(ctx context.Context) (Status, bool, error) {
	state, found, err := b.look(ctx)
	return state.Status, found, err
}

func (b *bucket) terms(ctx context.Context) (string, bool, error) {
	state, found, err := b.look(ctx)
	return state.terms, found, err
}

func (b *bucket) restock(
	ctx context.Context, id string, units int64,
) (reason string, status Status, err error) {
	value, err := b.runYes(ctx, seckillRestockScript, script.Encode(id), units, b.now())
	if err != nil {
		return "", status, err
	}
	r := script.ReadReply(value, 6, 6)
	reason = r.Text()
	status = Status{Stock: r.Number(), Left: r.Number(), Held: r.Number(), Sold: r.Number()}
	status.Epoch, _ = strconv.ParseInt(r.Text(), 10, 64)
	if err := lostError(b.item, reason); err != nil {
		return reason, Status{}, err
	}
	return reason, status, r.Err
}

func (b *bucket) close(ctx context.Context) (found bool, err error) {
	value, err := b.runYes(ctx, seckillCloseScript, b.now())
	if err != nil {
		return false, err
	}
	closed, err := script.ReadNumber(value)
	return closed >= 0, err
}

// events starts from the beginning if the position belongs to a spread, that is, to an earlier sale.
func (b *bucket) events(ctx context.Context, after string, count int) ([]Event, error) {
	if strings.Contains(after, ":") {
		after = ""
	}
	return b.read(ctx, after, count)
}

// read reads the bucket's outbox after a stream ID.
func (b *bucket) read(ctx context.Context, after string, count int) ([]Event, error) {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	messages, err := script.Query(ctx, b.g.Engine().Runner,
		redis.NewXMessageSliceCmd(ctx, "xrange", b.key("outbox"), from, "+", "count", count))
	if err != nil {
		return nil, err
	}
	events := make([]Event, len(messages))
	for i, message := range messages {
		if events[i], err = ParseEvent(message); err != nil {
			return nil, err
		}
		events[i].Bucket = b.number
	}
	return events, nil
}

func (b *bucket) outboxes(ctx context.Context) (keys []string, found bool, err error) {
	if _, found, err = b.look(ctx); err != nil || !found {
		return nil, found, err
	}
	return []string{b.key("outbox")}, true, nil
}

func (b *bucket) count(ctx context.Context) (Verification, bool, error) {
	c := saleCount{ctx: ctx, bucket: b}
	c.Item, c.NoOutbox = b.item, b.g.options.NoOutbox
	before, found := c.mark()
	if !found {
		return c.Verification, false, c.err
	}
	c.lost()
	c.reservations()
	c.buyers()
	c.outbox()
	after, found := c.mark()
	c.Moving = c.Moving || before != after
	return c.Verification, found, c.err
}

// bucketState is the contents of the hash of one bucket. lent and accepted are loans between the buckets
// of a spread.
type bucketState struct {
	Status
	terms    string
	moves    int64
	lent     map[int]loan  // the last to each bucket; 0 units when it is finished
	accepted map[int]int64 // the number of the last loan from each bucket
}

// look reads the hash of the bucket.
func (b *bucket) look(ctx context.Context) (state bucketState, found bool, err error) {
	fields, err := script.Query(ctx, b.g.Engine().Runner, redis.NewMapStringStringCmd(ctx, "hgetall", b.key("sale")))
	if err != nil {
		return state, false, err
	}
	if _, found = fields["stock"]; !found {
		return state, false, nil
	}
	for _, field := range []string{"left", "held", "sold"} {
		if _, ok := fields[field]; !ok {
			return state, false, fmt.Errorf("status of %.100q: %s is missing", b.item, field)
		}
	}
	number := func(text string) int64 {
		n, wrong := strconv.ParseInt(text, 10, 64)
		if wrong != nil && err == nil {
			err = fmt.Errorf("status of %.100q: %w", b.item, wrong)
		}
		return n
	}
	state.terms = fields["terms"]
	state.lent, state.accepted = map[int]loan{}, map[int]int64{}
	counters := map[string]*int64{
		"stock": &state.Stock, "left": &state.Left, "held": &state.Held, "sold": &state.Sold,
		"epoch": &state.Epoch, "moves": &state.moves,
	}
	for field, text := range fields {
		what, other, _ := strings.Cut(field, "|")
		switch what {
		case "lent":
			to := int(number(other))
			nth, units, _ := strings.Cut(text, " ")
			state.lent[to] = loan{b.number, to, number(nth), number(units)}
		case "accepted":
			state.accepted[int(number(other))] = number(text)
		default:
			if counter := counters[what]; counter != nil {
				*counter = number(text)
			}
		}
	}
	return state, err == nil, err
}
