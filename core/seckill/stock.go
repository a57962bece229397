package seckill

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/saleops"
)

// stock is the stock of one sale, at its keys in Redis.
type stock struct {
	g    *Guard
	item string
	tag  string // of its keys
}

// stockOf returns the stock of an item.
func (g *Guard) stockOf(item string) *stock { return &stock{g, item, g.tagOf(item)} }

func (s *stock) key(field string) string { return s.g.Key(s.tag, field) }

// keys returns the keys of the sale in the order of the scripts' KEYS.
func (s *stock) keys() []string {
	keys := []string{s.key("sale"), s.key("buyers"), s.key("holds"), s.key("reservations")}
	if !s.g.options.NoOutbox {
		keys = append(keys, s.key("outbox"))
	}
	return keys
}

// now returns the last argument of the scripts: see [core.Engine.ScriptNow].
func (s *stock) now() any { return s.g.Engine().ScriptNow(time.Millisecond) }

// run runs a script whose reply nobody relies on.
func (s *stock) run(ctx context.Context, of *script.Script, args ...any) (any, error) {
	return s.g.Engine().RunWithin(ctx, s.g.Engine().SettleTimeout(), of, s.keys(), args...)
}

// runYes runs a script whose yes must last: see [Guard.runYes].
func (s *stock) runYes(ctx context.Context, of *script.Script, args ...any) (any, error) {
	return s.g.runYes(ctx, s.g.Engine().SettleTimeout(), of, s.keys(), args...)
}

// open opens the sale and reports whether it did. Its terms are those of [Guard.terms], and an empty epoch
// means now. It returns ErrRemains when the sale does not exist and keys of an earlier one do.
func (s *stock) open(ctx context.Context, terms []any, epoch string) (bool, error) {
	args := append(slices.Clone(terms), epoch, s.now())
	value, err := s.runYes(ctx, seckillOpenScript, args...)
	if err != nil {
		return false, err
	}
	reply, err := script.ReadNumber(value)
	if err == nil && reply < 0 {
		err = fmt.Errorf("%w (%.100q)", ErrRemains, s.item)
	}
	return reply == 1, err
}

// reserve holds units. A script takes back a bounded number of expired holds, so it is asked again while
// there may be more.
func (s *stock) reserve(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := time.Now()
	d, more, err := s.reserveOnce(ctx, a)
	for more && err == nil {
		bounded, cancel := context.WithDeadline(ctx, begun.Add(s.g.Engine().Deadline()))
		d, more, err = s.reserveOnce(bounded, a)
		cancel()
	}
	return d, err
}

func (s *stock) reserveOnce(ctx context.Context, a core.Attempt) (d core.Decision, more bool, err error) {
	d = core.Decision{Guard: s.g.Name(), Attempt: a}
	value, err := s.ask(ctx, a)
	if err != nil {
		return d, false, err
	}
	var reason, state string
	var replayed bool
	var left, units int64
	var wait time.Duration
	var r *script.Reply
	if _, short := value.(string); short { // most refusals
		r = script.ReadWords(value, 3)
		reason, left, units = r.Text(), r.Number(), r.Number()
		if r.More() {
			state, wait = r.Text(), r.Duration(time.Millisecond)
		}
	} else {
		r = script.ReadReply(value, 7, 7)
		reason, replayed, state = r.Text(), r.Flag(), r.Text()
		left, units, wait, more = r.Number(), r.Number(), r.Duration(time.Millisecond), r.Flag()
	}
	if r.Err != nil {
		return d, false, r.Err
	}
	if part, lost := strings.CutPrefix(reason, "lost "); lost {
		d.Reason, d.Source = core.ReasonNotReady, core.SourceRedis
		d.SetClaim(lostPart(part))
		return d, false, nil
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.Kept = replayed && State(state) == StateSold
	d.Allowed = d.Reason == core.ReasonOK
	d.Limit, d.Remaining = units, left
	switch {
	case d.Reason == core.ReasonDuplicate:
		if !strings.HasPrefix(state, "#") { // a hash, whose ID is unknown
			d.SetClaim(waiting(script.Decode(state)))
			d.ResetAfter = wait
		}
	case d.Allowed:
		d.SetClaim(State(state))
		d.ResetAfter = wait
	case d.Reason == core.ReasonInProgress:
		d.RetryAfter = min(wait, askInProgress)
	default:
		d.RetryAfter = wait
	}
	return d, more, nil
}

// ask runs the script for an attempt, or for those of the same moment at this item. A guard that
// is Acked asks for each attempt by itself: it waits for replicas on the connection of the script.
func (s *stock) ask(ctx context.Context, a core.Attempt) (any, error) {
	e, keys := s.g.Engine(), s.keys()
	args := []any{saleops.SweepMost, s.now(), script.Encode(a.ID), script.Encode(a.Actor), a.Cost, a.Call()}
	if s.g.options.Durability != Fast {
		return s.g.runYes(ctx, e.Deadline(), seckillReserveScript, keys, args...)
	}
	return e.RunJoined(ctx, e.Deadline(), script.Join{
		Script: seckillReserveJoinedScript, Group: keys[0], Args: args[:2], Own: args[2:],
	}, seckillReserveScript, keys, args...)
}

// end confirms or cancels a reservation. A script takes back a bounded number of expired holds, so it is
// asked again while there may be more.
func (s *stock) end(ctx context.Context, e ending, a core.Attempt) (core.Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, s.g.Engine().SettleTimeout())
	defer cancel()
	d, more, err := s.endOnce(ctx, e, a)
	for more && err == nil {
		d, more, err = s.endOnce(ctx, e, a)
	}
	return d, err
}

