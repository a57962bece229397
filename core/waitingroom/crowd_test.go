package waitingroom

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

var secrets = [][]byte{[]byte("a secret of sixteen bytes")}

// newRoom makes the room of one process. It ticks when the test says so.
func newRoom(e *core.Engine, o Options) *Guard {
	if o.Secrets == nil {
		o.Secrets = secrets
	}
	g := New(e, "shop", o)
	g.due.Store(true)
	return g
}

// A visitor asks one of the processes when they were told to, and may go away.
type visitor struct {
	name     string
	token    string
	next     time.Time // when they ask again
	leaves   time.Time // when one who is inside leaves
	entered  time.Time
	position int64
	inside   bool
	gone     bool
	steady   bool // they have never been away
}

// crowd is a simulation on a clock of its own: processes, and visitors who behave in many ways.
type crowd struct {
	t        *testing.T
	rng      *rand.Rand
	clock    *guardtest.Clock
	rooms    []*Guard
	visitors []*visitor
	capacity int64
	stay     time.Duration // how long visitors are inside, on average
	leavers  float64       // how many of those who wait go away for good, at each poll
	away     float64       // and how many for some minutes
	polite   bool          // all who were inside tell that they go; else half of them
	lost     int           // calls whose reply was lost
	most     int64         // inside and called
	entered  int
}

func newCrowd(t *testing.T, b redistest.Backend, processes int, lossy float64, o Options) *crowd {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &crowd{t: t, rng: rand.New(rand.NewPCG(seed, 0)), clock: guardtest.NewClock(),
		capacity: int64(o.Capacity), stay: 2 * time.Minute}
	for i := range processes {
		options := []core.Option{guardtest.WithClock(c.clock)}
		client := b.NewClient(t)
		if lossy > 0 {
			faults := redistest.NewFaults(t)
			faults.SwallowEvery("evalsha", lossy, rand.New(rand.NewPCG(seed, uint64(i+1))))
			client = b.NewClientWith(t, faults,
				func(o *redis.UniversalOptions) { o.MaxRetries, o.ReadTimeout = -1, time.Minute })
			options = append(options, core.WithDeadline(time.Minute), core.WithoutBreaker())
		}
		c.rooms = append(c.rooms, newRoom(guardtest.NewEngineOver(b, client, options...), o))
	}
	return c
}

func (c *crowd) arrive(n int) {
	for range n {
		c.visitors = append(c.visitors, &visitor{name: fmt.Sprintf("v%d", len(c.visitors)), next: c.clock.Now(),
			steady: true})
	}
}

// forGood is how long visitors stay who do not leave within a test: of an hour on average, one in a hundred
// would be a minute.
const forGood = time.Duration(1 << 61)

// visit has a visitor send one request.
func (c *crowd) visit(v *visitor) (core.Decision, bool) {
	g := c.rooms[c.rng.IntN(len(c.rooms))]
	d, err := g.Check(c.t.Context(), core.Attempt{Actor: v.name, Token: v.token})
	if err != nil {
		c.lost++
		v.next = c.clock.Now().Add(time.Second)
		return d, false
	}
	if d.Token != "" {
		v.token = d.Token
	}
	return d, true
}

// second has all who are due ask; then the processes tick.
func (c *crowd) second() {
	now := c.clock.Now()
	for _, v := range c.visitors {
		if v.gone || v.next.After(now) {
			continue
		}
		d, ok := c.visit(v)
		if !ok {
			continue
		}
		switch {
		case d.Allowed && !v.inside:
			v.inside, v.entered = true, now
			v.leaves = now.Add(time.Duration(c.rng.Int64N(int64(2 * c.stay))))
			v.next = now.Add(10 * time.Second)
			c.entered++
		case d.Allowed && now.After(v.leaves):
			if c.polite || c.rng.IntN(2) == 0 { // else they just go, and their pass ends by itself
				if err := c.rooms[0].Leave(c.t.Context(), d); err != nil {
					c.lost++
				}
				v.token = ""
			}
			v.gone = true
		case d.Allowed:
			v.next = now.Add(10 * time.Second)
		case v.inside: // the pass has ended
			v.gone = true
		default:
			c.waits(v, d)
		}
	}
	for _, g := range c.rooms {
		if err := g.tick(context.Background()); err != nil {
			c.lost++
		}
	}
	c.check()
	c.clock.Advance(time.Second)
}

// waits has a visitor wait, or go.
func (c *crowd) waits(v *visitor, d core.Decision) {
	if p, ok := PlaceOf(d); ok {
		v.position = p.Position
	}
	v.next = c.clock.Now().Add((d.RetryAfter + time.Second - 1).Truncate(time.Second))
	switch x := c.rng.Float64(); {
	case x < c.leavers:
		v.gone = true
	case x < c.leavers+c.away:
		v.next, v.steady = c.clock.Now().Add(time.Duration(60+c.rng.IntN(300))*time.Second), false
	}
}

// valid returns how many visitors have a pass that is valid, whether they are still there or not.
func (c *crowd) valid() (n int64) {
	p := c.rooms[0].picture.Load()
	for _, v := range c.visitors {
		if t, ok := c.rooms[0].tickets.read(v.token); ok && t.isPass() && t.until > p.clock(c.clock.Now())-1 {
			n++
		}
	}
	return n
}

