package lua_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	salebuckets "github.com/gatehouse-go/gatehouse/core/seckill/buckets"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/core/votes/parts"
	"github.com/gatehouse-go/gatehouse/internal/testkit/saletest"
	"github.com/gatehouse-go/gatehouse/lua"
)

// scenario is a guard's life, in which two processes take turns. It knows no records: it says what callers
// are promised.
type scenario struct {
	name    string
	byClock bool // both sides have the pair's clock
	play    func(*pair)
}

var scenarios = []scenario{
	{"sliding window", true, func(p *pair) { limits(p, slidingWindows) }},
	{"fixed window", true, func(p *pair) { limits(p, fixedWindows) }},
	{"token bucket", true, func(p *pair) { limits(p, tokenBuckets) }},
	{"limits by the server's clock", false, leases},
	{"bans", true, banned},
	{"votes", true, votesOnce},
	{"votes that change", true, votesThatChange},
	{"votes in parts", true, votesInParts},
	{"quota", true, items},
	{"red packets", true, packets},
	{"idempotency", false, operations},
	{"sale", true, func(p *pair) { sale(p, 1) }},
	{"sale of two buckets", true, func(p *pair) { sale(p, 2) }},
	{"semaphore", false, permits},
	{"semaphore, in line", false, permitsInLine},
	{"lock", false, locks},
	{"lock, in line", false, locksInLine},
	{"delay queue", true, tasks},
	{"budget", true, budgets},
	{"desk", true, desks},
	{"waiting room", true, rooms},
}

// limiter is what all limits have.
type limiter interface {
	core.Guard
	Peek(ctx context.Context, a core.Attempt) (core.Decision, error)
	Reset(ctx context.Context, a core.Attempt) error
	Refund(ctx context.Context, d core.Decision) error
}

func slidingWindows(e *core.Engine) []limiter {
	return []limiter{
		limit.NewSlidingWindow(e, "one", limit.PerHour(10)),
		limit.NewSlidingWindow(e, "several", limit.PerHour(10), limit.PerDay(100)),
		limit.NewSlidingWindow(e, "parts", limit.PerHour(10).WithResolution(60)),
		limit.NewSlidingWindow(e, "mixed", limit.PerHour(10), limit.PerDay(100).WithResolution(24)),
	}
}

func fixedWindows(e *core.Engine) []limiter {
	return []limiter{
		limit.NewFixedWindow(e, "one", limit.PerHour(10)),
		limit.NewFixedWindow(e, "several", limit.PerHour(10), limit.PerDay(100)),
	}
}

func tokenBuckets(e *core.Engine) []limiter {
	return []limiter{
		limit.NewTokenBucket(e, "one", limit.PerHour(10)),
		limit.NewTokenBucket(e, "several", limit.PerHour(10), limit.PerDay(100)),
	}
}

// limits: together the sides admit exactly ten, and what one gives back or charges the other knows.
func limits(p *pair, makes func(*core.Engine) []limiter) {
	sides := both(p, makes)
	for kind := range sides[0] {
		g := [2]limiter{sides[0][kind], sides[1][kind]}
		name := g[0].Name()
		admit := func(actor string, turns int) (admitted int) {
			for i := range turns {
				d, err := g[i%2].Check(p.ctx, core.Attempt{Actor: actor})
				p.must(name, err)
				if err == nil && d.Allowed {
					admitted++
				}
			}
			return admitted
		}
		left := func(i int, actor string) int64 {
			d, err := g[i].Peek(p.ctx, core.Attempt{Actor: actor})
			p.must(name+": peek", err)
			return d.Remaining
		}
		p.is(name+": admitted", admit("ann", 4), 4)
		p.clock.Advance(10 * time.Minute)
		before := left(0, "ann")
		p.is(name+": both see the same", left(1, "ann"), before)
		p.is(name+": admitted later", admit("ann", 20), before)
		p.is(name+": nothing is left", []int64{left(0, "ann"), left(1, "ann")}, "[0 0]")
		p.clock.Advance(52 * time.Minute) // the first four units have left, or as many have come back
		free := left(0, "ann")
		p.is(name+": both see what is free", left(1, "ann"), free)
		p.is(name+": admitted in the end", admit("ann", 20), free)

		for i := range 2 {
			other := 1 - i
			actor := fmt.Sprint("bob", i)
			d := p.check(name+": two units", g[i], core.Attempt{Actor: actor, Cost: 2}, core.ReasonOK)
			p.check(name+": three more", g[other], core.Attempt{Actor: actor, Cost: 3}, core.ReasonOK)
			p.must(name+": refund", g[i].Refund(p.ctx, d))
			p.is(name+": after the refund", left(other, actor), 7)
			d = p.check(name+": an estimate", g[i], core.Attempt{Actor: actor}, core.ReasonOK)
			p.settle(name+": spend", g[i], d, core.CommitCost(3))
			p.is(name+": after spending", left(other, actor), 4)
			p.must(name+": reset", g[other].Reset(p.ctx, core.Attempt{Actor: actor}))
			p.is(name+": after the reset", left(i, actor), 10)
		}
	}
}

