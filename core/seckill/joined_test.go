package seckill

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestJoinedReservationsAreDecidedAsOneAfterTheOther compares a run for several attempts with one for each at
// the same moment: replies, records, events and TTLs, while holds expire and are confirmed and cancelled,
// also before they come.
func TestJoinedReservationsAreDecidedAsOneAfterTheOther(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		seed, cases := rand.Uint64(), 20
		if guardtest.Soak() {
			cases = 500
		}
		if b.Mini != nil {
			cases = 4 // its Lua is slow
		}
		t.Logf("seed %d", seed)
		seen := map[string]int{}
		for n := range cases {
			c := newJoinedCase(t, b, rand.New(rand.NewPCG(seed, uint64(n))), n)
			for range 15 {
				c.step(seen)
				if t.Failed() {
					return
				}
			}
		}
		for _, reason := range []string{"ok", "conflict", "gone", "early", "closed", "duplicate", "sold_out",
			"again",
			"replayed", "more"} {
			if seen[reason] == 0 && b.Mini == nil {
				t.Errorf("%s was not seen: %v", reason, seen)
			}
		}
	})
}

// joinedCase is a sale that is kept twice: one after the other, and joined.
type joinedCase struct {
	t      *testing.T
	b      redistest.Backend
	rng    *rand.Rand
	g      *Guard
	sales  [2]*stock
	now    int64
	opened int64
	calls  int
	made   []string // "id buyer call" of attempts
}

func newJoinedCase(t *testing.T, b redistest.Backend, rng *rand.Rand, n int) *joinedCase {
	t.Helper()
	g := New(guardtest.NewEngine(b), strconv.FormatUint(rng.Uint64(), 36), Options{NoOutbox: n%4 == 3})
	c := &joinedCase{t: t, b: b, rng: rng, g: g, sales: [2]*stock{g.stockOf("one"), g.stockOf("joined")},
		now: time.Now().UnixMilli()}
	c.opened = c.now
	stock, perBuyer := 1+rng.Int64N(40), 1+rng.Int64N(4)
	for _, s := range c.sales {
		c.run(s, seckillOpenScript, stock, c.now+500, c.now+60_000, perBuyer, 4000, int64(600_000), "", c.now)
	}
	return c
}

func (c *joinedCase) run(s *stock, script *script.Script, args ...any) any {
	c.t.Helper()
	reply, err := c.g.Engine().Run(c.t.Context(), script, s.keys(), args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply
}

// step makes some attempts of one moment, and ends some reservations.
func (c *joinedCase) step(seen map[string]int) {
	c.t.Helper()
	switch c.rng.IntN(24) {
	case 0, 1:
		c.now += 5000 // all holds expire
	case 2:
		c.now = max(c.now, c.opened+60_000) // the sale closes
	default:
		c.now += c.rng.Int64N(700)
	}
	var attempts [][]any
	for range 1 + c.rng.IntN(12) {
		attempts = append(attempts, c.attempt())
	}
	var want []any
	args, ids := []any{most, c.now}, map[any]bool{}
	for _, a := range attempts {
		want = append(want, c.run(c.sales[0], seckillReserveScript, append([]any{most, c.now}, a...)...))
		args = append(args, a...)
		if ids[a[0]] {
			seen["again"]++
		}
		ids[a[0]] = true
	}
	got := []any{c.run(c.sales[1], seckillReserveScript, args...)}
	if len(attempts) > 1 {
		got = got[0].([]any)
	}
	for _, one := range got {
		reply, _ := one.([]any)
		if len(reply) == 0 {
			reason, _, _ := strings.Cut(one.(string), " ")
			seen[reason]++
			continue
		}
		seen[reply[0].(string)]++
		if reply[1] == int64(1) {
			seen["replayed"]++
		}
		if reply[6] == int64(1) {
			seen["more"]++
		}
	}
	if !reflect.DeepEqual(got, want) {
		c.t.Fatalf("%v: %v; one after the other: %v", args, got, want)
	}
	for range c.rng.IntN(4) {
		c.end()
	}
	one, joined := c.state(0), c.state(1)
	if !reflect.DeepEqual(one, joined) {
		c.t.Fatalf("%v:\n%v\none after the other:\n%v", args, joined, one)
	}
}

// most is how many expired holds an attempt returns at most.
const most = 3

// attempt returns the arguments of an attempt. Most attempts are new.
func (c *joinedCase) attempt() []any {
	c.calls++
	id, buyer, call := fmt.Sprint("o", c.calls), fmt.Sprint("b", c.rng.IntN(30)), fmt.Sprint("c", c.calls)
	if len(c.made) > 0 && c.rng.IntN(5) == 0 {
		words := strings.Fields(c.made[c.rng.IntN(len(c.made))])
		id, buyer = words[0], words[1]
		switch c.rng.IntN(5) {
		case 0, 1:
			call = words[2]
		case 2:
			buyer = "b1"
		}
	}
	c.made = append(c.made, id+" "+buyer+" "+call)
	return []any{id, buyer, 1 + c.rng.IntN(1+c.rng.IntN(3)), call}
}

// end confirms or cancels a reservation, or takes back a call that has not come.
func (c *joinedCase) end() {
	if c.rng.IntN(4) == 0 {
		c.calls++
		c.made = append(c.made, fmt.Sprintf("o%d b%d c%d", c.calls, c.rng.IntN(30), c.calls))
	}
	words := strings.Fields(c.made[len(c.made)-1-c.rng.IntN(min(len(c.made), 10))])
	script, args := seckillCancelScript, []any{words[0], words[2], "", words[1], c.now}
	if c.rng.IntN(4) == 0 {
		script, args = seckillConfirmScript, []any{words[0], words[1], c.now}
	}
	if one, joined := c.run(c.sales[0], script, args...), c.run(c.sales[1], script,
		args...); !reflect.DeepEqual(one, joined) {
		c.t.Fatalf("%v: %v; one after the other: %v", args, joined, one)
	}
}

var eventID = regexp.MustCompile(`\b\d{10,}-\d+`)

// state returns what is kept of a sale. The IDs of events are replaced by their places.
func (c *joinedCase) state(i int) []string {
	ctx, s := c.t.Context(), c.sales[i]
	events, err := c.b.Client.XRange(ctx, s.key("outbox"), "-", "+").Result()
	if err != nil {
		c.t.Fatal(err)
	}
	places, texts := map[string]string{}, []string{}
	for n, e := range events {
		places[e.ID] = fmt.Sprint("event ", n)
		texts = append(texts, fmt.Sprint(e.Values))
	}
	sale := c.b.Client.HGetAll(ctx, s.key("sale")).Val()
	delete(sale, "epoch")
	texts = append(texts, fmt.Sprint(sale), fmt.Sprint(c.b.Client.HGetAll(ctx, s.key("buyers")).Val()),
		fmt.Sprint(c.b.Client.ZRangeWithScores(ctx, s.key("holds"), 0, -1).Val()))
	for id, record := range c.b.Client.HGetAll(ctx, s.key("reservations")).Val() {
		record = eventID.ReplaceAllStringFunc(record, func(id string) string { return places[id] })
		texts = append(texts, id+": "+record)
	}
	slices.Sort(texts[len(events):]) // the events are in order
	return texts
}
