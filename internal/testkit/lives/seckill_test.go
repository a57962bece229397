package lives

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/seckill/buckets"
)

// The definition of a sale of so many units, as many a buyer, with holds of five minutes, kept for an hour:
//   - Open puts an item on sale exactly if there is no sale of it
//   - a unit is held for who asks while one is left: the stock, less what is sold and what is held for less than
//     five minutes. A buyer has one unit at most, or two where two are for sale
//   - a reservation under an ID that holds or has bought is the same one. After it was cancelled, or is over,
//     the ID is its buyer's, who may reserve under it again
//   - a reservation that was not cancelled is sold by Confirm while it holds its unit, and afterwards while one
//     is left and its buyer has none; sold once
//   - Cancel gives back what is held, once, and nothing that is sold
//   - Commit is Confirm. Rollback gives back a reservation that nobody has sold, when all checks that were told of
//     it have rolled back. Revoke does so too where the check has sold it and no other was told of it
//   - Restock changes the stock once per ID, and takes only what is left
//   - nobody gets a new unit before the sale opens, or of one that is closed; what was reserved in time is sold
//   - after Sweep, what is held is what has not ended
//   - a sale that was lost or discarded, or that has neither changed nor been open for an hour, is unknown, and
//     all of it with it. Keys may last longer, up to a 64th of the hour, or an eighth with several buckets
//     (seckill.Options, buckets.Options): whether the sale is known then is not said, so the time passes on
//   - a call that did something, and arrives a second time, does nothing more. Where a backup from before it was
//     loaded, it has done nothing
func saleOf(name string, longer time.Duration, of func(p *place, name string) onSale) life {
	return life{
		name: name, of: []string{strings.ReplaceAll(name, "-", "/")},
		events: alphabet("ann ann-more bob again confirm-ann confirm-more confirm-bob cancel-ann open restock take",
			"bob-lapses at-hold before-hold close discard hour flush save load"),
		same:  sameSale,
		world: func(p *place) world { return &saleWorld{place: p, of: of, units: 1, longer: longer} },
		found: []string{"at-hold ann bob-lapses ann-more bob-lapses cancel-ann confirm-ann",
			"save flush bob hour load restock", "save flush bob hour load open"},
	}
}

// settled is the life of the same sale by requests: each check is settled, more than one is told of a
// reservation, and calls arrive again.
func (l life) settled(units int) life {
	of := l.world
	l.name += "-settled"
	if units > 1 {
		l.name = strings.Replace(l.name, "settled", fmt.Sprint(units), 1)
	}
	l.events = alphabet("ann ann-more bob commit commit-first confirm-ann cancel-ann restock",
		"roll-back roll-first-back revoke revoke-first arrives-again before-last at-hold close discard flush save load")
	l.found = []string{
		"ann at-hold bob roll-first-back commit-first restock commit-first",
		"ann at-hold bob roll-first-back commit-first",
		"ann-more at-hold before-last roll-first-back commit-first",
		"save ann at-hold before-last roll-back confirm-ann",
		"ann at-hold ann-more cancel-ann ann-more restock confirm-ann",
		"ann at-hold bob commit-first", "ann at-hold bob confirm-ann", // where a script sold what was not left
		"save restock load before-last restock",
	}
	l.world = func(p *place) world {
		w := of(p).(*saleWorld)
		w.units = units
		return w
	}
	l.row = row{}
	return l
}

// timed is the life of a sale that opens and closes by the clock.
func (l life) timed() life {
	of := l.world
	l.name += "-timed"
	l.events = alphabet("ann ann-more bob confirm-ann cancel-ann open open-now sweep restock",
		"at-opening before-opening at-closing before-closing at-hold close discard hour flush save load")
	l.found = []string{"sweep hour close bob hour open",
		"open-now at-opening hour at-hold sweep at-hold restock"}
	l.world = func(p *place) world {
		w := of(p).(*saleWorld)
		w.opensIn, w.closesIn = 10*time.Minute, 20*time.Minute
		return w
	}
	l.row = row{}
	return l
}

func sameSale(a, b string) bool { return a == b && (a == "flush" || a == "close" || a == "save") }

var inOneBucket = saleOf("seckill", time.Hour/64, func(p *place, name string) onSale {
	return seckill.New(p.Engine(core.WithLogger(slog.New(slog.DiscardHandler))), name, seckill.Options{Keep: time.Hour})
})

var (
	_ = explore(inOneBucket.settled(1))
	_ = explore(inOneBucket.timed())
)