// leases: together the sides hand out no more than the limit, and checks that one run decides count too.
func leases(p *pair) {
	g := both(p, func(e *core.Engine) core.Guard {
		return lease.New(e, "leased", limit.PerHour(1000))
	})
	admitted := 0
	for i := range 1200 {
		d, err := g[i%2].Check(p.ctx, core.Attempt{Actor: "tenant"})
		p.must("leased", err)
		if err == nil && d.Allowed {
			admitted++
		}
	}
	if admitted > 1000 || admitted < 900 {
		p.is("leased", admitted, "900 to 1000")
	}
	script := script.New("joined", lua.Source("limit/sliding_window"), script.AtMostOnce)
	for i, e := range p.sides {
		ask := func(costs ...any) any {
			args := append([]any{"5/3600000:", ""}, costs...)
			reply, err := e.Run(p.ctx, script, []string{e.Key("joined", "ann")}, args...)
			p.must("joined", err)
			return reply
		}
		ask(1, 1)
		if values, ok := ask(0).([]any); ok && len(values) > 1 {
			p.is("left after those that joined", values[1], 3-2*i)
		}
	}
}

// banned: strikes of both sides count, and a ban of one holds on the other.
func banned(p *pair) {
	g := both(p, func(e *core.Engine) *bans.Guard { return bans.New(e, "abuse", bans.Options{Refusals: 3}) })
	for round := range 2 {
		for i := range 4 {
			is, err := g[i%2].Strike(p.ctx, core.Attempt{Actor: "eve"})
			p.must("strike", err)
			p.is(fmt.Sprint("strike ", i), is, i == 3)
		}
		var lengths [2]time.Duration
		for i := range g {
			if i == 1 { // the other side may remember for a second that there was no ban
				p.check("banned", g[i], core.Attempt{Actor: "eve"}, core.ReasonBanned)
			}
			s, err := g[i].Status(p.ctx, core.Attempt{Actor: "eve"})
			p.must("status", err)
			lengths[i] = s.Left
			p.is("level", s.Level, round+1)
		}
		p.is("length of the ban", lengths[1], lengths[0])
		p.clock.Advance(lengths[0] + time.Second)
		p.check("the ban is over", g[round], core.Attempt{Actor: "eve"}, core.ReasonOK)
	}
	p.must("ban", g[0].Ban(p.ctx, core.Attempt{Actor: "joe"}, time.Hour))
	p.check("banned by an operator", g[1], core.Attempt{Actor: "joe"}, core.ReasonBanned)
	p.must("unban", g[1].Unban(p.ctx, core.Attempt{Actor: "joe"}))
	s, err := g[0].Status(p.ctx, core.Attempt{Actor: "joe"})
	p.must("status", err)
	p.is("what is left of the ban", s.Left, time.Duration(0))
}

func vote(voter, choice, id string) core.Attempt {
	return core.Attempt{Actor: voter, Resource: "final", Item: choice, ID: id}
}

// tally: both sides count the same, and the records agree with it.
func tally[G votes.Polls](p *pair, g [2]G, want map[string]int64) {
	for i := range g {
		counted, err := g[i].Tally(p.ctx, "final")
		p.must("tally", err)
		p.is("tally", counted, want)
		v, err := g[i].Verify(p.ctx, "final")
		p.must("verify", err)
		if err == nil && !v.Consistent() {
			p.is("verification", v, "consistent")
		}
	}
}

