package histories

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
)

// A visitor's call is several operations within its time: an arrival gets a number, and perhaps enters; who
// has given a place back, and comes again, finds that their number is used and gets another one. One whose
// entry has an unknown outcome is told to wait, so where replies are lost each wait may be an entry.
//
// The model does not know who is called: processes call visitors once a second, at any time. It knows what
// follows from that: who enters has nobody before them for whom there would be no place, too.

const (
	roomPlaces   = 3
	roomVisitors = 6 // of the test, and of an application
)

type roomIn struct {
	Op     string // come, leave, set, look; and of which a call consists: join, enter, perhaps, inside, over
	Number int64  // the visitor's; 0: none
	Pass   bool   // it is a pass
	Breaks bool   // replies can be lost
	Limit  int64
}

type roomOut struct {
	Allowed               bool
	Number                int64 // the visitor's from now on
	Inside, Called, Given int64
}

type roomState struct {
	last         int64
	inside, left set // by number
	lower        int64
}

func (s *roomState) count() int64 { return int64(bits.OnesCount64(uint64(s.inside))) }

// enter lets a number enter, and reports whether it may: it and all before it who wait need a place each.
func (s *roomState) enter(number int64) bool {
	before := int64(0)
	for n := int64(1); n < number; n++ {
		if !s.inside.has(int(n)) && !s.left.has(int(n)) {
			before++
		}
	}
	switch {
	case s.inside.has(int(number)):
		return true
	case number > s.last, s.left.has(int(number)), s.count()+before+1 > roomPlaces-s.lower:
		return false
	}
	s.inside = s.inside.with(int(number))
	return true
}

func (s *roomState) step(in roomIn, out roomOut, known bool) bool {
	number := int(in.Number)
	switch in.Op {
	case "join":
		s.last++
		return s.last < 60 && (!known || in.Number == s.last)
	case "enter":
		return s.enter(in.Number)
	case "perhaps":
		s.enter(in.Number)
	case "inside": // another process may not have heard that the place was given back
		return s.inside.has(number) || s.left.has(number)
	case "over":
		return s.left.has(number)
	case "leave":
		s.inside, s.left = s.inside.without(number), s.left.with(number)
	case "set":
		s.lower = roomPlaces - in.Limit
	case "look":
		return !known || out.Inside == s.count() && out.Given == s.last &&
			out.Inside+out.Called <= max(roomPlaces-s.lower, out.Inside)
	}
	return true
}

var roomModel = partitioned(operationsOfRoom, func(s roomState, in, out any) (bool, roomState) {
	answer, known := out.(roomOut)
	right := s.step(in.(roomIn), answer, known)
	return right, s
})

// operationsOfRoom says of which operations the calls of a history consist.
func operationsOfRoom(calls []porcupine.Operation) [][]porcupine.Operation {
	var ops []porcupine.Operation
	first := map[int64]porcupine.Operation{} // of each number, the first wait that may be an entry
	for _, call := range calls {
		in := call.Input.(roomIn)
		out, known := call.Output.(roomOut)
		add := func(op string, number int64) {
			call.Input = roomIn{Op: op, Number: number}
			ops = append(ops, call)
		}
		if in.Op != "come" {
			ops = append(ops, call)
			continue
		}
		if known && in.Number > 0 && in.Number != out.Number {
			add("over", in.Number)
		}
		if !known || in.Number != out.Number {
			add("join", out.Number)
		}
		switch {
		case out.Allowed && in.Pass && in.Number == out.Number:
			add("inside", in.Number)
		case out.Allowed:
			add("enter", out.Number)
		case in.Breaks:
			number := out.Number
			if !known {
				number = in.Number
			}
			if was, is := first[number]; number > 0 && !in.Pass && (!is || call.Call < was.Call) {
				call.Input, call.Output, call.Return = roomIn{Op: "perhaps", Number: number}, unknown{}, never
				first[number] = call
			}
		}
	}
	for _, op := range first {
		ops = append(ops, op)
	}
	return [][]porcupine.Operation{ops}
}

// numberIn reads the number in a ticket, and whether it is a pass.
func numberIn(ticket string) (number int64, pass bool) {
	b, err := base64.RawURLEncoding.DecodeString(ticket)
	if err != nil || len(b) != 78 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b[30:])) - 1<<16 + 1, binary.BigEndian.Uint64(b[54:]) > 0
}

