package waitingroom

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	joinScript  = script.New("waitingroom_join", lua.Source("waitingroom/join"), script.AtMostOnce)
	enterScript = script.New("waitingroom_enter", lua.Source("waitingroom/enter"), script.Idempotent)
	tickScript  = script.New("waitingroom_tick", lua.Source("waitingroom/tick"), script.Idempotent)
	leaveScript = script.New("waitingroom_leave", lua.Source("waitingroom/leave"), script.Idempotent)
	setScript   = script.New("waitingroom_set", lua.Source("waitingroom/set"), script.Idempotent)
)

// The reasons for which a room refuses, besides core.ReasonClosed.
const (
	// ReasonWaiting: the visitor waits in line. RetryAfter says when to ask again.
	ReasonWaiting core.Reason = "waiting"
	// ReasonElsewhere: the same, with a new place, since the ticket that came belongs to another browser.
	ReasonElsewhere core.Reason = "elsewhere"
)

// Options configure a [Guard]. Capacity and Secrets are required. All processes of a room need the same ones.
type Options struct {
	// Capacity is how many visitors are inside at most, those included who are called and have not come yet: 1
	// to 1,000,000. [Guard.SetCapacity] changes it in all processes at once.
	Capacity int
	// Pass is how long a visitor may stay, 1 second to 24 hours. Default 10 minutes.
	Pass time.Duration
	// Idle is how long a visitor inside may be away: a visitor who sends no request for that long loses the
	// place. 10 seconds or more. Default: 2 minutes, or Pass if that is shorter.
	Idle time.Duration
	// Poll is how often a visitor who waits asks again at the latest, 1 second to 5 minutes. A visitor who has
	// not asked for two and a half times as long is passed over until they ask. Whole seconds. Default 20
	// seconds.
	Poll time.Duration
	// Grace is how long a place is kept for a visitor who was called: at least 1.25 Poll and a second, since
	// they hear of it when they ask next. Default 1.5 Poll and a second.
	Grace time.Duration
	// Away is how long a visitor who waits keeps their place without asking, 3 Poll to Keep. Afterwards they are
	// somebody who has just come. Default 10 Poll, or Keep if that is shorter.
	Away time.Duration
	// Opens is when the room opens. Before, all visitors wait in its lobby. The first of them enter 1.25 Poll
	// and a second after the opening, when all have had time to show that they are here. A room has one
	// opening. A later opening moves that of a room that has not opened yet, and begins a new room, with new
	// numbers, once the former has opened. If processes differ, the latest opening holds. Zero: it is open.
	Opens time.Time
	// Draw says that the order of all who came before the opening is drawn, however early they came.
	Draw bool
	// Secrets sign the visitors' tickets: each at least 16 bytes, the same in all processes. The first one
	// signs. Tickets signed by the others stay valid. To rotate, put a new secret first, and remove the last
	// one when the room has been emptied.
	Secrets [][]byte
	// Over returns a text for waiting visitors while there is nothing to wait for, such as "Sold out", and ""
	// while there is. The room is closed meanwhile, as by [Guard.Close]. Each process calls it once a second
	// while visitors ask, so that none of them costs a call. If it fails, its last text counts. Nil: never.
	Over func(context.Context) (text string, err error)
	// Keep is how long Redis keeps the room after the last request, 1 minute to 30 days. Default 24 hours.
	Keep time.Duration
	// Framed says that visitors see the site in a frame of another one, where browsers send the ticket only if
	// its cookie is SameSite=None and Partitioned. Default: SameSite=Lax.
	Framed bool
	// PageStatus is the HTTP status of the page that people who wait see: 200 to 599. Default 200.
	PageStatus int
	// ProgramStatus is that of the answer to all others who wait, 202 or 429. Default 429.
	ProgramStatus int
}