// votesOnce: nobody votes on both sides, a retry is a replay on the other, and what one takes back is free.
func votesOnce(p *pair) {
	g := both(p, func(e *core.Engine) *votes.Guard { return votes.New(e, "poll", votes.Options{Audit: true}) })
	for n := range 100 { // more than a bucket holds
		i, voter, id := n%2, fmt.Sprint("voter", n), fmt.Sprint("o", n)
		choice := []string{"red", "red", "blue"}[n%3]
		d := p.check("vote", g[i], vote(voter, choice, id), core.ReasonOK)
		p.settle("vote", g[i], d, core.Commit)
		d = p.check("vote again", g[1-i], vote(voter, choice, id), core.ReasonOK)
		p.is("a replay", d.Replayed, true)
		d = p.check("second vote", g[1-i], vote(voter, "blue", ""), core.ReasonDuplicate)
		p.is("the choice that counts", votes.Choices(d), []string{choice})
	}
	want := map[string]int64{"red": 67, "blue": 33}
	tally(p, g, want)
	for i := range g {
		d := p.check("a vote that fails", g[i], vote("ann", "red", ""), core.ReasonOK)
		p.check("meanwhile", g[1-i], vote("ann", "red", ""), core.ReasonDuplicate)
		p.settle("taken back", g[i], d, core.Rollback)
		d = p.check("free again", g[1-i], vote("ann", "red", fmt.Sprint("ann", i)), core.ReasonOK)
		p.settle("taken back", g[1-i], d, core.Rollback)
	}
	tally(p, g, want)

	events, _, err := g[1].Audit(p.ctx, "final", "", 1000)
	p.must("audit", err)
	if len(events) < 104 {
		p.is("events", len(events), "104 and more")
	}
	voided := 0
	for i := range g {
		_, err := g[i].Void(p.ctx, "final", votes.VoidOptions{Match: func(e votes.Event) bool {
			return e.Voter == fmt.Sprint("voter", i) // both chose red
		}})
		p.must("void", err)
		voided++
	}
	after, err := g[0].Tally(p.ctx, "final")
	p.must("tally", err)
	other, err := g[1].Tally(p.ctx, "final")
	p.must("tally", err)
	p.is("tallies after voiding", other, after)
}

// votesThatChange: a side changes, retracts and repairs what the other has counted.
func votesThatChange(p *pair) {
	g := both(p, func(e *core.Engine) *votes.Guard {
		return votes.New(e, "poll", votes.Options{Poll: votes.Poll{Change: true, Retract: true}})
	})
	for n := range 10 {
		i, voter := n%2, fmt.Sprint("voter", n)
		p.settle("vote", g[i], p.check("vote", g[i], vote(voter, "red", ""), core.ReasonOK), core.Commit)
		d, err := g[1-i].Check(p.ctx, vote(voter, "blue", ""))
		p.must("change", err)
		p.is("changed", d.Allowed, true)
		if n%3 == 0 {
			p.settle("the change fails", g[1-i], d, core.Rollback)
		}
	}
	tally(p, g, map[string]int64{"red": 4, "blue": 6})
	for i := range g {
		_, err := g[i].Retract(p.ctx, vote(fmt.Sprint("voter", 1-i), []string{"blue", "red"}[i], ""))
		p.must("retract", err)
	}
	tally(p, g, map[string]int64{"red": 3, "blue": 5})
	for i := range g {
		for _, key := range p.rdb.Keys(p.ctx, p.key+":votes:poll:*:tally").Val() {
			p.must("damage", p.rdb.HIncrBy(p.ctx, key, "red", 1).Err())
		}
		_, err := g[i].Repair(p.ctx, "final")
		p.must("repair", err)
		tally(p, g, map[string]int64{"red": 3, "blue": 5})
	}
}

// votesInParts: the caps hold across sides in a poll of several parts.
func votesInParts(p *pair) {
	g := both(p, func(e *core.Engine) *parts.Guard {
		return parts.New(e, "poll", 3, votes.Options{
			Poll: votes.Poll{PerVoter: 3, PerChoice: 3, PerDay: 2, Day: period.Every(24 * time.Hour)}})
	})
	counted := 0
	for n := range 12 {
		for try := range 4 {
			d, err := g[(n+try)%2].Check(p.ctx, vote(fmt.Sprint("voter", n), "red", ""))
			p.must("vote", err)
			p.is("of a day", d.Allowed, try < 2)
			if err == nil && d.Allowed {
				counted++
				p.settle("vote", g[(n+try)%2], d, core.Commit)
			}
		}
	}
	tally(p, g, map[string]int64{"red": int64(counted)})
}