func (s *stock) endOnce(
	ctx context.Context, e ending, a core.Attempt,
) (d core.Decision, more bool, err error) {
	d = core.Decision{Guard: s.g.Name(), Attempt: core.Attempt{Resource: a.Resource, ID: a.ID}}
	args := append([]any{script.Encode(a.ID)}, e.args(a)...)
	value, err := e.run(ctx, s.g.Engine().SettleTimeout(), e.script, s.keys(), args...)
	if err != nil {
		return d, false, err
	}
	r := script.ReadReply(value, 6, 7)
	reason, replayed, buyer := r.Text(), r.Flag(), r.Text()
	quantity, left, units := r.Number(), r.Number(), r.Number()
	more = r.More() && r.Flag()
	if r.Err == nil {
		r.Err = lostError(s.item, reason)
	}
	if r.Err != nil {
		return d, false, r.Err
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.Attempt.Actor, d.Attempt.Cost = script.Decode(buyer), quantity
	d.Limit, d.Remaining = units, left
	if d.Allowed = d.Reason == core.ReasonOK; d.Allowed {
		d.SetClaim(e.state)
	}
	return d, more, nil
}

// askInProgress is when a caller whose reservation is in progress should ask again: others who
// share it settle when their requests end.
const askInProgress = time.Second

// sweep takes back expired holds, and returns their number. A sale that does not exist has none.
func (s *stock) sweep(ctx context.Context) (int, error) {
	value, err := s.run(ctx, seckillSweepScript, saleops.SweepMost, s.now())
	if err != nil {
		return 0, err
	}
	r := script.ReadReply(value, 2, 2)
	reason, swept := r.Text(), r.Number()
	if err := lostError(s.item, reason); err != nil {
		return 0, err
	}
	return int(swept), r.Err
}

// restock changes the stock, once per ID. The reason is that of the script. Like end, it asks again while
// there may be more expired holds.
func (s *stock) restock(
	ctx context.Context, id string, units int64,
) (reason string, status Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.g.Engine().SettleTimeout())
	defer cancel()
	for more := true; more && err == nil; {
		reason, status, more, err = s.restockOnce(ctx, id, units)
	}
	return reason, status, err
}

func (s *stock) restockOnce(
	ctx context.Context, id string, units int64,
) (reason string, status Status, more bool, err error) {
	value, err := s.runYes(ctx, seckillRestockScript, script.Encode(id), units, saleops.SweepMost, s.now())
	if err != nil {
		return "", status, false, err
	}
	r := script.ReadReply(value, 6, 7)
	reason = r.Text()
	status = Status{Stock: r.Number(), Left: r.Number(), Held: r.Number(), Sold: r.Number()}
	status.Epoch, _ = strconv.ParseInt(r.Text(), 10, 64)
	more = r.More() && r.Flag()
	if err := lostError(s.item, reason); err != nil {
		return reason, Status{}, false, err
	}
	return reason, status, more, r.Err
}

// close ends the sale now, and reports whether it was open until then.
func (s *stock) close(ctx context.Context) (bool, error) {
	value, err := s.runYes(ctx, seckillCloseScript, s.now())
	if err != nil {
		return false, err
	}
	closed, err := script.ReadNumber(value)
	if err == nil && closed < 0 {
		err = ErrNoSale
	}
	return closed > 0, err
}

// read reads the outbox after a stream ID.
func (s *stock) read(ctx context.Context, after string, count int) ([]Event, error) {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	messages, err := script.Query(ctx, s.g.Engine().Runner,
		redis.NewXMessageSliceCmd(ctx, "xrange", s.key("outbox"), from, "+", "count", count))
	if err != nil {
		return nil, err
	}
	events := make([]Event, len(messages))
	for i, message := range messages {
		if events[i], err = ParseEvent(message); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// count counts the sale's records once.
func (s *stock) count(ctx context.Context) (Verification, error) {
	c := saleCount{ctx: ctx, stock: s}
	c.Item, c.NoOutbox = s.item, s.g.options.NoOutbox
	before := c.mark()
	if c.err != nil {
		return c.Verification, c.err
	}
	c.lost()
	c.reservations()
	c.buyers()
	c.outbox()
	after := c.mark()
	c.Moving = c.Moving || before != after
	return c.Verification, c.err
}

// state is what the hash of a sale says.
type state struct {
	Status
	terms string // see seckill/open.lua
}

// look reads the hash of the sale, which has to exist.
func (s *stock) look(ctx context.Context) (now state, err error) {
	fields, err := script.Query(ctx, s.g.Engine().Runner,
		redis.NewMapStringStringCmd(ctx, "hgetall", s.key("sale")))
	if err != nil {
		return now, err
	}
	if _, found := fields["stock"]; !found {
		return now, ErrNoSale
	}
	for field, counter := range map[string]*int64{
		"stock": &now.Stock, "left": &now.Left, "held": &now.Held, "sold": &now.Sold, "epoch": &now.Epoch,
	} {
		var wrong error
		if *counter, wrong = strconv.ParseInt(fields[field], 10, 64); wrong != nil {
			err = fmt.Errorf("status of %.100q: %s: %w", s.item, field, wrong)
		}
	}
	now.terms = fields["terms"]
	return now, err
}
