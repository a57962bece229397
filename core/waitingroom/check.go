package waitingroom

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Place is where a visitor stands.
type Place struct {
	// Position is the visitor's place among those who wait and are here, from 1 on. It is 0 in the lobby.
	Position int64
	// Estimate is how long the wait will be, at the rate at which visitors enter now. It is 0 when nobody can
	// tell: in the lobby, while the room is paused, and while nobody enters.
	Estimate time.Duration
	// State is "lobby", "open", "paused" or "closed".
	State string
	// Opens says when the lobby ends.
	Opens time.Time
	// Text is what the operator tells those who wait: see [Guard.Close].
	Text string
	// Number is the visitor's number among the visitors from before the opening, from 0 on. It is -1 for later
	// visitors. With [Draw] a visitor can check their place.
	Number int64
	// Drawn is how many came before the opening, from then on: the numbers below it were drawn.
	Drawn int64
	// Commitment is the commitment to the seed of the draw. Seed is the seed, from the opening on.
	Commitment, Seed string
}

// PlaceOf returns where the visitor of a decision stands who has to wait.
func PlaceOf(d core.Decision) (Place, bool) {
	c, ok := core.ClaimOf[waits](d)
	return c.Place, ok
}

// waits is the claim of a decision about somebody who waits.
type waits struct{ Place }

// Details has the members of the answer to programs.
func (w waits) Details() []kit.Detail {
	details := []kit.Detail{{Name: "state", Value: w.State}}
	if w.Position > 0 {
		details = append(details, kit.Detail{Name: "position", Value: w.Position},
			kit.Detail{Name: "ahead", Value: w.Position - 1})
	}
	if w.Estimate > 0 {
		details = append(details, kit.Detail{Name: "estimate", Value: iso(w.Estimate)})
	}
	if !w.Opens.IsZero() {
		details = append(details, kit.Detail{Name: "opens", Value: w.Opens})
	}
	if w.Text != "" {
		details = append(details, kit.Detail{Name: "text", Value: w.Text})
	}
	if w.Number >= 0 && w.Commitment != "" {
		details = append(details, kit.Detail{Name: "number", Value: w.Number},
			kit.Detail{Name: "commitment", Value: w.Commitment})
	}
	if w.Seed != "" {
		details = append(details, kit.Detail{Name: "drawn", Value: w.Drawn},
			kit.Detail{Name: "seed", Value: w.Seed})
	}
	return details
}

// iso returns a duration as in ISO 8601, to the second, above two minutes to the minute. No part is as much
// as one of the next larger unit.
func iso(d time.Duration) string {
	seconds := int64((d + time.Second - 1) / time.Second)
	minutes := int64((d + time.Minute - 1) / time.Minute)
	switch {
	case d >= 2*time.Minute && minutes < 60:
		return "PT" + strconv.FormatInt(minutes, 10) + "M"
	case d >= 2*time.Minute:
		return "PT" + strconv.FormatInt(minutes/60, 10) + "H" + strconv.FormatInt(minutes%60, 10) + "M"
	case seconds < 60:
		return "PT" + strconv.FormatInt(seconds, 10) + "S"
	default:
		return "PT" + strconv.FormatInt(seconds/60, 10) + "M" + strconv.FormatInt(seconds%60, 10) + "S"
	}
}

// Check implements [core.Guard]: it lets a visitor with a pass in, and tells one who waits when to ask again.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.check(ctx, a) })
}

func (g *Guard) check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a, err := a.Prepare()
	v := visit{Guard: g, d: core.Decision{Guard: g.Name(), Attempt: a}}
	if err != nil {
		return v.d, err
	}
	if v.picture, err = g.look(ctx); err != nil {
		return v.d, err
	}
	g.touch(v.picture)
	v.now = v.picture.clock(g.Engine().Now())
	t, ok := g.tickets.read(a.Token)
	reason := ReasonWaiting
	if ok && t.who != whoOf(a.Actor) {
		ok, reason = false, ReasonElsewhere
	}
	if ok {
		v.sent = t
	}
	defer func() { g.count(v.d, t.base != 0) }()
	switch {
	case !ok:
		err = v.arrive(ctx, reason)
	default:
		err = v.come(ctx, t)
	}
	if err != nil {
		return core.Decision{Guard: g.Name(), Attempt: a}, err
	}
	return v.d, nil
}