// items: a user gets five different items on both sides together.
func items(p *pair) {
	g := both(p, func(e *core.Engine) *quota.Guard {
		return quota.New(e, "points", quota.Options{Items: 5, Period: period.Every(24 * time.Hour)})
	})
	for n := range 5 {
		a := core.Attempt{Actor: "ann", Item: fmt.Sprint(n), ID: fmt.Sprint("o", n)}
		p.check("item", g[n%2], a, core.ReasonOK)
	}
	for i := range g {
		for n := range 5 {
			p.check("item again", g[i], core.Attempt{Actor: "ann", Item: fmt.Sprint(n)}, core.ReasonAgain)
			d, err := g[i].Check(p.ctx, core.Attempt{Actor: "ann", Item: fmt.Sprint(n), ID: fmt.Sprint("o", n)})
			p.must("replay", err)
			p.is("replay", []bool{d.Allowed, d.Replayed}, "[true true]")
		}
		p.check("a sixth", g[i], core.Attempt{Actor: "ann", Item: "six"}, core.ReasonQuota)
		used, _, err := g[i].Used(p.ctx, core.Attempt{Actor: "ann"})
		p.must("used", err)
		p.is("items used", len(used), 5)

		fails := core.Attempt{Actor: "bob", Item: "x", ID: fmt.Sprint(i)}
		d := p.check("an item that fails", g[i], fails, core.ReasonOK)
		p.settle("undone", g[i], d, core.Rollback)
		used, _, err = g[1-i].Used(p.ctx, core.Attempt{Actor: "bob"})
		p.must("used", err)
		p.is("items of a request that failed", len(used), 0)
		first := p.check("given", g[i], core.Attempt{Actor: "cid", Item: fmt.Sprint("x", i)}, core.ReasonOK)
		p.check("given again", g[1-i], core.Attempt{Actor: "cid", Item: fmt.Sprint("x", i)}, core.ReasonAgain)
		p.settle("the first fails", g[i], first, core.Rollback)
		used, _, err = g[1-i].Used(p.ctx, core.Attempt{Actor: "cid"})
		p.must("used", err)
		p.is("items that another request needs", len(used), 1)
		p.must("reset", g[1-i].Reset(p.ctx, core.Attempt{Actor: "cid"}))
	}
}

// packets: ten users on both sides get the whole amount, each once, and the rest is refunded once.
func packets(p *pair) {
	g := both(p, func(e *core.Engine) *redpacket.Guard { return redpacket.New(e, "gift", redpacket.Options{}) })
	expires := p.clock.Now().Add(time.Hour)
	for i := range g {
		id := fmt.Sprint("p", i)
		created, err := g[i].Create(p.ctx, id, redpacket.Packet{Total: 1000, Shares: 10, Expires: expires})
		p.must("create", err)
		p.is("created", created, true)
		sum := int64(0)
		for n := range 8 {
			a := core.Attempt{Actor: fmt.Sprint("user", n), Resource: id, ID: fmt.Sprint("o", n)}
			d := p.check("grab", g[(n+i)%2], a, core.ReasonOK)
			sum += redpacket.Amount(d)
			again := p.check("grab again", g[(n+i+1)%2], a, core.ReasonOK)
			p.is("the same amount", redpacket.Amount(again), redpacket.Amount(d))
			a.ID = ""
			again = p.check("a second share", g[(n+i+1)%2], a, core.ReasonDuplicate)
			p.is("the share that the user has", redpacket.Amount(again), redpacket.Amount(d))
		}
		for j := range g {
			v, err := g[j].Verify(p.ctx, id)
			p.must("verify", err)
			p.is("grabbed and left", []int{len(v.Grabbed), len(v.Left)}, "[8 2]")
			for _, amount := range v.Left {
				sum += amount * int64(1-j)
			}
		}
		p.is("the whole amount", sum, 1000)
	}
	p.clock.Advance(2 * time.Hour)
	for i := range g {
		id := fmt.Sprint("p", i)
		rest, err := g[1-i].Refund(p.ctx, id)
		p.must("refund", err)
		again, err := g[i].Refund(p.ctx, id)
		p.must("refund again", err)
		v, err := g[i].Verify(p.ctx, id)
		p.must("verify", err)
		sum := v.Refunded
		for _, amount := range v.Grabbed {
			sum += amount
		}
		p.is("refunded", []int64{sum, v.Refunded, again}, []int64{1000, rest, rest})
		p.check("too late", g[i], core.Attempt{Actor: "zoe", Resource: id}, core.ReasonClosed)
	}
}

