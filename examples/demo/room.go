package main

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
)

const askers = 64 // visitors whose requests are served at a time

// crowd is simulated visitors before a waiting room that two processes share.
type crowd struct {
	rooms   []*waitingroom.Guard
	workers []*worker
	begin   time.Time
	pass    time.Duration // the longest stay

	mu       sync.Mutex
	visitors []*visitor
	open     bool // the draw has been told
	most     int64
}

// visitor is one of them: they ask when they were told to.
type visitor struct {
	name, token string
	next        time.Time
	place       waitingroom.Place
	inside      bool
	over        bool // they have been inside, or were told that the room is closed
	left        bool // they have closed the page while they waited
}

// roomCounts is how the room stands, by Redis. Left and Told are counted by the visitors, and so is Waiting
// when the room is closed: who has been told waits no more.
type roomCounts struct {
	MS         int64  `json:"ms"`
	State      string `json:"state"`
	Commitment string `json:"commitment"`
	Inside     int64  `json:"inside"`
	Called     int64  `json:"called"`
	Most       int64  `json:"most"` // inside and called, at any look
	Waiting    int64  `json:"waiting"`
	Entered    int64  `json:"entered"`
	Left       int    `json:"left"` // the line
	Told       int    `json:"told"` // that it is over
}

// roomDraw is the draw, as the visitors were told.
type roomDraw struct {
	Commitment string  `json:"commitment"` // before the opening
	Seed       string  `json:"seed"`
	Positions  []int64 `json:"positions"` // in line, by the visitors' numbers
}

