//go:build !race

package simulation

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

const roomPoll = 20 * time.Second

// comer is a visitor of a room. Four in ten leave the line, one in ten is away for some minutes.
type comer struct {
	name    string
	ticket  string
	number  int64
	kind    int
	polls   int // before they leave, or are away
	away    bool
	inside  bool
	entered time.Time
	leaves  time.Time
}

// room is a crowd before the processes of a waiting room, on a clock that is not the machine's.
type room struct {
	t        *testing.T
	rng      *rand.Rand
	guards   []*waitingroom.Guard
	capacity int
	now      func() time.Time
	pass     func(time.Duration)                  // lets time pass
	looks    func() (inside, called int, ok bool) // what Redis has
	troubled func() bool                          // Redis is away, or was a moment ago

	due      map[int64][]*comer // by the second in which they ask
	mu       sync.Mutex
	holders  map[*comer]time.Time // of valid passes, until when
	ends     map[int64]int64      // when the pass of a number ends
	findings []string
	entered  []*comer
	waiting  int
	checks   int
	errors   int
	full     float64 // seconds in which many waited, by how full the room was
	seconds  int
}

func (r *room) find(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.findings) < 10 {
		r.findings = append(r.findings, fmt.Sprintf(format, args...))
	}
}

// at has a comer ask after a time.
func (r *room) at(c *comer, wait time.Duration) {
	second := r.now().Add(wait+time.Second-1).UnixMilli() / 1000
	r.due[second] = append(r.due[second], c)
}

// hour lets so many visitors come within a third of the time.
func (r *room) hour(visitors int, length time.Duration) {
	r.due, r.holders, r.ends = map[int64][]*comer{}, map[*comer]time.Time{}, map[int64]int64{}
	for end, begin, came := r.now().Add(length), r.now(), 0; r.now().Before(end); {
		part := min(float64(r.now().Sub(begin))/float64(length/3), 1)
		for ; came < int(part*float64(visitors)); came++ {
			c := &comer{name: fmt.Sprint("visitor ", came), kind: r.rng.IntN(10), polls: r.rng.IntN(20)}
			r.waiting++
			r.at(c, 0)
		}
		second := r.now().UnixMilli() / 1000
		asking := r.due[second]
		delete(r.due, second)
		var all sync.WaitGroup
		const share = 16
		for worker := range share {
			seed := r.rng.Uint64()
			all.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 0))
				for i := worker; i < len(asking); i += share {
					r.ask(rng, asking[i])
				}
			})
		}
		all.Wait()
		r.look()
		if next := time.UnixMilli((second + 1) * 1000); next.After(r.now()) {
			r.pass(next.Sub(r.now()))
		}
		for late := second + 1; late < r.now().UnixMilli()/1000; late++ { // Redis was slow
			for _, c := range r.due[late] {
				r.at(c, 0)
			}
			delete(r.due, late)
		}
	}
}