// operations: one runs at a time, and its outcome is the answer on both sides.
func operations(p *pair) {
	g := both(p, func(e *core.Engine) *idempotency.Guard {
		return idempotency.New(e, "pay", idempotency.Options{})
	})
	for i := range g {
		a := core.Attempt{Actor: "ann", ID: fmt.Sprint("o", i), Resource: "order", Item: "x"}
		d := p.check("begin", g[i], a, core.ReasonOK)
		p.check("while it runs", g[1-i], a, core.ReasonInProgress)
		p.settle("fails", g[i], d, core.Rollback)
		d = p.check("anew", g[1-i], a, core.ReasonOK)
		p.check("while it runs", g[i], a, core.ReasonInProgress)
		p.settle("finish", g[1-i], d, core.CommitWith(&core.Outcome{Status: 201, Body: []byte("paid")}))
		for j := range g {
			d = p.check("done", g[j], a, core.ReasonDone)
			if o := core.OutcomeOf(d); o == nil || o.Status != 201 || string(o.Body) != "paid" {
				p.is("outcome", o, "201 paid")
			}
			other := a
			other.Item = "y"
			p.check("something else", g[j], other, core.ReasonConflict)
		}
		p.must("reset", g[i].Reset(p.ctx, a))
		p.check("after the reset", g[1-i], a, core.ReasonOK)
	}
}

func order(n int) core.Attempt {
	return core.Attempt{Actor: fmt.Sprint("buyer", n), Resource: "tv", ID: fmt.Sprint("o", n)}
}

