package waitingroom

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

var secrets = [][]byte{[]byte("a secret of sixteen bytes")}

// newRoom makes the room of one process. Only the test makes it tick.
func newRoom(e *core.Engine, o Options) *Guard {
	o.Secrets = secrets
	g := New(e, "shop", o)
	g.due.Store(true)
	return g
}

// A visitor asks one of the processes when they were told to, and may go away.
type visitor struct {
	name     string
	token    string
	next     time.Time // when they ask again
	inside   bool
	until    time.Time // when they leave by themselves
	position int64
	arrived  int // in which second
	entered  time.Time
	gone     bool
	back     time.Time // when one who is away comes back
}

// crowd is a simulation on a clock of its own: processes, and visitors who behave in many ways.
type crowd struct {
	t        *testing.T
	rng      *rand.Rand
	clock    *guardtest.Clock
	rooms    []*Guard
	visitors []*visitor
	capacity int64
	stay     time.Duration
	leavers  float64 // how many of those who wait go away for good, at each poll
	away     float64 // and how many for some minutes
	most     int
	entered  int
}

func newCrowd(t *testing.T, b redistest.Backend, processes int, o Options) *crowd {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &crowd{t: t, rng: rand.New(rand.NewPCG(seed, 0)), clock: guardtest.NewClock(), capacity: int64(o.Capacity),
		stay: 5 * time.Minute}
	for range processes {
		c.rooms = append(c.rooms, newRoom(guardtest.NewEngine(b, guardtest.WithClock(c.clock)), o))
	}
	return c
}

func (c *crowd) arrive(n int) {
	for range n {
		v := &visitor{name: fmt.Sprintf("v%d", len(c.visitors)), next: c.clock.Now()}
		c.visitors = append(c.visitors, v)
	}
}

// visit has a visitor send one request.
func (c *crowd) visit(v *visitor) core.Decision {
	g := c.rooms[c.rng.IntN(len(c.rooms))]
	d, err := g.Check(c.t.Context(), core.Attempt{Actor: v.name, Token: v.token})
	if err != nil {
		c.t.Fatal(err)
	}
	if d.Token != "" {
		v.token = d.Token
	}
	return d
}

// second has all who are due ask, and then the processes tick.
func (c *crowd) second() {
	now := c.clock.Now()
	for _, v := range c.visitors {
		if v.gone || v.next.After(now) {
			continue
		}
		d := c.visit(v)
		switch {
		case d.Allowed && !v.inside:
			v.inside, v.entered = true, now
			v.until = now.Add(time.Duration(c.rng.Int64N(int64(2 * c.stay))))
			c.entered++
			v.next = now.Add(30 * time.Second)
		case d.Allowed && now.After(v.until):
			if c.rng.IntN(2) == 0 { // else they just go, and their pass ends
				if err := c.rooms[0].Leave(c.t.Context(), d); err != nil {
					c.t.Fatal(err)
				}
				v.token = ""
			}
			v.inside, v.gone = false, true
		case d.Allowed:
			v.next = now.Add(30 * time.Second)
		case v.inside: // the pass has ended
			v.inside, v.gone = false, true
		default:
			if p, ok := PlaceOf(d); ok {
				v.position = p.Position
			}
			v.next = now.Add(d.RetryAfter)
			switch x := c.rng.Float64(); {
			case x < c.leavers:
				v.gone = true
			case x < c.leavers+c.away:
				v.next = now.Add(time.Duration(60+c.rng.IntN(300)) * time.Second)
			}
		}
	}
	for _, g := range c.rooms {
		if err := g.tick(context.Background()); err != nil {
			c.t.Fatal(err)
		}
	}
	c.check()
	c.clock.Advance(time.Second)
}

// check counts who has a valid pass, and who is called.
func (c *crowd) check() {
	p := c.rooms[len(c.rooms)-1].picture.Load()
	now, valid := p.clock(c.clock.Now())-1, 0
	for _, v := range c.visitors {
		t, ok := c.rooms[0].tickets.read(v.token)
		if ok && t.isPass() && t.until > now {
			valid++
		}
	}
	c.most = max(c.most, valid+int(p.called))
	if int64(valid)+p.called > c.capacity || p.inside+p.called > c.capacity {
		c.t.Fatalf("%d passes and %d calls, %d inside by Redis; capacity %d", valid, p.called, p.inside, c.capacity)
	}
}

func TestACrowdIsLetInAtCapacity(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b, 3, Options{Capacity: 40})
		c.stay, c.leavers, c.away = time.Minute, 0.03, 0.05
		for second := range 900 {
			if second < 60 {
				c.arrive(10)
			}
			c.second()
		}
		waiting := slices.IndexFunc(c.visitors, func(v *visitor) bool { return !v.gone && !v.inside })
		t.Logf("%d entered, most %d, first who still waits: %d", c.entered, c.most, waiting)
		s, err := c.rooms[0].Peek(t.Context())
		t.Logf("%+v %v", s, err)
	})
}
