package lives

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
)

// The definition of a waiting room with one place, a pass of a minute, and a poll of 4 s:
//   - a later opening begins a room when the former one has opened, and postpones one that has not
//   - before the opening nobody is inside, and each visitor of the room has the number of their arrival in it
//   - a visitor of the room keeps their number until it is used; anybody else gets the next one
//   - who leaves the lobby is an arrival in it for the length of Idle; after that, and once the lobby was
//     drawn, their number counts again
//   - one visitor is inside at a time, and no room is entered in the first 6 s after its lobby
//   - nobody enters in front of a visitor who has come, or was drawn, before them and has asked all the time
//   - a visitor who does not ask for 40 s while others do is one who has just come
var _ = explore(life{
	name: "waitingroom", of: []string{"waitingroom"},
	events: alphabet("ann bob cid ann-with-her-first-ticket ann-by-the-old-release ann-leaves bob-asks-on",
		"opens-later opening poll flush"),
	same: func(a, b string) bool {
		return a == b && (a == "opens-later" || a == "flush" || a == "ann-leaves")
	},
	world: func(p *place) world { return &roomWorld{place: p} },
	row: row{
		over:      "A later opening that is still to come; the end of `Keep`.",
		remembers: "Its opening. Of a room that was lost, the numbers of those who wait.",
		forgets:   "Numbers, passes, the draw, and what an operator has said.",
		back:      "A ticket of an earlier room, a used one, or one that was away for `Away`, is an arrival.",
	},
})

const (
	roomPass     = time.Minute
	roomAway     = 40 * time.Second
	roomInterval = 6 * time.Second
)

type roomWorld struct {
	*place
	name      string
	processes []*waitingroom.Guard // the old release, and the newest one

	opens    time.Time // of the room; zero: open
	drawn    int       // how many came before the opening; -1: it is not open yet
	quiet    time.Time // nobody enters before
	given    int
	flushed  bool // numbers may be left out
	visitors map[string]*inLine
	inside   *inLine
	until    time.Time
	asked    time.Time // when anybody did
	back     time.Time // when somebody did after an interval in which nobody had
}

// inLine is a visitor of the room, or of an earlier one.
type inLine struct {
	actor, token, first string
	number              int  // in this room; -1: none
	used                bool // by this number
	asked               time.Time
	lobby               bool // they asked before the opening, and were told to ask in five minutes
	steady              bool // they have asked in each interval
	firstNumber         int  // of the first ticket, if it is of this room; -1: it is not
	firstAsked          time.Time
	gone, firstGone     bool // left the lobby by this number, and by that of the first ticket
	left, firstLeft     time.Time
}

func (w *roomWorld) process(opens time.Time) *waitingroom.Guard {
	e := w.Engine(core.WithLogger(slog.New(slog.DiscardHandler)))
	return waitingroom.New(e, "r"+w.name, waitingroom.Options{Capacity: 1, Pass: roomPass, Idle: roomPass,
		Poll: 4 * time.Second, Opens: opens, Draw: true, Secrets: [][]byte{[]byte("a secret of sixteen bytes")}})
}

func (w *roomWorld) begin(name string) {
	w.name, w.visitors = name, map[string]*inLine{}
	for _, actor := range []string{"ann", "bob", "cid"} {
		w.visitors[actor] = &inLine{actor: actor, number: -1, firstNumber: -1}
	}
	w.opens, w.flushed, w.asked, w.back = time.Time{}, false, time.Time{}, time.Time{}
	w.anew()
	w.processes = []*waitingroom.Guard{w.process(w.opens)}
	w.processes = append(w.processes, w.processes[0])
}

// anew begins another room.
func (w *roomWorld) anew() {
	w.drawn, w.given, w.inside, w.quiet = 0, 0, nil, time.Time{}
	if w.opens.After(w.Now()) {
		w.drawn = -1
	}
	for _, v := range w.visitors {
		v.number, v.used, v.firstNumber, v.gone, v.firstGone = -1, false, -1, false, false
	}
}

func (w *roomWorld) end() error { return w.tell() }

// tell has the processes tell Redis what they have heard.
func (w *roomWorld) tell() error {
	for i, g := range w.processes {
		if i > 0 && g == w.processes[0] {
			break
		}
		if err := g.Engine().Drain(context.Background()); err != nil {
			return broken("The processes go on", "%v", err)
		}
	}
	return nil
}

// ask notes that somebody asks Redis.
func (w *roomWorld) ask() {
	if w.Now().Sub(w.asked) > roomInterval {
		w.back = w.Now()
	}
	w.asked = w.Now()
}

// open opens the room when the first one asks after the opening.
func (w *roomWorld) open() {
	if w.drawn >= 0 || w.opens.After(w.Now()) {
		return
	}
	if w.drawn = w.given; w.given > 0 {
		w.quiet = w.Now().Add(roomInterval)
	}
	for _, v := range w.visitors {
		v.used, v.gone = v.used && !v.gone, false
	}
}

// look has the processes look at the room.
func (w *roomWorld) look() error {
	w.open()
	w.ask()
	for _, g := range []*waitingroom.Guard{w.processes[1], w.processes[0]} {
		if _, err := g.Peek(context.Background()); err != nil {
			return broken("Peek is no error", "%v", err)
		}
	}
	return w.tell()
}

