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

	base                     string
	last, high               int64
	free, inside, called     int64
	lobby                    string // how many came before the opening; empty: not open yet
	quiet, entered, missed   int64
	state, limit, text, seed string
	commitment               string
	counts                   []int64          // how many are here before each size places
	from, size               int64            // the first place counted, and how many are counted together
	upTo                     int64            // the last number then
	left                     map[string]int64 // passes that were given back, and until when to know it
	since                    int64            // the last of these moments
	drawn                    []uint32         // the place of each arrival before the opening; nil: not drawn
	rate                     float64          // visitors per second who enter
	rated                    *picture         // a picture from which the rate is measured
	known                    any              // the room as scripts take it, should Redis have lost it
}

// The states of a room.
const (
	open   = "open"
	paused = "paused"
	closed = "closed"
)

// unknown is the room as the scripts take it from a process that has no picture: they make one with the seed.
func unknown(seed string) string { return "0 " + strconv.Itoa(firstPlace-1) + "  " + seed + " open  " }

// clock is the room's clock at a moment of this process. It is never behind: it counts from when the picture
// was asked for.
func (p *picture) clock(now time.Time) int64 {
	return p.now + max(now.Sub(p.sent), 0).Milliseconds() + 1
}

// place is the place of an arrival in the line.
func (p *picture) place(index int64) int64 {
	if i := index - firstPlace; i >= 0 && i < int64(len(p.drawn)) {
		return firstPlace + int64(p.drawn[i])
	}
	return index
}

// ahead is how many are here who have a lower place. highest is the last place that was called since the
// picture, as far as this process knows.
func (p *picture) ahead(place, highest int64) int64 {
	all := p.counts[len(p.counts)-1]
	switch n := int64(len(p.counts) - 1); {
	case place > p.upTo: // who came later, and was not called either
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

// stands returns the state of the room, and the text for those who wait.
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
			_ = g.tick(ctx) // observed; what was not sent is sent the next time
		})
	}
}

// tick sends what the process has heard of its visitors, and gets a picture.
func (g *Guard) tick(ctx context.Context) error {
	g.askWhetherOver(ctx)
	g.mu.Lock()
	seen, used := g.seen, g.used
	g.seen, g.used = map[int64]struct{}{}, map[string]pass{}
	g.mu.Unlock()
	places, passes := slices.Collect(maps.Keys(seen)), slices.Collect(maps.Keys(used))
	for {
		np := min(len(places), most)
		nu := min(len(passes), (most-np)/2)
		if _, err := g.ask(ctx, places[:np], passesOf(used, passes[:nu])); err != nil {
			g.again(places, passes, used)
			return err
		}
		places, passes = places[np:], passes[nu:]
		if len(places)+len(passes) == 0 {
			return nil
		}
	}
}

// again keeps for the next call what could not be sent.
func (g *Guard) again(places []int64, passes []string, used map[string]pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
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

// ask sends some of what the process has heard, and sets the picture that comes back.
func (g *Guard) ask(ctx context.Context, places []int64, passes []pass) (*picture, error) {
	before := g.picture.Load()
	lobby, since := "", int64(0)
	if before != nil {
		lobby, since = before.lobby, before.since
	}
	more := []any{lobby, since, len(places)}
	for _, place := range places {
		more = append(more, place)
	}
	for _, u := range passes {
		more = append(more, u.member, u.mark, u.until, u.end)
	}
	sent := g.Engine().Now()
	value, err := g.run(ctx, tickScript, more...)
	if err != nil {
		return nil, err
	}
	p, untils, err := readPicture(value, len(passes))
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
	return g.replace(before, p), nil
}

// replace sets the picture. It returns the one that the process has then.
func (g *Guard) replace(before, p *picture) *picture {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := g.picture.Load()
	switch {
	case last != before && last.base == p.base && last.now > p.now:
		return last // it was asked for later, and has come sooner
	case before != nil && (before.base != p.base || before.lobby != p.lobby): // numbers have other places now
		clear(g.seen)
		clear(g.used)
	}
	if before != nil && before.base != p.base {
		g.highest.Store(0)
	}
	clear(g.told)
	g.picture.Store(p)
	return p
}

func readPicture(value any, passes int) (*picture, []int64, error) {
	r := script.ReadReply(value, 16+passes, 16+passes+2*most)
	p := &picture{now: r.Number(), base: r.Text(), last: r.Number(), high: r.Number(), free: r.Number(),
		inside: r.Number(), called: r.Number(), lobby: r.Text(), quiet: r.Number(), entered: r.Number(),
		missed: r.Number(), state: r.Text(), limit: r.Text(), text: r.Text(), seed: r.Text()}
	count := strings.Fields(r.Text())
	untils := make([]int64, passes)
	for i := range untils {
		untils[i] = r.Number()
	}
	p.left = map[string]int64{}
	for r.More() {
		member := r.Text()
		p.since = parse(r.Text())
		p.left[member] = p.since
	}
	if r.Err != nil {
		return nil, nil, r.Err
	}
	p.commitment = Commitment(p.seed)
	p.known = fmt.Sprintf("%s %d %s %s %s %s %s", p.base, p.last, p.lobby, p.seed, p.state, p.limit, p.text)
	return p, untils, p.count(count)
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

// draw draws the places of those who came before the opening, once.
func (p *picture) draw(before *picture) {
	n, _ := strconv.Atoi(p.lobby)
	if before != nil && before.lobby == p.lobby && before.seed == p.seed && len(before.drawn) == n {
		p.drawn = before.drawn
	} else if n > 0 {
		p.drawn = placesOf(Draw(p.seed, n))
	}
}

// measure measures how many enter per second, over half a minute at least.
func (p *picture) measure(before *picture) {
	if before == nil || before.base != p.base {
		p.rated = &picture{now: p.now, entered: p.entered}
		return
	}
	p.rated, p.rate = before.rated, before.rate
	if span := p.now - p.rated.now; span >= 2000 {
		fresh := float64(p.entered-p.rated.entered) * 1000 / float64(span)
		if p.rate == 0 || span >= 30000 {
			p.rate = fresh
		}
		if span >= 30000 {
			p.rated = &picture{now: p.now, entered: p.entered}
		}
	}
}
