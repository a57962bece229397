package waitingroom

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core/script"
)

// A picture is what a process knows of the room.
type picture struct {
	sent time.Time // when the call was sent that brought it
	now  int64     // the room's clock, in milliseconds
	base int64     // when the room was made
	opening
	line
	visitors
	decided
	pace
	known string // the room as scripts take it, should Redis have lost it
}

// opening is how a room opens.
type opening struct {
	opens            int64    // 0: it is open
	lobby            arrivals // before the opening
	draws            bool     // the places of earlier arrivals are drawn
	seed, commitment string
	drawn            []uint32 // the place of each arrival before the opening; nil: not drawn
}

// line is who waits.
type line struct {
	last, high int64   // numbers: the last one, and the highest that was called
	counts     []int64 // how many are here before each size places
	from, size int64   // the first place counted, and how many are counted together
	upTo       int64   // the last number then
	full       bool    // more places were called than the picture tells
}

// visitors is who is inside, who may come, and who has gone.
type visitors struct {
	free, inside, called   int64
	entered, missed, quiet int64            // quiet: nobody enters before
	back                   int64            // when it was asked again after an interval in which nobody asked
	left                   map[string]int64 // passes that were given back, and until when to know it
	since                  int64            // the last of these moments
}

// decided is what operators have decided.
type decided struct {
	state, text string
	limit       arrivals // how many may be inside; none: as the options say
}

// pace is how fast visitors enter.
type pace struct {
	rate                  float64 // visitors per second
	ratedAt, ratedEntered int64   // from then on it is measured
}

// arrivals is a number of visitors, or none, which scripts take as empty text.
type arrivals struct {
	n  int64
	is bool
}

func arrivalsOf(text string) arrivals { return arrivals{parse(text), text != ""} }

// String implements [fmt.Stringer].
func (a arrivals) String() string {
	if !a.is {
		return ""
	}
	return strconv.FormatInt(a.n, 10)
}

// The states of a room.
const (
	open   = "open"
	paused = "paused"
	closed = "closed"
)

// unknown is the room as the scripts take it from a process that does not know it.
var unknown = "0 " + strconv.Itoa(firstPlace-1) + "   open  "

// clock is the room's clock at a moment of this process. It is never behind: it counts from when the picture
// was asked for.
func (p *picture) clock(now time.Time) int64 {
	return p.now + max(now.Sub(p.sent), 0).Milliseconds() + 1
}

// place is the place of a ticket in the line.
func (p *picture) place(t ticket) int64 {
	if t.place > 0 {
		return t.place
	}
	if i := t.index - firstPlace; i >= 0 && i < int64(len(p.drawn)) {
		return firstPlace + int64(p.drawn[i])
	}
	return t.index
}

// ahead is how many are here who have a lower place. highest is the last place that was called since the
// picture, as far as this process knows.
func (p *picture) ahead(place, highest int64) int64 {
	all := p.counts[len(p.counts)-1]
	switch n := int64(len(p.counts) - 1); {
	case place > p.upTo: // came later, and was not called either
		return all + max(place-max(p.upTo, p.high, highest)-1, 0)
	case place <= p.from || n == 0:
		return 0
	default:
		i := min((place-p.from)/p.size, n-1)
		first := p.from + i*p.size
		size := min(p.size, p.upTo+1-first) // the last ones are fewer
		return p.counts[i] + (p.counts[i+1]-p.counts[i])*(place-first)/size
	}
}

// look returns the picture that the process has. It asks for the first one, and for another one where nobody
// has asked for a while: much may have happened since.
func (g *Guard) look(ctx context.Context) (*picture, error) {
	p := g.picture.Load()
	switch {
	case p == nil:
		g.asking.Lock()
	case g.Engine().Now().Sub(p.sent) < stale || !g.asking.TryLock():
		return p, nil
	}
	defer g.asking.Unlock()
	if last := g.picture.Load(); last != p {
		return last, nil
	}
	g.askWhetherOver(ctx)
	fresh, err := g.ask(ctx, nil, nil)
	if err != nil && p != nil {
		return p, nil
	}
	return fresh, err
}

// askWhetherOver asks the application whether there is something to wait for.
func (g *Guard) askWhetherOver(ctx context.Context) {
	if g.options.Over == nil {
		return
	}
	text, err := g.options.Over(ctx)
	switch {
	case err != nil:
		if skipped, ok := g.failed.Due("over"); ok {
			g.Logger().Warn("gatehouse: a waiting room does not know whether it is over: Options.Over failed",
				"guard", g.Name(), "err", err, "failures_not_logged", skipped)
		}
	case text == "":
		g.over.Store(nil)
	default:
		text = script.Encode(text)
		g.over.Store(&text)
	}
}

// stands returns the state of the room, and the text for waiting visitors.
func (g *Guard) stands(p *picture) (state, text string) {
	if over := g.over.Load(); over != nil && p.state == open {
		return closed, *over
	}
	return p.state, p.text
}