var _ = explore(inOneBucket.with(row{
	over:      "`Discard`; the end of `Keep`.",
	remembers: "Nothing. In a sale: whose an ID is; of a buyer the last 16 reservations that have ended.",
	forgets:   "Stock, reservations, what was bought, restocks, events.",
	back:      "A reservation of earlier is `gone`, in a later sale too; its ID is free.",
}))

var inTwoBuckets = saleOf("seckill-buckets", time.Hour/8, func(p *place, name string) onSale {
	return buckets.New(p.Engine(core.WithLogger(slog.New(slog.DiscardHandler))), name, buckets.Options{Options: seckill.Options{Keep: time.Hour}, Buckets: 2})
})

var (
	_ = explore(inTwoBuckets.settled(1))
	_ = explore(inTwoBuckets.settled(2))
	_ = explore(inTwoBuckets.timed())
)

var _ = explore(inTwoBuckets.with(row{
	over: "As `seckill`.", remembers: "As `seckill`.", forgets: "As `seckill`.", back: "As `seckill`.",
}))

func (l life) with(r row) life { l.row = r; return l }

// onSale is a sale of one bucket or several.
type onSale interface {
	core.Guard
	Open(ctx context.Context, item string, sale seckill.Sale) (bool, error)
	Confirm(ctx context.Context, a core.Attempt) (core.Decision, error)
	Cancel(ctx context.Context, a core.Attempt) (core.Decision, error)
	Restock(ctx context.Context, item, id string, units int64) (seckill.Status, error)
	Close(ctx context.Context, item string) error
	Discard(ctx context.Context, item string) error
	Sweep(ctx context.Context, item string) (int, error)
	Status(ctx context.Context, item string) (seckill.Status, error)
}

const holdsFor = 5 * time.Minute

type saleWorld struct {
	*place
	of    func(p *place, name string) onSale
	g     onSale
	units int // on sale, and for each buyer
	// So much longer than the sale its keys may last.
	longer time.Duration
	// After so long a sale opens and closes; 0: at once, and never.
	opensIn, closesIn time.Duration

	sold
	saved  *sold
	snap   snapshot
	calls  int      // that were sent before it was saved
	checks []toldOf // were told yes, in this life

	asked   bool // the event before was a check that has held a unit
	changes int  // so far
	// The last script calls of the events that have changed something; 0: it did not.
	last, beforeLast int
}

// toldOf is what a check was told.
type toldOf struct {
	core.Decision
	call int    // its number
	id   string // of the reservation
}

// sold is what was given to whom in one sale.
type sold struct {
	open, closed  bool
	opens, closes time.Time
	stock         int
	until         time.Time // it is kept
	reservations  map[string]reservation
	restocked     map[string]bool
}

func (s *sold) clone() *sold {
	c := *s
	c.reservations, c.restocked = maps.Clone(s.reservations), maps.Clone(s.restocked)
	return &c
}

// reservation is one ID of a buyer.
type reservation struct {
	state string // held, sold, cancelled
	ends  time.Time
	told  string // the calls of Check that were told of it and did not roll back, a letter each
}

// buyerOf has the buyers by the first letter of the IDs.
var buyerOf = map[byte]string{'a': "ann", 'b': "bob"}

func (w *saleWorld) begin(name string) {
	w.g, w.sold, w.saved, w.asked = w.of(w.place, "s"+name), sold{}, nil, false
	w.checks, w.last, w.beforeLast = nil, 0, 0
	if _, err := w.putOnSale(w.opensIn, w.closesIn); err != nil {
		w.t.Error(err)
	}
}

func (w *saleWorld) end() error { return nil }

// given returns what is sold or held, of all, and of one buyer.
func (w *saleWorld) given(buyer string) (all, own, held int) {
	for id, r := range w.reservations {
		live := r.state == "held" && w.Now().Before(r.ends)
		if live || r.state == "sold" {
			all++
			if buyerOf[id[0]] == buyer {
				own++
			}
		}
		if live {
			held++
		}
	}
	return all, own, held
}

func (w *saleWorld) changed() {
	w.until, w.changes = w.Now().Add(time.Hour), w.changes+1
	if kept := w.closes.Add(time.Hour); kept.After(w.until) {
		w.until = kept
	}
}

