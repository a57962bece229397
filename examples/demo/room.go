package main

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
)

const visitorsAtATime = 64 // whose requests are served

// crowd is simulated visitors before a waiting room that two processes share.
type crowd struct {
	sizes sizes
	rooms []*waitingroom.Guard
	begin time.Time

	mu       sync.Mutex
	visitors []*visitor
	drawn    bool  // the draw has been told
	most     int64 // inside and called, at any look
}

// visitor asks when told to.
type visitor struct {
	name, token string
	next        time.Time
	place       waitingroom.Place
	stage       stage
}

type stage int

// The stages of a visitor.
const (
	waits    stage = iota // or has not come yet
	inside                // has a pass
	done                  // has been inside
	left                  // has closed the page while waiting
	sentHome              // knows that the room is closed
)

// fillTheRoom has all visitors come before the opening of a room, which draws their order, and lets them in.
// Half of those who wait leave when the page says so. In the end the room is closed. Events: "counts", "draw"
// after the opening, and "done".
func fillTheRoom(ctx context.Context, in *instance, t *tape) error {
	z := in.sizes
	c := &crowd{sizes: z, begin: time.Now()}
	name, secret := fresh("room"), []byte(crand.Text())
	for range 2 {
		w := in.store.hire()
		defer w.kill()
		c.rooms = append(c.rooms, waitingroom.New(w.gate, name, waitingroom.Options{Capacity: z.Capacity,
			Pass: z.Pass, Poll: z.Poll, Opens: c.begin.Add(z.Lobby), Draw: true, Secrets: [][]byte{secret},
			Keep: longestRun}))
	}
	for i := range z.Visitors {
		come := c.begin.Add(rand.N(z.Lobby * 2 / 3))
		c.visitors = append(c.visitors, &visitor{name: fmt.Sprint("visitor-", i), next: come})
	}
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { c.live(ctx) })
	defer asking.Wait()
	defer cancel()
	return counting(ctx, t, 250*time.Millisecond, c.counts, func(ctx context.Context) error {
		if err := c.draw(ctx, t); err != nil {
			return err
		}
		t.buttons(c.leave)
		end := c.begin.Add(z.Lobby + 2*z.Poll + z.Doors)
		if err := pause(ctx, max(time.Until(end), z.Doors/2)); err != nil {
			return err
		}
		// All who wait are told that it is over when they ask next, without a call for each.
		if err := c.rooms[0].Close(ctx, "sold out"); err != nil {
			return err
		}
		end = time.Now().Add(10 * z.Poll)
		return until(ctx, 50*time.Millisecond, func() (bool, error) {
			return c.waiting() == 0 || time.Now().After(end), nil
		})
	})
}

// live has the visitors ask when it is time, until the end.
func (c *crowd) live(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		now := time.Now()
		c.ask(ctx, c.those(func(v *visitor) bool { return v.stage <= inside && !v.next.After(now) }))
		c.mu.Unlock()
		_ = pause(ctx, 50*time.Millisecond)
	}
}

// those returns the visitors of whom something is true.
func (c *crowd) those(is func(*visitor) bool) []*visitor {
	return slices.DeleteFunc(slices.Clone(c.visitors), func(v *visitor) bool { return !is(v) })
}

// ask has visitors ask, each at one of the processes.
func (c *crowd) ask(ctx context.Context, visitors []*visitor) {
	_ = together(ctx, visitorsAtATime, len(visitors), func(ctx context.Context, i int) error {
		visitors[i].ask(ctx, c.rooms[rand.IntN(len(c.rooms))], c.sizes.Pass)
		return nil
	})
}

// ask sends one request. A visitor who is inside stays for a while. Then some give their pass back, and some
// just go.
func (v *visitor) ask(ctx context.Context, room *waitingroom.Guard, pass time.Duration) {
	d, err := room.Check(ctx, core.Attempt{Actor: v.name, Token: v.token})
	if err != nil {
		v.next = time.Now().Add(time.Second)
		return
	}
	v.token = cmp.Or(d.Token, v.token)
	if place, ok := waitingroom.PlaceOf(d); ok {
		v.place = place
	}
	switch {
	case v.stage == inside:
		v.stage = done
		if d.Allowed && rand.IntN(4) > 0 {
			_ = room.Leave(ctx, d) // else the pass ends by itself
		}
	case d.Allowed:
		v.stage, v.next = inside, time.Now().Add(pass/4+rand.N(pass/2))
	case d.Reason == core.ReasonClosed:
		v.stage = sentHome
	default:
		v.next = time.Now().Add(d.RetryAfter)
	}
}

// draw waits for the opening, and tells the draw: the seed, and the position of each visitor, as the visitors
// were told. The room is paused meanwhile, so that all who came are in line, and each position is exact.
func (c *crowd) draw(ctx context.Context, t *tape) error {
	if err := pause(ctx, time.Until(c.begin.Add(c.sizes.Lobby))); err != nil {
		return err
	}
	commitment := ""
	c.mu.Lock()
	for _, v := range c.visitors { // whoever has come tells it
		commitment = cmp.Or(commitment, v.place.Commitment)
	}
	c.mu.Unlock()
	if err := c.rooms[0].Pause(ctx); err != nil {
		return err
	}
	for _, room := range c.rooms {
		if err := until(ctx, 100*time.Millisecond, func() (bool, error) {
			s, err := room.Peek(ctx)
			return s.Waiting >= int64(c.waiting()), err
		}); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.ask(ctx, c.visitors)
	var seed string
	var positions []int64
	for _, v := range c.visitors {
		p := v.place
		if p.Seed == "" || p.Number < 0 {
			continue // came after the opening
		}
		if positions == nil {
			seed, positions = p.Seed, make([]int64, p.Drawn)
		}
		positions[p.Number] = p.Position
	}
	c.drawn = true
	c.mu.Unlock()
	t.send("draw", object{"commitment": commitment, "seed": seed, "positions": positions})
	return c.rooms[0].Open(ctx)
}

// waiting is how many visitors wait, or have not come yet.
func (c *crowd) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.those(func(v *visitor) bool { return v.stage == waits }))
}

// leave is the button: every second one of those who wait closes the page, and is not heard of any more.
func (c *crowd) leave(context.Context, string, bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, v := range c.those(func(v *visitor) bool { return v.stage == waits }) {
		if i%2 == 1 {
			v.stage = left
		}
	}
	return nil
}

// counts is how the room stands, by Redis. The visitors count who has left or was told.
func (c *crowd) counts(ctx context.Context) (object, error) {
	ms := time.Since(c.begin).Milliseconds()
	s, err := c.rooms[0].Peek(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = max(c.most, s.Inside+s.Called)
	stages := map[stage]int64{}
	for _, v := range c.visitors {
		stages[v.stage]++
	}
	switch {
	case s.State == "closed", c.drawn:
		// Redis counts who has asked since the opening, when all have new places: for a moment that is nobody.
		s.Waiting = max(stages[waits]-s.Called, 0)
	case s.State == "open":
		s.State = "paused" // as it will be in a moment, until the draw is told
	}
	return object{"ms": ms, "state": s.State, "commitment": s.Commitment, "inside": s.Inside,
		"called": s.Called, "most": c.most, "waiting": s.Waiting, "entered": s.Entered,
		"left": stages[left], "told": stages[sentHome]}, err
}