// touch has the process ask for a picture a beat after the last one.
func (g *Guard) touch(p *picture) {
	if g.due.CompareAndSwap(false, true) {
		g.After(max(beat-g.Engine().Now().Sub(p.sent), 0), func(ctx context.Context) {
			g.due.Store(false)
			_ = g.tick(ctx) // observed; the rest is sent the next time
		})
	}
}

// tick sends what the process has heard of its visitors, and gets a picture.
func (g *Guard) tick(ctx context.Context) error {
	g.askWhetherOver(ctx)
	g.lookForTickets()
	g.mu.Lock()
	before, seen, used := g.picture.Load(), g.seen, g.used
	g.seen, g.used = map[int64]struct{}{}, map[string]pass{}
	g.mu.Unlock()
	places, passes, more := slices.Collect(maps.Keys(seen)), slices.Collect(maps.Keys(used)), 20
	for {
		np := min(len(places), most)
		nu := min(len(passes), (most-np)/2)
		p, err := g.ask(ctx, places[:np], passesOf(used, passes[:nu]))
		if err != nil {
			g.again(before, places, passes, used)
			return err
		}
		places, passes = places[np:], passes[nu:]
		if len(places)+len(passes) == 0 && (!p.full || more == 0) {
			return nil
		}
		more--
	}
}

// again keeps for the next call what could not be sent, unless numbers have other places by now.
func (g *Guard) again(before *picture, places []int64, passes []string, used map[string]pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.picture.Load(); before != nil && (p.base != before.base || p.lobby != before.lobby) {
		return
	}
	for _, place := range places {
		if len(g.seen) < held {
			g.seen[place] = struct{}{}
		}
	}
	for _, member := range passes {
		if _, newer := g.used[member]; !newer && len(g.used) < held {
			g.used[member] = used[member]
		}
	}
}

// pass is a pass that was used.
type pass struct {
	member     string
	mark       int64
	until, end int64
}

func passesOf(used map[string]pass, members []string) []pass {
	passes := make([]pass, len(members))
	for i, member := range members {
		passes[i] = used[member]
	}
	return passes
}

// ask sends some of the process's news, and sets the picture that comes back.
func (g *Guard) ask(ctx context.Context, places []int64, passes []pass) (*picture, error) {
	return g.askAs(ctx, "", places, passes)
}

// askAs is ask with the known data of a room that Redis has lost. "": the data of the process.
func (g *Guard) askAs(ctx context.Context, known string, places []int64, passes []pass) (*picture, error) {
	before := g.picture.Load()
	lobby, since := "", int64(0)
	if before != nil {
		lobby, since = before.lobby.String(), before.since
	}
	g.mu.Lock()
	heard := g.heard
	g.mu.Unlock()
	more := []any{lobby, since, heard, len(places)}
	for _, place := range places {
		more = append(more, place)
	}
	for _, u := range passes {
		more = append(more, u.member, u.mark, u.until, u.end)
	}
	sent := g.Engine().Now()
	value, err := g.runAs(ctx, known, tickScript, more...)
	if err != nil {
		return nil, err
	}
	p, untils, calls, err := readPicture(value, len(passes))
	if err != nil {
		return nil, err
	}
	p.sent = sent
	p.draw(before)
	p.measure(before)
	p.forget(before)
	for i, until := range untils {
		if until > 0 {
			asked := g.renewed.Ask(passes[i].member, sent)
			g.renewed.Set(asked, until, script.DurationOf(until-p.now, time.Millisecond))
		}
	}
	g.tellOfOpenings(before, p)
	return g.replace(before, p, calls), nil
}

// replace sets the picture. It returns the one that the process has then.
func (g *Guard) replace(before, p *picture, calls []call) *picture {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := g.picture.Load()
	if last != before && last.base == p.base && last.now > p.now {
		g.hear(calls, last)
		return last // it was asked for later, and has come sooner
	}
	if last != nil && (last.base != p.base || last.lobby != p.lobby) { // numbers have other places now
		clear(g.seen)
		clear(g.used)
	}
	if last != nil && last.base != p.base {
		clear(g.calls)
		g.heard = 0
		g.highest.Store(0)
	}
	if p.seed == g.seed { // the next room has another one
		g.seed = newSeed()
	}
	g.hear(calls, p)
	clear(g.told)
	g.picture.Store(p)
	return p
}

// A call says that the holder of a place should ask, and until when they may enter; 0: the place has been
// used.
type call struct {
	place, until int64
	used         bool
}

// hear notes calls, and forgets those that have ended.
func (g *Guard) hear(calls []call, p *picture) {
	for _, c := range calls {
		if c.until > 0 {
			g.heard = max(g.heard, c.until)
			g.raise(c.place)
		} else { // they have entered, unheard, have left, or are the second holder of the number
			c.until, c.used = p.now+g.options.Away.Milliseconds(), true
		}
		g.calls[c.place] = c
	}
	for place, c := range g.calls {
		if c.until < p.now {
			delete(g.calls, place)
		}
	}
}