// fillTheRoom has all visitors come before the opening of a room, which draws their order, and lets them in.
// Half of those who wait leave when the page says so. In the end the room is closed. Events: "counts" while
// it runs, with roomCounts, "draw" with roomDraw after the opening, and "done", with roomCounts.
func fillTheRoom(ctx context.Context, in *instance, send func(string, any)) error {
	c := in.newCrowd()
	defer c.end()
	in.crowded.Store(c)
	defer in.crowded.Store(nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asked := make(chan struct{})
	go func() { defer close(asked); c.live(ctx) }()
	defer func() { cancel(); <-asked }()
	return counting(ctx, send, 250*time.Millisecond, c.counts, func() error {
		z := in.sizes
		if err := c.draw(ctx, z.Lobby, send); err != nil {
			return err
		}
		end := c.begin.Add(z.Lobby + 2*z.Poll + z.Doors)
		if err := pause(ctx, max(time.Until(end), z.Doors/2)); err != nil {
			return err
		}
		// All who wait are told that it is over when they ask next, without a call for each.
		if err := c.rooms[0].Close(ctx, "sold out"); err != nil {
			return err
		}
		for end = time.Now().Add(3 * z.Poll); c.waiting() > 0 && time.Now().Before(end); {
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
}

func (in *instance) newCrowd() *crowd {
	z := in.sizes
	c := &crowd{begin: time.Now(), pass: z.Pass}
	name, secret := in.fresh("room"), crand.Text()
	for range 2 {
		w := in.store.hire()
		c.workers = append(c.workers, w)
		c.rooms = append(c.rooms, w.room(name, z, c.begin.Add(z.Lobby), secret))
	}
	for i := range z.Visitors {
		come := c.begin.Add(rand.N(z.Lobby * 2 / 3))
		c.visitors = append(c.visitors, &visitor{name: fmt.Sprint("visitor-", i), next: come})
	}
	return c
}

func (c *crowd) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, w := range c.workers {
		_ = w.gate.Drain(ctx) // of the last ticks
		w.kill()
	}
}

// live has the visitors ask when it is time, until the end.
func (c *crowd) live(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		now := time.Now()
		c.ask(ctx, c.those(func(v *visitor) bool { return !v.left && !v.over && !v.next.After(now) }))
		c.mu.Unlock()
		_ = pause(ctx, 50*time.Millisecond)
	}
}

// ask has visitors ask, each at one of the processes.
func (c *crowd) ask(ctx context.Context, visitors []*visitor) {
	together(ctx, askers, len(visitors), func(i int) {
		visitors[i].ask(ctx, c.rooms[rand.IntN(len(c.rooms))], c.pass)
	})
}

// ask sends one request. Who is inside stays for a while. Then some give their pass back, and some just go.
func (v *visitor) ask(ctx context.Context, room *waitingroom.Guard, pass time.Duration) {
	d, err := room.Check(ctx, core.Attempt{Actor: v.name, Token: v.token})
	now := time.Now()
	if err != nil {
		v.next = now.Add(time.Second)
		return
	}
	if d.Token != "" {
		v.token = d.Token
	}
	place, waits := waitingroom.PlaceOf(d)
	switch {
	case d.Allowed && !v.inside:
		v.inside = true
		v.next = now.Add(pass/4 + rand.N(pass/2))
	case v.inside:
		v.over = true
		if d.Allowed && rand.IntN(4) > 0 {
			_ = room.Leave(ctx, d) // else the pass ends by itself
		}
	case d.Reason == core.ReasonClosed:
		v.over, v.place = true, place
	case waits:
		v.place = place
		v.next = now.Add(d.RetryAfter)
	}
}

// draw waits for the opening, and tells the draw. The room is paused meanwhile, so that all who came are in
// line, and each position is exact.
func (c *crowd) draw(ctx context.Context, lobby time.Duration, send func(string, any)) error {
	if err := pause(ctx, time.Until(c.begin.Add(lobby))); err != nil {
		return err
	}
	c.mu.Lock()
	commitment := ""
	for _, v := range c.visitors { // whoever has come tells it
		commitment = cmp.Or(commitment, v.place.Commitment)
	}
	c.mu.Unlock()
	if err := c.rooms[0].Pause(ctx); err != nil {
		return err
	}
	for _, room := range c.rooms {
		for {
			s, err := room.Peek(ctx)
			if err != nil {
				return err
			}
			if s.Waiting >= int64(c.waiting()) {
				break
			}
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	c.mu.Lock()
	here := c.those(func(v *visitor) bool { return !v.left })
	c.ask(ctx, here)
	d := roomDraw{Commitment: commitment}
	for _, v := range here {
		p := v.place
		if p.Seed == "" || p.Number < 0 {
			continue // they came after the opening
		}
		if d.Positions == nil {
			d.Seed, d.Positions = p.Seed, make([]int64, p.Drawn)
		}
		d.Positions[p.Number] = p.Position
	}
	c.open = true
	c.mu.Unlock()
	send("draw", d)
	return c.rooms[0].Open(ctx)
}

// waiting is how many visitors wait, or have not come yet.
func (c *crowd) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.those((*visitor).waits))
}

// those returns the visitors of whom something is true.
func (c *crowd) those(is func(*visitor) bool) []*visitor {
	return slices.DeleteFunc(slices.Clone(c.visitors), func(v *visitor) bool { return !is(v) })
}

func (v *visitor) waits() bool { return !v.left && !v.over && !v.inside }

// leave has every second one of those who wait close the page: they are not heard of any more. It returns
// false before the draw.
func (c *crowd) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, v := range c.those((*visitor).waits) {
		v.left = c.open && i%2 == 1
	}
	return c.open
}

func (c *crowd) counts(ctx context.Context) (roomCounts, error) {
	ms := time.Since(c.begin).Milliseconds()
	s, err := c.rooms[0].Peek(ctx)
	if err != nil {
		return roomCounts{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = max(c.most, s.Inside+s.Called)
	n := roomCounts{MS: ms, State: s.State, Commitment: s.Commitment, Inside: s.Inside, Called: s.Called,
		Most: c.most, Waiting: s.Waiting, Entered: s.Entered}
	waiting := int64(0)
	for _, v := range c.visitors {
		switch {
		case v.left:
			n.Left++
		case v.over && !v.inside:
			n.Told++
		case !v.inside:
			waiting++
		}
	}
	switch {
	case n.State == "closed", c.open:
		// Redis counts who has asked since the opening, when all have new places: for a moment that is nobody.
		n.Waiting = max(waiting-n.Called, 0)
	case n.State == "open" && !c.open:
		n.State = "paused" // as it will be in a moment, until the draw is told
	}
	return n, nil
}

// leaveRoom has half of the crowd leave that waits now.
func (d *demo) leaveRoom(w http.ResponseWriter, _ *http.Request) {
	if c := d.instance().crowded.Load(); c == nil || !c.leave() {
		http.Error(w, "The room is not open yet.", http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