// Guard is a waiting room. Make one with [New]. It is safe for concurrent use.
//
// The Actor is the visitor, as keyfuncs.Visitor finds it for visitors without an account. A ticket belongs
// to its Actor. Other fields of the attempt are ignored.
//
// A visitor whose decision is not allowed waits: [PlaceOf] says where. An attempt is allowed while its Token
// is a pass. Nothing is settled: a pass ends by itself, or by [Guard.Leave].
//
// # Calls
//
// A process sends the news of its visitors once a second, and gets one picture of the room, from which it
// answers. Besides that, a visitor costs a call on arrival, which concurrent arrivals share, a call on
// entering, and a call on each return after being out of sight.
//
// # Outages
//
// While Redis does not answer, nobody enters. Waiting visitors keep their place, and passes stay valid
// until they end. The rule's outage policy decides about visitors without a ticket.
type Guard struct {
	kit.Base
	options Options
	keys    []string
	fixed   []any
	tickets signer

	picture atomic.Pointer[picture]
	asking  sync.Mutex // of the first picture
	due     atomic.Bool
	over    atomic.Pointer[string] // the last text of Options.Over, encoded; nil: none
	failed  warn.Sample[string]
	highest atomic.Int64 // the last place that this process has seen called since the room was made

	mu    sync.Mutex
	seed  string         // for the next room that this process makes; secret
	calls map[int64]call // to ask Redis about: called places, until when, and some that were used
	heard int64          // the last end of a call

	showing showing
	seen    map[int64]struct{} // places of visitors who are here and wait, since the last picture
	used    map[string]pass    // passes that were used since
	told    map[int64]struct{} // places of those whom Redis has told since to wait

	renewed *kit.Recall[string, int64] // until when passes were renewed
}

const (
	// most is how many places and passes a process sends in one call.
	most = 500
	// held is how many a process keeps between two calls: more would be a flood of forgeries, were they not
	// signed.
	held = 1 << 17
	// beat is how often a process asks for a picture.
	beat = time.Second
	// stale is the age of a picture that says little.
	stale = 3 * beat
	// firstPlace is the place of the first visitor. Lower ones are for those whose number was given twice.
	firstPlace = 1 << 16
)

// New makes a waiting room with the given name. It panics when the name is taken or malformed, when the
// options are invalid, or when the engine has no Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	kit.NeedRedis(e, "waitingroom", name)
	options.complete()
	if err := options.check(); err != nil {
		panic(fmt.Sprintf("%v (guard %q)", err, name))
	}
	g := &Guard{
		Base: kit.Register(e, "waitingroom", name, joinScript, enterScript, tickScript, leaveScript,
			setScript),
		options: options,
		fixed:   options.fixed(),
		tickets: newSigner(name, options.Secrets),
		seed:    newSeed(),
		calls:   map[int64]call{},
		seen:    map[int64]struct{}{},
		used:    map[string]pass{},
		told:    map[int64]struct{}{},
		renewed: kit.NewRecall[string, int64](1<<16, options.Pass),
	}
	for _, field := range []string{"room", "here", "seen", "taken", "inside", "passes", "called", "left"} {
		g.keys = append(g.keys, g.Key("room", field))
	}
	return g
}

func (o *Options) complete() {
	if o.Pass == 0 {
		o.Pass = 10 * time.Minute
	}
	if o.Idle == 0 {
		o.Idle = min(2*time.Minute, o.Pass)
	}
	if o.Poll == 0 {
		o.Poll = 20 * time.Second
	}
	if o.Grace == 0 {
		o.Grace = o.Poll*3/2 + beat
	}
	if o.Keep == 0 {
		o.Keep = 24 * time.Hour
	}
	if o.Away == 0 {
		o.Away = min(10*o.Poll, o.Keep)
	}
	o.PageStatus = cmp.Or(o.PageStatus, 200)
	o.ProgramStatus = cmp.Or(o.ProgramStatus, 429)
}