// sale: both sides together sell what there is, each side settles, confirms, cancels and answers again what
// the other has reserved, and the stock is conserved.
func sale(p *pair, buckets int) {
	g := both(p, func(e *core.Engine) saletest.Sales {
		if buckets == 1 {
			return seckill.New(e, "sale", seckill.Options{})
		}
		return salebuckets.New(e, "sale", salebuckets.Options{Buckets: buckets})
	})
	for i := range g {
		terms := seckill.Sale{Stock: 20, PerBuyer: 2, Hold: time.Minute}
		opened, err := g[i].Open(p.ctx, "tv", terms)
		p.must("open", err)
		p.is("opened", opened, i == 0)
	}
	want := func(what string, left, held, sold int64) {
		for i := range g {
			s, err := g[i].Status(p.ctx, "tv")
			p.must(what, err)
			p.is(what, []int64{s.Left, s.Held, s.Sold, s.Stock}, []int64{left, held, sold, left + held + sold})
			v, err := saletest.Verify(g[i], "tv")
			p.must(what, err)
			if err == nil && !v.Consistent() {
				p.is(what, v, "consistent")
			}
		}
	}
	reserve := func(from, to int) (held [64]core.Decision) {
		for n := from; n < to; n++ {
			held[n] = p.check(fmt.Sprint("reservation ", n), g[n%2], order(n), core.ReasonOK)
		}
		return held
	}
	held := reserve(0, 12)
	want("held", 8, 12, 0)
	for n := range 4 {
		p.settle("sold", g[n%2], held[n], core.Commit)
	}
	for n := 4; n < 8; n++ { // by the other side, by name
		d, err := g[(n+1)%2].Confirm(p.ctx, order(n))
		p.must("confirm", err)
		p.is("confirmed", d.Allowed, true)
	}
	for n := 8; n < 10; n++ {
		_, err := g[(n+1)%2].Cancel(p.ctx, order(n))
		p.must("cancel", err)
	}
	for n := 10; n < 12; n++ {
		p.settle("given back", g[n%2], held[n], core.Rollback)
	}
	want("settled", 12, 0, 8)
	for n := range 8 {
		d, err := g[(n+1)%2].Check(p.ctx, order(n))
		p.must("the order again", err)
		p.is("a replay", []bool{d.Allowed, d.Replayed}, "[true true]")
	}
	want("after replays", 12, 0, 8)
	for i := range g { // two of a buyer, on both sides together
		a := core.Attempt{Actor: order(i).Actor, Resource: "tv", ID: fmt.Sprint("second", i)}
		d := p.check("a second unit", g[1-i], a, core.ReasonOK)
		p.settle("a second unit", g[1-i], d, core.Commit)
		a.ID = fmt.Sprint("third", i)
		p.check("a third unit", g[i], a, core.ReasonDuplicate)
	}
	want("per buyer", 10, 0, 10)

	reserve(20, 24)
	p.clock.Advance(2 * time.Minute) // their holds are over
	swept, err := g[1].Sweep(p.ctx, "tv")
	p.must("sweep", err)
	p.is("swept", swept, 4)
	want("swept", 10, 0, 10)
	for i := range g { // sold out on both sides
		s, err := g[i].Restock(p.ctx, "tv", "more", 2)
		p.must("restock", err)
		p.is("restocked once", s.Stock, 22)
	}
	many := core.Attempt{Actor: "big", Resource: "tv", ID: "big", Cost: 2}
	d := p.check("two units", g[0], many, core.ReasonOK)
	p.settle("two units", g[0], d, core.Commit)
	held = reserve(30, 40)
	p.check("sold out", g[0], order(50), core.ReasonSoldOut)
	p.check("sold out", g[1], order(51), core.ReasonSoldOut)
	for n := 30; n < 40; n++ {
		p.settle("sold", g[n%2], held[n], core.Commit)
	}
	want("sold out", 0, 0, 22)

	if buckets == 1 {
		reserve := script.New("reserve", lua.Source("seckill/reserve"), script.AtMostOnce)
		_, err = g[0].Restock(p.ctx, "tv", "for those who join", 4)
		p.must("restock", err)
		var keys []string
		for _, field := range []string{"sale", "buyers", "holds", "reservations", "outbox"} {
			keys = append(keys, g[0].Key("tv", field))
		}
		for i, e := range p.sides {
			_, err = e.Run(p.ctx, reserve, keys, 100, p.clock.Now().UnixMilli(), fmt.Sprint("j", i),
				fmt.Sprint("joiner", i), 1, "c1", fmt.Sprint("k", i), fmt.Sprint("kin", i), 1, "c2")
			p.must("reservations that join", err)
		}
		want("joined", 0, 4, 22)
		for i := range g {
			for buyer, id := range map[string]string{"joiner": "j", "kin": "k"} {
				_, err = g[1-i].Confirm(p.ctx,
					core.Attempt{Actor: fmt.Sprint(buyer, i), Resource: "tv", ID: fmt.Sprint(id, i)})
				p.must("confirm", err)
			}
		}
		want("joined and sold", 0, 0, 26)
	}
	for i := range g {
		for _, key := range p.rdb.Keys(p.ctx, p.key+":seckill:sale:*:buyers*").Val() {
			p.must("damage", p.rdb.Del(p.ctx, key).Err())
		}
		restored, err := g[i].Repair(p.ctx, "tv")
		p.must("repair", err)
		p.is("restored", strings.Contains(fmt.Sprint(restored), "buyers"), true)
		s, err := g[1-i].Status(p.ctx, "tv")
		p.must("status", err)
		p.is("after a repair", s.Sold, s.Stock)
	}
	p.must("close", g[1].Close(p.ctx, "tv"))
	p.check("closed", g[0], order(60), core.ReasonClosed)
	p.must("discard", g[0].Discard(p.ctx, "tv"))
	p.check("discarded", g[1], order(61), core.ReasonNotReady)
}