// A visit is one attempt of a visitor.
type visit struct {
	*Guard
	d       core.Decision
	picture *picture
	now     int64  // by the room's clock, at least
	sent    ticket // the visitor's; zero: none was sent
}

// arrive gives the visitor a number. They enter at once where nobody waits and there is room.
func (v *visit) arrive(ctx context.Context, reason core.Reason) error {
	if state, _ := v.stands(v.picture); state == closed {
		v.refuse(reason, ticket{}, 0)
		return nil
	}
	args := v.args("")
	value, err := v.Engine().RunJoined(ctx, v.Engine().Deadline(), script.Join{
		Script: joinScript, Group: v.keys[0], Keys: v.keys, Args: args, Own: 1, Replies: shareNumbers,
	}, joinScript, v.keys, append(args, 1)...)
	if err != nil {
		return err
	}
	r := script.ReadReply(value, 5, 5)
	now, base, index, called, lobby := r.Number(), r.Number(), r.Number(), r.Flag(), r.Number()
	if r.Err != nil {
		return r.Err
	}
	v.now = max(v.now, now)
	if base != v.picture.base || (lobby < 0) == v.picture.lobby.is { // the room was made, or has opened
		if v.picture, err = v.ask(ctx, nil, nil); err != nil {
			return err
		}
	}
	t := newTicket(base, v.picture.opens, index, v.d.Attempt.Actor)
	if called {
		v.raise(index)
		return v.enter(ctx, t, reason)
	}
	v.tell(index)
	v.refuse(reason, t, index)
	return nil
}

// shareNumbers gives each of several visitors one of the numbers.
func shareNumbers(reply any, n int) []any {
	r := script.ReadReply(reply, 5, 5)
	now, base, index, called, lobby := r.Number(), r.Number(), r.Number(), r.Number(), r.Number()
	if r.Err != nil {
		return nil
	}
	each := make([]any, n)
	for i := range each {
		soon := kit.FlagOf(int64(i) < called)
		each[i] = []any{now, base, index + int64(i), int64(soon), lobby}
	}
	return each
}