func (o *Options) check() error {
	for _, span := range []struct {
		name            string
		is, least, most time.Duration
	}{
		{"Pass", o.Pass, time.Second, 24 * time.Hour},
		{"Idle", o.Idle, min(10*time.Second, o.Pass), o.Pass},
		{"Poll", o.Poll, time.Second, 5 * time.Minute},
		{"Grace", o.Grace, o.interval(), time.Hour}, // 1.25 Poll and a second at least
		{"Keep", o.Keep, time.Minute, 30 * 24 * time.Hour},
		{"Away", o.Away, min(3*o.Poll, o.Keep), o.Keep},
	} {
		if span.is < span.least || span.is > span.most {
			return fmt.Errorf("waitingroom: %s is %v: set %v to %v", span.name, span.is, span.least, span.most)
		}
	}
	switch {
	case o.Capacity < 1 || o.Capacity > 1e6:
		return fmt.Errorf("waitingroom: Capacity is %d: set 1 to 1,000,000", o.Capacity)
	case o.Poll%time.Second != 0:
		return fmt.Errorf("waitingroom: Poll is %v: set whole seconds, as Retry-After has them", o.Poll)
	case o.PageStatus < 200 || o.PageStatus > 599:
		return fmt.Errorf("waitingroom: PageStatus is %d: set 200 to 599", o.PageStatus)
	case o.ProgramStatus != 202 && o.ProgramStatus != 429:
		return fmt.Errorf("waitingroom: ProgramStatus is %d: set 202 or 429", o.ProgramStatus)
	case len(o.Secrets) == 0:
		return errors.New("waitingroom: Secrets are missing: set one of 32 random bytes, the same in all processes")
	}
	for i, secret := range o.Secrets {
		if len(secret) < 16 {
			return fmt.Errorf("waitingroom: secret %d has %d bytes: give it 16 or more, random ones", i+1, len(secret))
		}
	}
	return nil
}

// interval is how long those are here who were seen in it, and how long after it: nobody who asks every Poll,
// and a tenth later, is missed, though their process tells Redis a beat later.
func (o *Options) interval() time.Duration { return o.Poll*5/4 + beat }

// Traits implements [core.Guard].
func (g *Guard) Traits() core.Traits {
	return core.Traits{KeepsOnFailure: true, KeepsToken: true, TokenInFrames: g.options.Framed,
		Outage: core.FailClosed}
}

// Settle implements [core.Guard]. It does nothing: see [Guard.Leave].
func (g *Guard) Settle(context.Context, core.Decision, core.Ending) error { return nil }

// fixed returns the arguments that are the same for all calls: those between now and the opening.
func (o *Options) fixed() []any {
	return []any{o.Capacity, o.Pass.Milliseconds(), o.Idle.Milliseconds(), o.Grace.Milliseconds(),
		o.interval().Milliseconds(), o.Keep.Milliseconds()}
}

// opens is the opening of the room in Unix milliseconds, or 0 if it is open.
func (o *Options) opens() int64 {
	if o.Opens.IsZero() {
		return 0
	}
	return max(o.Opens.UnixMilli(), 0)
}

func newSeed() string {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // cannot fail
	return hex.EncodeToString(seed[:])
}

// args returns the arguments that all scripts have, and more. The opening is that of the room, unless the
// options have a later one. A room of another opening, or a room that Redis has let go, does not count as
// lost. known is the known data of the room. "": the data of the process.
func (g *Guard) args(known string, more ...any) []any {
	opens, draws := g.options.opens(), g.options.Draw
	p := g.picture.Load()
	if p != nil && p.opens > opens {
		opens, draws = p.opens, p.draws
	}
	switch {
	case known != "":
	case p == nil || p.opens < opens || g.Engine().Now().Sub(p.sent) >= g.options.Keep:
		known = unknown
	default:
		known = p.known
	}
	g.mu.Lock()
	known += " " + g.seed
	g.mu.Unlock()
	args := append(make([]any, 0, 4+len(g.fixed)+len(more)), g.Engine().ScriptNow(time.Millisecond))
	return append(append(append(args, g.fixed...), opens, kit.FlagOf(draws), known), more...)
}

// run runs a script within the deadline.
func (g *Guard) run(ctx context.Context, s *script.Script, more ...any) (any, error) {
	return g.runAs(ctx, "", s, more...)
}

// runAs does so with what is known of the room: see args.
func (g *Guard) runAs(ctx context.Context, known string, s *script.Script, more ...any) (any, error) {
	return g.Engine().RunWithin(ctx, g.Engine().Deadline(), s, g.keys, g.args(known, more...)...)
}