// putOnSale opens a sale that begins and ends after so long.
func (w *saleWorld) putOnSale(opensIn, closesIn time.Duration) (string, error) {
	sale := seckill.Sale{Stock: int64(w.units), PerBuyer: int64(w.units), Hold: holdsFor}
	if closesIn > 0 {
		sale.Opens, sale.Closes = w.Now().Add(opensIn), w.Now().Add(closesIn)
	}
	did, err := w.g.Open(context.Background(), "tv", sale)
	if err != nil || did == w.open {
		return "", broken("Open puts an item on sale if there is no sale of it", "%t, %v: there was one: %t", did,
			err, w.open)
	}
	if did {
		w.sold = sold{open: true, opens: sale.Opens, closes: sale.Closes, stock: w.units,
			reservations: map[string]reservation{}, restocked: map[string]bool{}}
		w.changed()
	}
	return fmt.Sprint(did), nil
}

func (w *saleWorld) do(event string) (seen string, err error) {
	asked := w.asked
	w.asked = false
	changes := w.changes
	if seen, err = w.event(event, asked); err != nil {
		return seen, err
	}
	w.age()
	w.beforeLast, w.last = w.last, 0
	if w.changes > changes {
		w.last = w.Sent()
	}
	return seen, w.look()
}

// age lets a sale end whose time is over.
func (w *saleWorld) age() {
	if !w.open || w.Now().Before(w.until) {
		return
	}
	if gone := w.until.Add(w.longer); w.Now().Before(gone) {
		w.PassUntil(gone)
	}
	w.sold = sold{}
}

func (w *saleWorld) event(event string, asked bool) (string, error) {
	ctx := context.Background()
	switch event {
	case "ann":
		return w.check("a1")
	case "ann-more":
		return w.check("a2")
	case "bob":
		return w.check("b1")
	case "bob-lapses":
		if _, err := w.check("b1"); err != nil {
			return "", err
		}
		if err := w.look(); err != nil { // so that what renews the TTLs in the background is done before
			return "", err
		}
		w.Pass(holdsFor)
		w.asked = false
	case "again": // the reply was lost: nobody has used the answer
		if !asked {
			return "", errImpossible
		}
		w.asked = true
		if err := w.Again(w.Sent() - 1); err != nil {
			return "", broken("A check may arrive twice", "%v", err)
		}
		return "", nil
	case "arrives-again":
		return "", w.again(w.last)
	case "before-last":
		return "", w.again(w.beforeLast)
	case "commit", "commit-first", "roll-back", "roll-first-back", "revoke", "revoke-first":
		return w.settle(event)
	case "confirm-ann":
		return w.confirm("a1")
	case "confirm-more":
		return w.confirm("a2")
	case "confirm-bob":
		return w.confirm("b1")
	case "cancel-ann":
		return w.cancel("a1")
	case "open":
		return w.putOnSale(w.opensIn, w.closesIn)
	case "open-now":
		return w.putOnSale(0, 0)
	case "sweep":
		return w.sweep()
	case "at-opening", "before-opening":
		return "", w.pass(w.opens, event == "before-opening")
	case "at-closing", "before-closing":
		return "", w.pass(w.closes, event == "before-closing")
	case "restock":
		return w.restock("more", 1)
	case "take":
		return w.restock("less", -1)
	case "at-hold":
		w.Pass(holdsFor)
	case "before-hold":
		w.Pass(holdsFor - time.Millisecond)
	case "hour":
		w.Pass(time.Hour)
	case "close":
		err := w.g.Close(ctx, "tv")
		if errors.Is(err, seckill.ErrNoSale) == w.open || err != nil && w.open {
			return "", broken("A sale can be closed", "%v", err)
		}
		if w.open && !w.over() {
			w.closed, w.closes = true, time.Time{}
			w.changed()
		}
	case "discard":
		err := w.g.Discard(ctx, "tv")
		if errors.Is(err, seckill.ErrNoSale) == w.open || err != nil && w.open {
			return "", broken("A sale can be discarded", "%v", err)
		}
		w.sold = sold{}
	case "flush":
		w.Flush()
		w.sold = sold{}
	case "save":
		w.saved, w.snap, w.calls = w.clone(), w.Save(), w.Sent()
	case "load":
		if w.saved == nil {
			return "", errImpossible
		}
		w.Load(w.snap)
		w.sold = *w.saved.clone()
		if w.last > w.calls {
			w.last = 0
		}
	}
	return "", nil
}

// over reports whether the sale is closed, by somebody or by the clock.
func (w *saleWorld) over() bool {
	return w.closed || !w.closes.IsZero() && !w.Now().Before(w.closes)
}