// parse reads a number that the scripts keep as text. Any other text is 0.
func parse(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// come takes the ticket of a visitor. With a ticket of another room, or after too long an absence, the
// visitor counts as new.
func (v *visit) come(ctx context.Context, t ticket) error {
	if err := v.bringBack(ctx, t); err != nil {
		if errors.Is(err, context.Canceled) {
			return err
		}
		v.refuse(ReasonWaiting, t, t.place)
		return nil
	}
	member := t.member(v.picture.place(t))
	switch {
	case t.base != v.picture.base || v.ended(t) || v.picture.left[member] > 0:
		return v.arrive(ctx, ReasonWaiting)
	case !t.isPass() || v.now >= t.until:
		return v.wait(ctx, t)
	}
	return v.pass(t, member)
}

// ended reports whether a pass has ended, or a number has lost its place. While nobody could ask, none does.
func (v *visit) ended(t ticket) bool {
	if t.isPass() {
		return v.now >= t.end
	}
	return v.now >= t.until && v.now >= v.picture.back+v.options.Away.Milliseconds()
}

// bringBack looks for the room of a valid ticket: a later room than the process knows, or a room that Redis
// and all processes have lost while visitors waited. A lost room is made again from the ticket, if the
// present room is of the same opening and was made less than an interval ago.
func (v *visit) bringBack(ctx context.Context, t ticket) (err error) {
	p, known := v.picture, ""
	switch {
	case t.base == p.base || v.now >= max(t.until, t.end):
		return nil
	case t.base < p.base:
		if t.opens != p.opens || v.now >= p.base+v.options.interval().Milliseconds() {
			return nil
		}
		lobby := p.lobby
		lobby.n = 0 // the ticket has its place
		known = p.as(t.base, max(t.index, t.place, firstPlace-1), lobby)
	}
	if p, err = v.askAs(ctx, known, nil, nil); err == nil {
		v.picture = p
	}
	return err
}

// pass lets a visitor in who has a valid pass. Nobody is asked.
func (v *visit) pass(t ticket, member string) error {
	v.mu.Lock()
	if len(v.used) < held {
		v.used[member] = pass{member, t.mark(), t.until, t.end}
	}
	v.mu.Unlock()
	if until, ok := v.renewed.Find(member, v.Engine().Now()); ok && until > t.until {
		t.until = until
		v.d.Token = v.tickets.sign(&t)
	}
	v.let(t, core.SourceRemembered)
	return nil
}

// wait takes the number of a visitor, or a pass that was not used for too long. Redis is asked when it may be
// their turn, once for each picture.
func (v *visit) wait(ctx context.Context, t ticket) error {
	p := v.picture
	place := p.place(t)
	state, _ := v.stands(p)
	told, called, used := v.note(place)
	switch {
	case told:
	case t.isPass(), used, state == open && p.lobby.is && v.now >= p.quiet &&
		(called || p.free > 0 && p.ahead(place, v.highest.Load()) == 0):
		return v.enter(ctx, t, ReasonWaiting)
	}
	v.refuse(ReasonWaiting, t, place)
	return nil
}

// note notes that the holder of a place is here. It reports whether Redis has told them since the picture
// that they have to wait, and whether they are called, or the place has been used.
func (v *visit) note(place int64) (told, called, used bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.seen) < held {
		v.seen[place] = struct{}{}
	}
	_, told = v.told[place]
	c := v.calls[place]
	called = c.until >= v.now || v.picture.full && place <= max(v.picture.high, v.highest.Load())
	return told, called, c.used
}

// tell notes that Redis has told the holder of a place to wait.
func (v *visit) tell(place int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.told) < held {
		v.told[place] = struct{}{}
	}
}

// enter asks whether the visitor may enter.
func (v *visit) enter(ctx context.Context, t ticket, reason core.Reason) error {
	for again := false; ; again = true {
		place := v.picture.place(t)
		value, err := v.run(ctx, enterScript, v.picture.lobby.String(), t.base, place, t.name(), t.mark(), t.end)
		if err != nil {
			return v.stay(err, t)
		}
		r := script.ReadReply(value, 2, 4)
		answer := r.Text()
		v.now = max(v.now, r.Number())
		switch answer {
		case "in":
			t.until, t.end, t.place = r.Number(), r.Number(), place
			v.d.Token = v.tickets.sign(&t)
			v.let(t, core.SourceRedis)
		case "moved":
			t.index = r.Number()
			t.place = t.index
			v.tell(t.index)
			v.refuse(reason, t, t.index)
		case "over":
			return v.arrive(ctx, reason)
		case "stale": // the room has opened, or is another one, since the picture
			if v.picture, err = v.ask(ctx, nil, nil); err != nil {
				return err
			}
			switch {
			case t.base != v.picture.base && !again:
				return v.arrive(ctx, reason)
			case !again:
				continue
			}
			v.refuse(reason, t, place)
		default:
			v.tell(place)
			v.refuse(reason, t, place)
		}
		return r.Err
	}
}

// stay has a visitor stay where they are while Redis does not answer: in line, or inside, until their pass
// ends. They may have entered without hearing of it, and the pass ends after Idle, so they ask again
// before. If Redis has answered a moment ago, somebody else may have the place of a visitor who was away
// for Idle.
func (v *visit) stay(err error, t ticket) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case t.isPass() && v.Engine().Now().Sub(v.picture.sent) >= stale:
		v.let(t, core.SourceRemembered)
	default:
		v.refuse(ReasonWaiting, t, v.picture.place(t))
		v.d.RetryAfter = min(v.d.RetryAfter, max(v.options.Idle/4, time.Second))
	}
	return nil
}