// permits: at most three on both sides together.
func permits(p *pair) {
	g := both(p, func(e *core.Engine) *semaphore.Guard {
		return semaphore.New(e, "exports", semaphore.Options{Max: 3})
	})
	user := func(n int) core.Attempt { return core.Attempt{Actor: fmt.Sprint("user", n)} }
	var held [3]core.Decision
	for n := range held {
		held[n] = p.check("permit", g[n%2], user(n), core.ReasonOK)
	}
	for i := range g {
		p.check("a fourth", g[i], user(4), core.ReasonBusy)
		s, err := g[i].Peek(p.ctx, core.Attempt{})
		p.must("peek", err)
		p.is("held", s.Held, 3)
	}
	renew := script.New("renew", lua.Source("semaphore/renew"), script.Idempotent)
	for _, e := range p.sides {
		keys := []string{p.key + ":semaphore:exports:{|}:permits"}
		lost, err := e.Run(p.ctx, renew, keys, 10_000, "", "", "1|nobody|10000|zoe")
		p.must("renew", err)
		p.is("lost", lost, "[1]")
	}
	evicted, err := g[0].Evict(p.ctx, user(1))
	p.must("evict", err)
	p.is("evicted", evicted, 1)
	p.settle("goes back", g[0], held[0], core.Commit)
	p.settle("goes back", g[0], held[2], core.Commit)
	s, err := g[1].Peek(p.ctx, core.Attempt{})
	p.must("peek", err)
	p.is("all came back", s.Held, 0)
}

// permitsInLine: who waits on one side gets what the other gives back.
func permitsInLine(p *pair) {
	user := func(n int) core.Attempt { return core.Attempt{Actor: fmt.Sprint("user", n)} }
	waiting := both(p, func(e *core.Engine) *semaphore.Guard {
		return semaphore.New(e, "lined", semaphore.Options{Max: 1, Wait: 5 * time.Second})
	})
	for i := range waiting {
		first := p.check("the only permit", waiting[i], user(0), core.ReasonOK)
		granted := make(chan core.Decision, 1)
		go func() {
			d, _ := waiting[1-i].Check(p.ctx, user(1))
			granted <- d
		}()
		p.is("in line", waits(p, func() int64 {
			s, _ := waiting[i].Peek(p.ctx, core.Attempt{})
			return s.Waiting
		}), true)
		p.settle("goes back", waiting[i], first, core.Commit)
		d := <-granted
		p.is("granted to the other side", d.Allowed, true)
		p.settle("goes back", waiting[1-i], d, core.Commit)
	}
}

// waits reports whether somebody is in line within five seconds.
func waits(p *pair, waiting func() int64) bool {
	often := time.NewTicker(time.Millisecond)
	defer often.Stop()
	for begun := time.Now(); time.Since(begun) < 5*time.Second; <-often.C {
		if waiting() > 0 {
			return true
		}
	}
	return false
}

// locks: one holder on both sides, and each fence is greater than those before.
func locks(p *pair) {
	g := both(p, func(e *core.Engine) *lock.Guard { return lock.New(e, "account", lock.Options{}) })
	a, last := core.Attempt{Actor: "ann", Resource: "a7"}, int64(0)
	for turn := range 4 {
		i := turn % 2
		d := p.check("lock", g[i], a, core.ReasonOK)
		p.check("held", g[1-i], core.Attempt{Actor: "bob", Resource: "a7"}, core.ReasonBusy)
		fence, _ := g[i].Fence(d)
		p.is("the fence grows", fence > last, true)
		last = fence
		s, err := g[1-i].Peek(p.ctx, "a7")
		p.must("peek", err)
		p.is("holder", []any{s.Held, s.Owner, s.Fence}, []any{true, "ann", fence})
		if d.Allowed {
			p.must("extend", g[i].Extend(p.ctx, d))
		}
		if turn < 2 {
			p.settle("unlock", g[i], d, core.Commit)
			continue
		}
		broken, err := g[1-i].Break(p.ctx, "a7")
		p.must("break", err)
		p.is("broken", broken, true)
		p.settle("too late", g[i], d, core.Commit)
	}
}

// locksInLine: who waits on one side gets the lock that the other gives back.
func locksInLine(p *pair) {
	a := core.Attempt{Actor: "ann", Resource: "a7"}
	waiting := both(p, func(e *core.Engine) *lock.Guard {
		return lock.New(e, "lined", lock.Options{Wait: 5 * time.Second})
	})
	for i := range waiting {
		first := p.check("the lock", waiting[i], a, core.ReasonOK)
		granted := make(chan core.Decision, 1)
		go func() {
			d, _ := waiting[1-i].Check(p.ctx, a)
			granted <- d
		}()
		p.is("in line", waits(p, func() int64 {
			s, _ := waiting[i].Peek(p.ctx, "a7")
			return s.Waiting
		}), true)
		p.settle("unlock", waiting[i], first, core.Commit)
		d := <-granted
		p.is("granted to the other side", d.Allowed, true)
		p.settle("unlock", waiting[1-i], d, core.Commit)
	}
}