func (w *roomWorld) do(event string) (seen string, err error) {
	ann := w.visitors["ann"]
	switch event {
	case "ann", "bob", "cid":
		return w.visit(w.processes[1], w.visitors[event])
	case "ann-by-the-old-release":
		if w.processes[0] == w.processes[1] || ann.used && w.inside != ann { // it hears of Leave when she asks
			return "", errImpossible
		}
		return w.visit(w.processes[0], ann)
	case "ann-with-her-first-ticket":
		if ann.first == "" || ann.first == ann.token {
			return "", errImpossible
		}
		ann.token, ann.asked = ann.first, ann.firstAsked
		if ann.firstNumber != ann.number {
			ann.number = -1 // it was used
			forgotten := !w.opens.After(w.Now()) || w.Now().Sub(ann.firstLeft) >= roomPass
			if ann.firstGone && ann.firstNumber >= 0 && forgotten {
				ann.number, ann.used, ann.gone = ann.firstNumber, false, false
			}
		}
		return w.visit(w.processes[1], ann)
	case "ann-leaves":
		if ann.token == "" || ann.number < 0 {
			return "", errImpossible
		}
		if err := w.processes[1].Leave(context.Background(), core.Decision{Token: ann.token}); err != nil {
			return "", broken("Leave is no error", "%v", err)
		}
		w.ask()
		if ann.used = true; w.drawn < 0 && w.opens.After(w.Now()) {
			ann.gone, ann.left = true, w.Now()
			if ann.firstNumber == ann.number {
				ann.firstGone, ann.firstLeft = true, w.Now()
			}
		}
		if w.inside == ann {
			w.inside = nil
		}
		return "", w.tell()
	case "bob-asks-on": // for longer than others may be away
		for range 11 {
			if seen, err = w.visit(w.processes[1], w.visitors["bob"]); err != nil {
				return seen, err
			}
			w.Pass(4 * time.Second)
		}
		return seen, nil
	case "opens-later":
		was := w.opens
		w.opens = w.Now().Add(time.Hour)
		if !was.After(w.Now()) {
			w.flushed = false
			w.anew()
		}
		w.processes[1] = w.process(w.opens)
		return "", w.look()
	case "opening":
		if !w.opens.After(w.Now()) {
			return "", errImpossible
		}
		w.PassUntil(w.opens)
		return "", w.look()
	case "poll":
		w.Pass(4 * time.Second)
	case "flush":
		w.Flush()
		w.flushed = true
		return "", w.look()
	}
	return "", nil
}

// visit has a visitor ask.
func (w *roomWorld) visit(g *waitingroom.Guard, v *inLine) (string, error) {
	now := w.Now()
	w.open()
	if w.inside != nil && !now.Before(w.until) {
		w.inside = nil
	}
	for _, o := range w.visitors {
		o.steady = o.steady && now.Sub(o.asked) < roomInterval
	}
	w.ask()
	if v.gone && now.Sub(v.left) >= roomPass {
		v.used, v.gone = false, false
	}
	away := roomAway
	if v.lobby {
		away = 15 * time.Minute
	}
	late := now.Sub(v.asked) > away && now.Sub(w.back) > roomAway
	if v.number >= 0 && (v.used && w.inside != v || !v.used && late) {
		v.number = -1
	}
	d, err := g.Check(context.Background(), core.Attempt{Actor: v.actor, Token: v.token})
	if err != nil {
		return "", broken("A check is no error", "%v", err)
	}
	if d.Token != "" {
		v.token = d.Token
	}
	if v.number < 0 {
		v.number, v.used, v.steady, v.gone = w.given, false, true, false
		w.given++
	}
	if v.first == "" {
		v.first, v.firstNumber, v.firstAsked = v.token, v.number, now
	}
	v.asked, v.lobby = now, w.drawn < 0
	p, _ := waitingroom.PlaceOf(d)
	if err := w.tell(); err != nil {
		return "", err
	}
	s, err := g.Peek(context.Background())
	if wrong := w.judge(v, d, p, s.Seed); wrong != nil {
		return "", wrong
	}
	if !w.flushed && (err != nil || s.Given != int64(w.given)) {
		return "", broken("A visitor of the room keeps their number, and anybody else gets the next one",
			"%d were given, want %d: %v", s.Given, w.given, err)
	}
	return fmt.Sprintf("%s %s", d.Reason, p.State), nil
}

// judge judges an answer.
func (w *roomWorld) judge(v *inLine, d core.Decision, p waitingroom.Place, seed string) error {
	now := w.Now()
	switch {
	case w.drawn < 0 && (d.Allowed || p.State != "lobby"):
		return broken("Before the opening nobody is inside", "%+v", d)
	case w.drawn < 0 && !w.flushed && p.Number != int64(v.number):
		return broken("In the lobby each visitor has the number of their arrival", "%d, want %d", p.Number,
			v.number)
	case !d.Allowed || w.inside == v:
		return nil
	case w.inside != nil && !w.flushed:
		return broken("One visitor is inside at a time", "%s beside %s", v.actor, w.inside.actor)
	case now.Before(w.quiet):
		return broken("Nobody enters in the first interval after a lobby", "%s", v.actor)
	}
	for _, o := range w.visitors {
		if o != v && o.number >= 0 && !o.used && o.steady && w.rank(o, seed) < w.rank(v, seed) {
			return broken("Nobody enters in front of a visitor who has come before them and has asked all the time",
				"%s in front of %s", v.actor, o.actor)
		}
	}
	v.used, w.inside, w.until = true, v, now.Add(roomPass)
	return nil
}

// rank is the place of a visitor in the line.
func (w *roomWorld) rank(v *inLine, seed string) int {
	if v.number >= w.drawn || seed == "" {
		return v.number
	}
	return slices.Index(waitingroom.Draw(seed, w.drawn), v.number)
}