// ask is one request.
func (r *room) ask(rng *rand.Rand, c *comer) {
	g := r.guards[rng.IntN(len(r.guards))]
	d, err := g.Check(context.Background(), core.Attempt{Actor: c.name, Token: c.ticket})
	leaves := err == nil && d.Allowed && c.inside && r.now().After(c.leaves) && rng.IntN(10) < 6
	if leaves {
		r.mu.Lock()
		delete(r.holders, c)
		r.mu.Unlock()
		_ = g.Leave(context.Background(), d) // or the pass ends by itself
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks++
	if err != nil {
		r.errors++
		r.at(c, time.Second)
		return
	}
	if d.Token != "" {
		c.ticket = d.Token
	}
	number, until, ends := readPass(c.ticket)
	switch {
	case leaves || d.Allowed && c.inside && r.now().After(c.leaves): // gone, the latter without a word
		return
	case d.Allowed && !c.inside:
		c.inside, c.entered = true, r.now()
		c.leaves = r.now().Add(time.Duration(rng.Int64N(int64(3 * time.Minute))))
		r.entered = append(r.entered, c)
		r.waiting--
		if was, is := r.ends[number]; is && was != ends {
			r.findings = append(r.findings, fmt.Sprintf("number %d has entered twice", number))
		}
		r.ends[number], c.number = ends, number
		fallthrough
	case d.Allowed:
		r.holders[c] = time.UnixMilli(until)
		r.at(c, 10*time.Second)
	case c.inside: // the pass has ended
	case c.kind < 4 && c.polls == 0:
		r.waiting--
	case c.kind == 4 && c.polls == 0:
		c.away, c.polls = true, -1
		r.at(c, time.Minute+time.Duration(rng.Int64N(int64(5*time.Minute))))
	default:
		c.polls--
		r.at(c, d.RetryAfter)
	}
}

// look wants no more inside and called than there are places, by what Redis has and what visitors have.
func (r *room) look() {
	inside, called, ok := r.looks()
	if !ok {
		return
	}
	valid := 0
	for c, until := range r.holders {
		if until.After(r.now()) {
			valid++
		} else {
			delete(r.holders, c)
		}
	}
	if inside+called > r.capacity || valid+called > r.capacity {
		r.find("%d inside, %d have passes, %d are called: the capacity is %d", inside, valid, called, r.capacity)
	}
	if r.waiting > 2*r.capacity && !r.troubled() {
		r.seconds++
		r.full += float64(inside+called) / float64(r.capacity)
	}
}

// judge wants the room to have been full while many waited, and nobody who asked when they were told to to
// enter much later than who came after them.
func (r *room) judge(lag time.Duration) {
	var last time.Time
	longest := time.Duration(0)
	slices.SortFunc(r.entered, func(a, b *comer) int { return cmp.Compare(a.number, b.number) })
	for _, c := range r.entered {
		if c.away {
			continue
		}
		if longest = max(longest, last.Sub(c.entered)); last.Before(c.entered) {
			last = c.entered
		}
	}
	if longest > lag {
		r.find("a visitor entered %v after one who came later", longest)
	}
	filled := r.full / float64(max(r.seconds, 1))
	if r.seconds < 60 || filled < 0.9 {
		r.find("in %d seconds in which many waited, %.0f %% of the places were taken", r.seconds, 100*filled)
	}
	r.t.Logf("%d entered, %d wait, %d calls, %d failed; %.1f %% full in %d s; overtaken by %v", len(r.entered),
		r.waiting, r.checks, r.errors, 100*filled, r.seconds, longest)
}

// readPass reads a ticket: its number, and of a pass its ends.
func readPass(ticket string) (number, until, ends int64) {
	b, err := base64.RawURLEncoding.DecodeString(ticket)
	if err != nil || len(b) != 78 {
		return 0, 0, 0
	}
	number = int64(binary.BigEndian.Uint64(b[30:]))
	if ends = int64(binary.BigEndian.Uint64(b[54:])); ends > 0 {
		until = int64(binary.BigEndian.Uint64(b[46:]))
	}
	return number, until, ends
}

func (r *room) open(e *core.Engine) {
	r.guards = append(r.guards, waitingroom.New(e, "shop", waitingroom.Options{Capacity: r.capacity,
		Poll: roomPoll, Secrets: [][]byte{[]byte("a secret of sixteen bytes")}}))
}

// TestAnHourOfACrowd: visitors come to three processes before a Redis that is slow, loses replies, and is
// away for up to 20 s every few minutes. Twenty thousand of them in the soak run, about a minute, and a
// thousand for a third of an hour in the ordinary one.
func TestAnHourOfACrowd(t *testing.T) {
	redistest.LeftToCI(t)
	visitors, length := 1000, 20*time.Minute
	if redistest.Soak() {
		visitors, length = 20_000, time.Hour
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		net := newNetwork(m, rand.New(rand.NewPCG(seed, 1)))
		t.Cleanup(m.Close)
		t.Cleanup(net.crash)
		away, calm := false, time.Now()
		r := &room{t: t, rng: rand.New(rand.NewPCG(seed, 2)), capacity: visitors / 40, now: time.Now,
			pass: func(d time.Duration) { <-time.After(d) },
			looks: func() (int, int, bool) {
				inside, _ := m.ZMembers("gatehouse:waitingroom:shop:{room}:inside") // none: no key
				called, _ := m.ZMembers("gatehouse:waitingroom:shop:{room}:called")
				return len(inside), len(called), true
			},
			troubled: func() bool { return away || time.Now().Before(calm) },
		}
		for range 3 {
			rdb := redis.NewClient(&redis.Options{
				Addr: "192.0.2.1:6379", Dialer: net.Dial, ContextTimeoutEnabled: true, DialerRetries: 1, PoolSize: 10,
				DisableIdentity: true,
			})
			t.Cleanup(func() { _ = rdb.Close() })
			r.open(core.New(rdb, core.WithObserver(guardtest.Ignore{}),
				core.WithLogger(slog.New(slog.DiscardHandler)))) // miniredis has the bubble's clock
		}
		net.heal(true)
		for _, g := range r.guards { // the first call holds a mutex, for which no time passes in a bubble
			if _, err := g.Peek(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		net.heal(false)
		over := make(chan struct{})
		faults := rand.New(rand.NewPCG(seed, 3))
		var all sync.WaitGroup
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Duration(100+faults.IntN(200)) * time.Second):
				}
				if away = true; faults.IntN(2) == 0 {
					net.hang()
				} else {
					net.crash()
				}
				<-time.After(time.Duration(1+faults.IntN(20_000)) * time.Millisecond)
				net.heal(false)
				away, calm = false, time.Now().Add(roomPoll*3/2)
			}
		})
		r.hour(visitors, length)
		close(over)
		all.Wait()
		net.heal(true)
		for _, g := range r.guards {
			if err := g.Engine().Drain(t.Context()); err != nil {
				t.Error(err)
			}
		}
		<-time.After(time.Second) // what is late has arrived
		r.judge(5 * roomPoll)     // who was called while Redis was away is called again
		for _, finding := range r.findings {
			t.Error(finding)
		}
	})
}