// tasks: each is scheduled once and claimed by one, and the other side ends, finds and moves it.
func tasks(p *pair) {
	q := both(p, func(e *core.Engine) *delay.Queue { return delay.New(e, "tasks", delay.Options{MaxTries: 1}) })
	now := p.clock.Now()
	for n := range 8 {
		for i := range q {
			created, err := q[(n+i)%2].Schedule(p.ctx, fmt.Sprint("t", n), now, []byte("body"))
			p.must("schedule", err)
			p.is("scheduled once", created, i == 0)
		}
	}
	p.must("reschedule", q[0].Reschedule(p.ctx, "t7", now.Add(time.Hour)))
	p.must("cancel", q[1].Cancel(p.ctx, "t7"))
	seen, fence := map[string]bool{}, int64(0)
	var claimed []delay.Task
	for turn := range 4 {
		got, err := q[turn%2].Claim(p.ctx, 2, time.Minute)
		p.must("claim", err)
		for _, task := range got {
			p.is("claimed once", seen[task.ID], false)
			seen[task.ID] = true
			p.is("payload", string(task.Payload), "body")
		}
		if len(got) > 0 {
			p.is("the fence grows", got[0].Fence() > fence, true)
			fence = got[0].Fence()
		}
		claimed = append(claimed, got...)
	}
	p.is("claimed", len(claimed), 7)
	if len(claimed) != 7 {
		return
	}
	for i := range q {
		c, err := q[i].Counts(p.ctx)
		p.must("counts", err)
		p.is("counts", c, delay.Counts{Running: 7})
	}
	for n, task := range claimed { // those of even numbers were claimed by the first side, two at a time
		other := q[(n/2+1)%2]
		task, err := other.Extend(p.ctx, task, 2*time.Minute)
		p.must("extend", err)
		if n < 4 {
			p.must("ack", other.Ack(p.ctx, task, []byte("result")))
		} else {
			p.must("nack", other.Nack(p.ctx, task, "no", 0))
		}
	}
	done, dead, again := claimed[0].ID, claimed[4].ID, claimed[5].ID
	for i := range q {
		s, err := q[i].Find(p.ctx, done)
		p.must("find", err)
		p.is("found", []any{s.State, string(s.Result)}, []any{delay.Done, "result"})
		list, err := q[i].Peek(p.ctx, delay.Dead, 10)
		p.must("peek", err)
		p.is("dead", len(list), 3)
	}
	p.must("discard", q[0].Discard(p.ctx, dead))
	p.must("retry", q[1].Retry(p.ctx, again))
	got, err := q[0].Claim(p.ctx, 5, time.Minute)
	p.must("claim", err)
	p.is("retried", len(got), 1)
	suspects(p, q)
	short, cancel := context.WithCancel(p.ctx)
	cancel()
	if _, err := q[1].Claim(short, 1, time.Minute); err == nil {
		p.must("claim", errors.New("a claim whose context is over is no error"))
	}
}

// suspects: a task that one side has lost is suspect on the other, and dead when that loses it, too.
func suspects(p *pair, q [2]*delay.Queue) {
	p.clock.Advance(time.Hour)
	got, err := q[1].Claim(p.ctx, 5, time.Minute)
	p.must("claim", err)
	p.is("claimed", len(got), 1)
	if len(got) != 1 {
		return
	}
	p.is("suspect", []any{got[0].Suspect, got[0].Try}, []any{true, 1})
	_, err = q[0].Extend(p.ctx, got[0], time.Minute)
	p.must("extend", err)
	p.clock.Advance(time.Hour)
	got, err = q[0].Claim(p.ctx, 5, time.Minute)
	p.must("claim", err)
	p.is("claimed", len(got), 0)
	list, err := q[1].Peek(p.ctx, delay.Dead, 10)
	p.must("peek", err)
	p.is("dead", len(list), 2)
}