// someRooms are the rooms of one process of the test, each of one history.
type someRooms struct {
	mu    sync.Mutex
	rooms map[string]*oneRoom
}

type oneRoom struct {
	guards []*waitingroom.Guard

	mu      sync.Mutex
	tickets map[string]string // by visitor
	numbers map[string]string // the last one that was no pass, which another tab may still have
}

// of returns the room of a history.
func (s *someRooms) of(w *world, name string) *oneRoom {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rooms[name]
	if r == nil {
		r = &oneRoom{tickets: map[string]string{}, numbers: map[string]string{}}
		for _, e := range w.engines {
			r.guards = append(r.guards, waitingroom.New(e, name, waitingroom.Options{
				Capacity: roomPlaces, Pass: 2 * time.Hour, Idle: time.Hour, Grace: time.Hour, Poll: time.Minute,
				Secrets: [][]byte{[]byte("a secret of sixteen bytes")},
			}))
		}
		s.rooms[name] = r
	}
	return r
}

func (r *oneRoom) ticket(visitor string, ofAnotherTab bool) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ofAnotherTab {
		return r.numbers[visitor]
	}
	return r.tickets[visitor]
}

func (r *oneRoom) keep(visitor, ticket string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tickets[visitor] = ticket
	if _, pass := numberIn(ticket); !pass {
		r.numbers[visitor] = ticket
	}
}

// rooms are waiting rooms in which no time passes: passes and calls do not end. What a failover loses comes
// back with the passes that are used, so it has a test of its own: TestWhatAFailoverLosesOfARoom.
func rooms() subject {
	return subject{name: "waiting room", model: roomModel, single: true, fenced: true,
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			all := &someRooms{rooms: map[string]*oneRoom{}}
			return func(*history) error { return nil }, func(c *caller, process int) {
				r := all.of(w, c.name)
				roomCall(t, c, r, r.guards[process])
			}
		}}
}

// sent hides that the breaker has stopped a command: another one of the same call may have been sent before.
func sent(err error) error {
	if errors.Is(err, core.ErrBreakerOpen) {
		return errors.New(err.Error())
	}
	return err
}

// roomCall lets one of the visitors come, who may have two tabs open; or leave. Or it looks, or sets the
// capacity.
func roomCall(t *testing.T, c *caller, r *oneRoom, g *waitingroom.Guard) {
	if _, ok := c.next(); !ok {
		return
	}
	visitor := fmt.Sprint("visitor ", c.rng.IntN(roomVisitors))
	if c.parent != nil {
		visitor = "the application's " + visitor
	}
	a := core.Attempt{Actor: visitor, Token: r.ticket(visitor, c.rng.IntN(6) == 0)}
	in := roomIn{Op: "come", Breaks: c.world.breaks}
	in.Number, in.Pass = numberIn(a.Token)
	x := c.rng.IntN(20)
	if len(g.Engine().OpenBreakers()) > 0 { // or histories would have little but what sent hides
		x = 20
	}
	switch {
	case x == 0:
		in = roomIn{Op: "set", Limit: []int64{1, 2, 4, 6}[c.rng.IntN(4)]}
		c.do(in, func() (any, error) { return nil, sent(g.SetCapacity(t.Context(), in.Limit)) })
		c.sentTwice(in, roomIn{Op: "look"})
	case x <= 2:
		c.do(roomIn{Op: "look"}, func() (any, error) {
			s, err := g.Peek(t.Context())
			return roomOut{Inside: s.Inside, Called: s.Called, Given: s.Given}, err
		})
	case x <= 6 && in.Number > 0:
		in = roomIn{Op: "leave", Number: in.Number}
		c.do(in, func() (any, error) { return nil, sent(g.Leave(t.Context(), core.Decision{Token: a.Token})) })
	default:
		c.do(in, func() (any, error) {
			d, err := g.Check(t.Context(), a)
			if d.Token != "" {
				r.keep(visitor, d.Token)
			} else {
				d.Token = a.Token
			}
			out := roomOut{Allowed: d.Allowed}
			out.Number, _ = numberIn(d.Token)
			return out, err
		})
	}
}