// TestAnHourOnRedis: the same on a real Redis that does not break; two hundred thousand in the soak run.
func TestAnHourOnRedis(t *testing.T) {
	visitors, length := 200, 5*time.Minute
	switch {
	case redistest.Soak():
		visitors, length = 200_000, time.Hour
	case redistest.All():
		visitors, length = 1000, 20*time.Minute
	}
	r := onRedis(t, visitors)
	r.hour(visitors, length)
	r.judge(roomPoll * 3 / 2)
	for _, finding := range r.findings {
		t.Error(finding)
	}
}

// TestARoomThatIsTooFullIsFound: the processes let one in more than the simulation wants.
func TestARoomThatIsTooFullIsFound(t *testing.T) {
	r := onRedis(t, 400)
	r.capacity--
	r.hour(400, 5*time.Minute)
	if len(r.findings) == 0 {
		t.Error("the simulation has found nothing")
	}
}

// onRedis is a room of three processes on a real Redis.
func onRedis(t *testing.T, visitors int) *room {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b, clock := redistest.Single(t), guardtest.NewClock()
	r := &room{t: t, rng: rand.New(rand.NewPCG(seed, 0)), capacity: visitors / 40, now: clock.Now,
		troubled: func() bool { return false }}
	r.pass = func(d time.Duration) {
		for _, g := range r.guards { // the processes tell Redis what they have heard
			if err := g.Engine().Drain(t.Context()); err != nil {
				t.Error(err)
			}
		}
		clock.Advance(d)
	}
	r.looks = func() (int, int, bool) { // at one moment: a process may be calling somebody
		look, room := b.Client.TxPipeline(), b.Prefix+":waitingroom:shop:{room}:"
		inside, called := look.ZCard(t.Context(), room+"inside"), look.ZCard(t.Context(), room+"called")
		_, err := look.Exec(t.Context())
		return int(inside.Val()), int(called.Val()), err == nil
	}
	for range 3 {
		r.open(guardtest.NewEngine(b, guardtest.WithClock(clock)))
	}
	return r
}