// raise notes that a place was called.
func (g *Guard) raise(place int64) {
	for last := g.highest.Load(); place > last && !g.highest.CompareAndSwap(last, place); {
		last = g.highest.Load()
	}
}

// tellOfOpenings logs what an operator may not expect: another release has a later opening, or the room began
// anew.
func (g *Guard) tellOfOpenings(last, p *picture) {
	own := g.options.opens()
	switch {
	case last != nil && last.base != p.base:
		g.Logger().Info("gatehouse: a waiting room has begun anew", "guard", g.Name(), "opens", p.opensAt(),
			"opened_before", last.opensAt())
	case p.opens > max(own, p.now) && (last == nil || last.opens != p.opens):
		g.Logger().Warn("gatehouse: a waiting room opens later than this process says: the latest opening holds "+
			"that a process has named", "guard", g.Name(), "opens", p.opensAt(), "options", g.options.Opens)
	}
}

func (p *picture) opensAt() time.Time { return time.UnixMilli(p.opens).UTC() }

// mostCalls is how many calls a picture tells, besides used places.
const mostCalls = 1000

func readPicture(value any, passes int) (*picture, []int64, []call, error) {
	r := script.ReadReply(value, 20+passes, 20+passes+2*mostCalls+4*most)
	p := &picture{now: r.Number(), base: r.Number()}
	p.last, p.high, p.free, p.inside, p.called = r.Number(), r.Number(), r.Number(), r.Number(), r.Number()
	p.lobby, p.quiet, p.entered, p.missed = arrivalsOf(r.Text()), r.Number(), r.Number(), r.Number()
	p.state, p.limit, p.text, p.seed = r.Text(), arrivalsOf(r.Text()), r.Text(), r.Text()
	p.opens, p.draws, p.back = r.Number(), r.Flag(), r.Number()
	count := strings.Fields(r.Text())
	calls := make([]call, min(max(r.Number(), 0), mostCalls+most))
	untils := make([]int64, passes)
	for i := range untils {
		untils[i] = r.Number()
	}
	for i := range calls {
		calls[i] = call{place: parse(r.Text()), until: parse(r.Text())}
	}
	n := len(calls)
	p.full = n >= mostCalls && calls[n-mostCalls].until > 0
	p.left = map[string]int64{}
	for r.More() {
		member := r.Text()
		p.since = parse(r.Text())
		p.left[member] = p.since
	}
	if r.Err != nil {
		return nil, nil, nil, r.Err
	}
	p.commitment = Commitment(p.seed)
	p.known = p.as(p.base, p.last, p.lobby)
	return p, untils, calls, p.count(count)
}

// as returns the room as scripts take it, with another number, and another lobby.
func (p *picture) as(base, last int64, lobby arrivals) string {
	return fmt.Sprintf("%d %d %s %s %s %s %s", base, last, lobby, p.seed, p.state, p.limit, p.text)
}

// count reads how many are here.
func (p *picture) count(fields []string) error {
	numbers := make([]int64, len(fields))
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return fmt.Errorf("a count of visitors: %w", err)
		}
		numbers[i] = n
	}
	if len(numbers) < 4 || numbers[2] < 1 {
		return fmt.Errorf("a count of visitors has %d numbers", len(numbers))
	}
	p.from, p.size, p.upTo = numbers[1], numbers[2], numbers[3]
	p.counts = make([]int64, len(numbers)-3)
	for i, n := range numbers[4:] {
		p.counts[i+1] = p.counts[i] + n
	}
	return nil
}

// forget keeps of the passes that were given back before those that have not ended.
func (p *picture) forget(before *picture) {
	if before == nil || before.base != p.base {
		return
	}
	p.since = max(p.since, before.since)
	for member, moment := range before.left {
		if moment > p.now {
			p.left[member] = moment
		}
	}
}

// draw draws the places of visitors from before the opening, once.
func (p *picture) draw(before *picture) {
	n := int(p.lobby.n)
	if before != nil && before.lobby == p.lobby && before.seed == p.seed && len(before.drawn) == n {
		p.drawn = before.drawn
	} else if n > 0 {
		p.drawn = placesOf(Draw(p.seed, n))
	}
}

// measure measures how many enter per second, over half a minute at least.
func (p *picture) measure(before *picture) {
	if before == nil || before.base != p.base {
		p.ratedAt, p.ratedEntered = p.now, p.entered
		return
	}
	p.pace = before.pace
	span := p.now - p.ratedAt
	if span < 2000 {
		return
	}
	fresh := float64(p.entered-p.ratedEntered) * 1000 / float64(span)
	if p.rate == 0 || span >= 30000 {
		p.rate = fresh
	}
	if span >= 30000 {
		p.ratedAt, p.ratedEntered = p.now, p.entered
	}
}