// pass lets the time pass until a moment that is to come, or until just before it.
func (w *saleWorld) pass(until time.Time, before bool) error {
	if before {
		until = until.Add(-time.Millisecond)
	}
	if !w.open || !until.After(w.Now()) {
		return errImpossible
	}
	w.PassUntil(until)
	return nil
}

func (w *saleWorld) sweep() (string, error) {
	n, err := w.g.Sweep(context.Background(), "tv")
	if err != nil || !w.open && n > 0 {
		return "", broken("A sale can be swept, and nothing is found where there is none", "%d, %v", n, err)
	}
	if !w.open {
		return "", nil
	}
	s, err := w.g.Status(context.Background(), "tv")
	if _, _, held := w.given(""); err != nil || s.Held != int64(held) {
		return "", broken("After Sweep, what is held is what has not ended", "%d were found, held are %d, %v, want %d", n,
			s.Held, err, held)
	}
	if n > 0 {
		w.changed()
	}
	return fmt.Sprint(n), nil
}

func (w *saleWorld) check(id string) (string, error) {
	buyer := buyerOf[id[0]]
	d, err := w.g.Check(context.Background(), core.Attempt{Actor: buyer, Resource: "tv", ID: id})
	if err != nil {
		return "", broken("A check is no error", "%v", err)
	}
	r := w.reservations[id]
	all, own, _ := w.given(buyer)
	want, fresh, wait := core.ReasonOK, false, time.Duration(0)
	switch {
	case !w.open:
		want = core.ReasonNotReady
	case r.state == "sold" || r.state == "held" && w.Now().Before(r.ends):
	case w.over():
		want = core.ReasonClosed
	case w.Now().Before(w.opens):
		want, wait = core.ReasonEarly, w.opens.Sub(w.Now())
	case own >= w.units:
		want = core.ReasonDuplicate
	case all >= w.stock:
		want = core.ReasonSoldOut
	default:
		fresh = true
	}
	if d.Reason != want || d.Allowed != (want == core.ReasonOK) || d.Allowed && d.Kept != (r.state == "sold") {
		return "", broken("A unit is held for who asks while one is left, and a buyer has one", "%s: %s, kept %t: want %s",
			id, d.Reason, d.Kept, want)
	}
	if wait > 0 && d.RetryAfter != wait {
		return "", broken("Who comes too early hears when the sale opens", "%s: %v, want %v", id, d.RetryAfter, wait)
	}
	if fresh {
		r = reservation{"held", w.Now().Add(holdsFor), ""}
		w.asked = true
	}
	if d.Allowed {
		call := len(w.checks)
		w.checks = append(w.checks, toldOf{d, call, id})
		r.told += string(rune('a' + call))
		w.reservations[id] = r
		w.changes++
		if fresh { // one more who is told is no change of the sale
			w.changed()
		}
	}
	return string(d.Reason), nil
}

func (w *saleWorld) confirm(id string) (string, error) {
	buyer := buyerOf[id[0]]
	d, err := w.g.Confirm(context.Background(), core.Attempt{Actor: buyer, Resource: "tv", ID: id})
	if err != nil {
		return "", broken("A confirmation is no error", "%v", err)
	}
	r := w.reservations[id]
	all, own, _ := w.given(buyer)
	want := core.ReasonGone
	switch {
	case !w.open:
		want = core.ReasonNotReady
	case r.state == "sold", r.state == "held" && (w.Now().Before(r.ends) || all < w.stock && own < w.units):
		want = core.ReasonOK
	}
	if d.Reason != want || d.Allowed && d.Replayed != (r.state == "sold") {
		return "", broken("A reservation is sold while it holds its unit, and afterwards while one is left",
			"%s: %s, replayed %t: want %s", id, d.Reason, d.Replayed, want)
	}
	if want == core.ReasonOK && r.state == "held" {
		w.reservations[id] = reservation{"sold", time.Time{}, r.told}
		w.changed()
	}
	return string(d.Reason), nil
}

func (w *saleWorld) cancel(id string) (string, error) {
	d, err := w.g.Cancel(context.Background(), core.Attempt{Actor: buyerOf[id[0]], Resource: "tv", ID: id})
	if err != nil {
		return "", broken("A cancellation is no error", "%v", err)
	}
	r := w.reservations[id]
	want := core.ReasonOK
	switch {
	case !w.open:
		want = core.ReasonNotReady
	case r.state == "sold":
		want = core.ReasonConflict
	}
	live := r.state == "held" && w.Now().Before(r.ends)
	if d.Reason != want || want == core.ReasonOK && live && d.Replayed {
		return "", broken("Cancel gives back what is held, and nothing that is sold", "%s: %s, replayed %t: want %s", id,
			d.Reason, d.Replayed, want)
	}
	if w.open && r.state == "held" {
		w.reservations[id] = reservation{state: "cancelled"}
		w.changed()
	}
	return string(d.Reason), nil
}