// check wants no more inside and called than fit, by what visitors have and by what Redis says.
func (c *crowd) check() {
	p, err := c.rooms[0].ask(c.t.Context(), nil, nil)
	if err != nil {
		return
	}
	c.most = max(c.most, c.valid()+p.called)
	if c.valid()+p.called > c.capacity || p.inside+p.called > c.capacity {
		c.t.Fatalf("%d passes and %d calls; %d inside by Redis; the capacity is %d", c.valid(), p.called, p.inside,
			c.capacity)
	}
}

// waiting returns those who wait and ask.
func (c *crowd) waiting() (waiting []*visitor) {
	for _, v := range c.visitors {
		if !v.gone && !v.inside {
			waiting = append(waiting, v)
		}
	}
	return waiting
}

// TestACrowdIsLetInAtCapacity: three processes, visitors who leave at once, go away and come back, stay too
// long, and lose replies.
func TestACrowdIsLetInAtCapacity(t *testing.T) {
	for _, lossy := range []float64{0, 0.05} {
		t.Run(fmt.Sprintf("lost=%v", lossy), func(t *testing.T) {
			each := redistest.Each
			if lossy == 0 {
				each = func(t *testing.T, f func(*testing.T, redistest.Backend)) { f(t, redistest.Single(t)) }
			}
			each(t, func(t *testing.T, b redistest.Backend) {
				c := newCrowd(t, b, 3, lossy, Options{Capacity: 40, Pass: 5 * time.Minute, Idle: 30 * time.Second})
				c.leavers, c.away = 0.05, 0.05
				seconds, least := 200, 50
				if redistest.All() {
					seconds, least = 600, 150
				}
				for second := range seconds {
					if second < 60 {
						c.arrive(8)
					}
					c.second()
				}
				t.Logf("%d entered, %d at a time, %d wait, %d replies lost", c.entered, c.most, len(c.waiting()), c.lost)
				full := c.capacity
				if lossy > 0 { // who was called and did not hear it is called again later
					full -= c.capacity / 10
				}
				if c.most < full || c.entered < least {
					t.Errorf("%d entered, %d of %d at a time", c.entered, c.most, c.capacity)
				}
			})
		})
	}
}

// TestLeaversHoldUpNobody: nine of ten go away as soon as they have a number. The places are taken as fast as
// if they had not come: none is free for longer than a grace while somebody asks.
//
// Promise: A visitor who leaves the line costs a grace at most. `Leave` frees a place at once; other
// processes hear of it within a second.
func TestLeaversHoldUpNobody(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		o := Options{Capacity: 50, Poll: 10 * time.Second}
		c := newCrowd(t, b, 2, 0, o)
		c.stay = forGood // nobody leaves who is inside
		c.arrive(1000)
		for _, v := range c.visitors[50:] { // the first fifty enter at once, the others have to wait
			v.gone = c.rng.IntN(10) > 0
			if v.gone {
				c.visit(v)
			}
		}
		for range 60 {
			c.second()
		}
		if err := c.rooms[0].SetCapacity(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		c.capacity = 100
		// Called at the next tick, they hear of it when they ask next, and a free place is theirs.
		for second := range 20 {
			c.second()
			if p, _ := c.rooms[0].Peek(t.Context()); p.Inside == 100 {
				t.Logf("full after %d s", second)
				return
			}
		}
		p, err := c.rooms[0].Peek(t.Context())
		t.Errorf("after 20 s: %+v, %v", p, err)
	})
}

// TestNobodyWhoAsksIsOvertaken: visitors who ask when they are told to enter in the order of their arrival,
// up to the time between two polls, whoever else goes away and comes back.
//
// Promise: A visitor who asks when told to is not overtaken, except in the time between two polls. A visitor
// who was away when called is next.
func TestNobodyWhoAsksIsOvertaken(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		o := Options{Capacity: 20, Poll: 5 * time.Second, Pass: time.Minute, Idle: 20 * time.Second}
		c := newCrowd(t, b, 2, 0, o)
		c.stay, c.away, c.leavers = 20*time.Second, 0.02, 0.02
		jumped, seconds := int64(0), 300
		if redistest.All() {
			seconds = 900
		}
		for second := range seconds {
			if second < 100 {
				c.arrive(4)
			}
			before := map[*visitor]int64{}
			for _, v := range c.visitors {
				before[v] = v.position
			}
			c.second()
			for v, position := range before {
				if position > 0 && !v.inside && v.steady {
					jumped = max(jumped, v.position-position)
				}
			}
		}
		var last time.Time
		for i, v := range c.visitors {
			if !v.steady || v.entered.IsZero() {
				continue
			}
			if last.Sub(v.entered) > 2*o.Poll {
				t.Errorf("visitor %d entered %v after one who had come later", i, last.Sub(v.entered))
			}
			if v.entered.After(last) {
				last = v.entered
			}
		}
		t.Logf("%d entered; a position grew by %d at most", c.entered, jumped)
		if jumped > 25 {
			t.Errorf("a position grew by %d", jumped)
		}
	})
}