// let lets the visitor in.
func (v *visit) let(t ticket, source core.Source) {
	v.d.Allowed, v.d.Reason, v.d.Source = true, core.ReasonOK, source
	v.d.Limit, v.d.Remaining = v.picture.capacity(v.options.Capacity), max(v.picture.free, 0)
	v.d.ResetAfter = time.Duration(max(t.end-v.now, 0)) * time.Millisecond
}

// refuse has the visitor wait, with a ticket if there is one.
func (v *visit) refuse(reason core.Reason, t ticket, place int64) {
	p := v.picture
	v.d.Reason, v.d.Source = reason, core.SourceRemembered
	v.d.Limit = p.capacity(v.options.Capacity)
	state, text := v.stands(p)
	w := waits{Place{State: state, Text: script.Decode(text), Number: -1}}
	if !p.lobby.is && state == open {
		w.State, w.Opens = "lobby", time.UnixMilli(p.opens).In(v.options.Opens.Location())
	}
	if p.draws && t.index >= firstPlace && (!p.lobby.is || t.index-firstPlace < p.lobby.n) {
		w.Number, w.Commitment = t.index-firstPlace, p.commitment
		if p.lobby.is {
			w.Seed, w.Drawn = p.seed, p.lobby.n
		}
	}
	switch {
	case state == closed:
		v.d.Reason = core.ReasonClosed
		if t.base > 0 {
			v.d.RetryAfter = v.poll(w) // the line may go on
		}
	case w.State == "lobby":
		v.d.RetryAfter = v.poll(w)
	default:
		w.Position = p.ahead(place, v.highest.Load()) + 1
		w.Estimate = p.estimate(w.Position, v.now, v.options)
		v.d.RetryAfter = v.poll(w)
	}
	v.d.SetClaim(w)
	v.give(t, place)
}

// give gives the visitor a ticket, unless it is the one that they have, signed by the only secret. A number
// is renewed, unless it was half a poll ago.
func (v *visit) give(t ticket, place int64) {
	if t.base == 0 {
		return
	}
	if !t.isPass() && t.base == v.picture.base {
		if v.picture.lobby.is {
			t.place = place
		}
		until := v.now + max(v.options.Away, 2*v.d.RetryAfter).Milliseconds()
		if until-t.until >= v.options.Poll.Milliseconds()/2 {
			t.until, t.opens = until, v.picture.opens
		}
	}
	if t == v.sent && len(v.tickets.macs) == 1 {
		return
	}
	if token := v.tickets.sign(&t); token != v.d.Attempt.Token {
		v.d.Token = token
	}
}

// poll says when the visitor should ask again: the nearer they are, the sooner, and never all at once.
func (v *visit) poll(w waits) time.Duration {
	poll := v.options.Poll
	if w.State == "lobby" {
		if left := time.Duration(v.picture.opens-v.now) * time.Millisecond; left > poll {
			return min(left, 5*time.Minute) + rand.N(poll)
		}
	}
	near := poll
	if w.Estimate > 0 {
		near = min(max(w.Estimate/2, poll/4, time.Second), poll)
	}
	return near - rand.N(near/5+1)
}

// capacity is how many may be inside, unless the operator has set another number.
func (p *picture) capacity(options int) int64 {
	if p.limit.is {
		return p.limit.n
	}
	return int64(options)
}

// estimate returns the expected wait at a position. Before anybody has entered, it assumes that all
// visitors inside stay as long as they may.
func (p *picture) estimate(position, now int64, o Options) time.Duration {
	if p.state != open {
		return 0
	}
	rate := p.rate
	if rate == 0 {
		rate = float64(p.capacity(o.Capacity)) / o.Pass.Seconds()
	}
	seconds := float64(position)/rate + float64(max(p.quiet-now, 0))/1000
	return time.Duration(min(seconds, 1e6) * float64(time.Second))
}