// settle settles the last check that was told yes, or the first of this life.
func (w *saleWorld) settle(event string) (string, error) {
	if len(w.checks) == 0 {
		return "", errImpossible
	}
	c := w.checks[len(w.checks)-1]
	if strings.Contains(event, "first") {
		c = w.checks[0]
	}
	end := core.Rollback
	switch {
	case strings.HasPrefix(event, "commit"):
		end = core.Commit
	case strings.HasPrefix(event, "revoke"):
		end = core.Revoke
	}
	r, known := w.reservations[c.id]
	all, own, _ := w.given(buyerOf[c.id[0]])
	live := r.state == "held" && w.Now().Before(r.ends)
	told := strings.ReplaceAll(r.told, string(rune('a'+c.call)), "")
	var want error
	switch {
	case seckill.StateOf(c.Decision) == seckill.StateSold: // it was another's sale
		known = false
	case end == core.Commit && (live || r.state == "held" && all < w.stock && own < w.units):
		r.state, r.ends = "sold", time.Time{}
	case end == core.Commit && r.state != "sold":
		want, known = core.ErrGone, false
	case end == core.Commit, end == core.Rollback && r.state == "sold":
		known = false
	case told != "" || r.told == "": // others were told of it, or this check has given it back before
		known = r.state == "held" && told != r.told
		if known {
			r.told = told
		}
	default:
		r = reservation{state: "cancelled"}
	}
	err := w.g.Settle(context.Background(), c.Decision, end)
	if !errors.Is(err, want) || want == nil && err != nil {
		return "", broken("A check is settled", "%s of %s: %v, want %v", event, c.id, err, want)
	}
	if known {
		w.reservations[c.id] = r
		w.changed()
	}
	return fmt.Sprint(want), nil
}

// again lets the script call before this number arrive once more.
func (w *saleWorld) again(call int) error {
	if call == 0 {
		return errImpossible
	}
	if err := w.Again(call - 1); err != nil {
		return broken("A call may arrive twice", "%v", err)
	}
	return nil
}

func (w *saleWorld) restock(id string, units int) (string, error) {
	_, err := w.g.Restock(context.Background(), "tv", id, int64(units))
	all, _, _ := w.given("")
	var want error
	switch {
	case !w.open:
		want = seckill.ErrNoSale
	case w.restocked[id]:
	case w.stock+units < all:
		want = seckill.ErrTooFewLeft
	default:
		w.stock += units
		w.restocked[id] = true
		w.changed()
	}
	if !errors.Is(err, want) {
		return "", broken("Restock changes the stock once per ID, and takes only what is left", "%s: %v, want %v", id, err, want)
	}
	return fmt.Sprint(err), nil
}

// look compares the state of the sale with what was given.
func (w *saleWorld) look() error {
	s, err := w.g.Status(context.Background(), "tv")
	if !w.open {
		if !errors.Is(err, seckill.ErrNoSale) {
			return broken("A sale that is over is unknown", "%+v, %v", s, err)
		}
		return nil
	}
	_, _, held := w.given("")
	sold := 0
	for _, r := range w.reservations {
		if r.state == "sold" {
			sold++
		}
	}
	if err != nil || s.Stock != int64(w.stock) || s.Sold != int64(sold) || s.Held < int64(held) ||
		s.Left+s.Held+s.Sold != s.Stock || s.Left < 0 {
		return broken("Left, held and sold are the stock", "%+v, %v: want a stock of %d, %d sold, %d held or more", s, err,
			w.stock, sold, held)
	}
	if differ, err := verified(w.g); err != nil || differ != "" {
		return broken("The parts of a sale agree", "%s, %v", differ, err)
	}
	return nil
}

// verified returns what differs between the parts of the sale.
func verified(g onSale) (string, error) {
	ctx := context.Background()
	if g, several := g.(*buckets.Guard); several {
		v, err := g.Verify(ctx, "tv")
		return strings.Join(v.Differences(), ", "), err
	}
	v, err := g.(*seckill.Guard).Verify(ctx, "tv")
	return strings.Join(v.Differences(), ", "), err
}
