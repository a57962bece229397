package bans

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	banScript = core.NewScript("ban", lua.Ban, core.Idempotent) // for looks, and for bans by hand, which replace each other
	// A strike whose reply was lost may have been counted. Counted again it could shut out who was not refused often enough;
	// lost, it spares who is refused often one refusal of many.
	banStrikeScript = core.NewScript("ban", lua.Ban, core.AtMostOnce)
)

// BanOptions say who is banned, and for how long. All lengths of time are whole milliseconds, 366 days at most.
type Options struct {
	// Refusals is how many strikes in any Period do not bring on a ban, 1 to 1000: one more does. Zero means 10.
	Refusals int64
	// Period is the time in which strikes count together. Zero means a minute.
	Period time.Duration
	// First is the length of a first ban. Zero means a minute. Each further one is twice as long as the one before.
	First time.Duration
	// Longest is the length that bans do not go beyond. Zero means 24 hours, or First where that is longer.
	Longest time.Duration
	// Decay is how long after the end of his last ban an actor has to stay without another one to have one doubling forgotten, and
	// as long again for the next. Zero means as long as Longest.
	//
	// With First 1 minute and Decay 1 hour, who has had bans of 1, 2 and 4 minutes has the next one of 8 in the hour after the
	// last has ended, of 4 in the second hour, of 2 in the third, and of 1 minute after that. Bans that are as long as Longest
	// add no doubling, so there are never more to be forgotten than lead from First to Longest.
	Decay time.Duration
}

// Bans shuts out, for a time that grows, whoever is refused too often. What counts is the Actor alone, whatever the Resource:
// who hammers one route is shut out of all that ask the same Bans.
//
// A refusal is reported by Strike. Strikes are counted one by one: more than BanOptions.Refusals of them in any Period ban the
// actor, so many or fewer never do. While a ban lasts further strikes do not lengthen it, and after it they are counted from nothing.
//
// As a Guard of its own it refuses the banned as ReasonBanned, with RetryAfter, and takes nothing. It is mostly used as an option
// of a rule (nethttpmw.Rule.Bans), which strikes by itself.
//
// What Redis says of an actor is remembered for at most a second, of the 65,536 actors that were seen last, so a flood costs
// a call a second for each actor and process. A ban or an Unban in this process counts at once, in another one within a
// second.
//
// A server's clock that is set back lets nobody out too early. A ban that it puts into the future begins anew, since nobody knows
// how much of it is over: so it lasts twice as long at most, and one that was over comes back once.
type Guard struct {
	core.Base
	options Options
	known   *core.Recall[string, time.Time] // when the actor's ban ends; zero: not banned
}

const (
	// banMemory is how long the process goes on by what Redis has said of an actor.
	banMemory = time.Second
	// banActors is how many actors it knows.
	banActors = 1 << 16
)

// BanStatus is how an actor stands.
type Status struct {
	// Left is how long the ban lasts on; zero: not banned.
	Left time.Duration
	// Level is how often the length of the next ban is doubled.
	Level int64
	// Strikes is how many strikes there were in the Period that ends now, since the last ban.
	Strikes int64
}

// Bans makes a guard that shuts out who is refused too often. It panics when the name is taken or not a name, or the
// options make no sense.
func New(e *core.Engine, name string, options Options) *Guard {
	e.NeedRedis("Bans", name)
	options = options.withDefaults()
	if err := options.check(); err != nil {
		panic(fmt.Sprintf("core: %v (guard %q)", err, name))
	}
	return &Guard{
		Base:    e.Register("bans", name, banScript),
		options: options,
		known:   core.NewRecall[string, time.Time](banActors, banMemory),
	}
}

func (o Options) withDefaults() Options {
	fill := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	if o.Refusals == 0 {
		o.Refusals = 10
	}
	fill(&o.Period, time.Minute)
	fill(&o.First, time.Minute)
	fill(&o.Longest, max(24*time.Hour, o.First))
	fill(&o.Decay, o.Longest)
	return o
}

// check finds options that make no sense.
func (o Options) check() error {
	if o.Refusals < 1 || o.Refusals > 1000 {
		return fmt.Errorf("a ban after %d refusals: give 1 to 1000", o.Refusals)
	}
	for _, field := range []struct {
		name  string
		value time.Duration
	}{{"Period", o.Period}, {"First", o.First}, {"Longest", o.Longest}, {"Decay", o.Decay}} {
		if d := field.value; d < time.Millisecond || d > core.MaxTTL || d%time.Millisecond != 0 {
			return fmt.Errorf("a ban with a %s of %v: give whole milliseconds, 1 ms to %v", field.name, d, core.MaxTTL)
		}
	}
	if o.First > o.Longest {
		return fmt.Errorf("a first ban of %v is longer than the Longest, %v: make First shorter", o.First, o.Longest)
	}
	return nil
}

// Traits implements Guard: there is nothing to give back. Without Redis a rule of bans lets pass: a ban is the second line, behind a
// limit that goes on refusing, and to close would shut out everybody in place of the few.
func (g *Guard) Traits() core.Traits { return core.Traits{KeepsOnFailure: true, Outage: core.FailOpen} }

// Check implements Guard: it refuses the banned and takes nothing. It is no strike.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := time.Now()
	a, err := a.Prepare()
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err == nil {
		var left time.Duration
		var source core.Source
		left, source, err = g.left(ctx, a)
		fillBan(&d, left, source, err)
	}
	return d, g.Observe(ctx, "check", begun, d, err)
}

// Settle implements Guard. A ban takes nothing, so there is nothing to do.
func (g *Guard) Settle(context.Context, core.Decision, core.Ending) error { return nil }

// Strike counts one more refusal of the attempt's actor, and reports whether it has brought on a ban. A strike while the actor is
// banned does not count. It is sent to Redis at most once: where the reply is lost it returns an error, and may have been
// counted.
func (g *Guard) Strike(ctx context.Context, a core.Attempt) (banned bool, err error) {
	begun := time.Now()
	a, err = a.Prepare()
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err == nil {
		var said banReply
		said, err = g.call(ctx, a, banCall{word: "strike", script: banStrikeScript, limit: g.Engine().Deadline()})
		fillBan(&d, said.Left, core.SourceRedis, err)
		banned = said.banned
	}
	return banned, g.Observe(ctx, "strike", begun, d, err)
}

// Ban shuts the attempt's actor out by hand, from now on for so long, 1 ms to 366 days, whether he is banned already or
// not: it can shorten a ban, too. It leaves the level as it is, and the strikes are forgotten. A length that makes no sense is an
// ErrInvalidAttempt. To shut somebody out for good, use keyfuncs.List.
func (g *Guard) Ban(ctx context.Context, a core.Attempt, length time.Duration) error {
	begun := time.Now()
	a, err := a.Prepare()
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err == nil && (length < time.Millisecond || length > core.MaxTTL) {
		err = fmt.Errorf("%w: a ban of %v: give 1 ms to %v", core.ErrInvalid, length, core.MaxTTL)
	}
	if err == nil {
		var said banReply
		said, err = g.call(ctx, a, banCall{word: "ban", length: length, script: banScript, limit: g.Engine().SettleTimeout()})
		fillBan(&d, said.Left, core.SourceRedis, err)
	}
	return g.Observe(ctx, "ban", begun, d, err)
}

// Unban lets the attempt's actor in again and forgets all that there was against him, the level and the strikes too. Other
// processes see it within a second.
func (g *Guard) Unban(ctx context.Context, a core.Attempt) error {
	begun := time.Now()
	a, err := a.Prepare()
	if err == nil {
		asked := g.ask(a)
		if err = g.Delete(ctx, g.banKeys(a)...); err == nil {
			g.remember(asked, 0, true)
		} else {
			g.known.Drop(asked.Key) // it may have been done
		}
	}
	return g.Observe(ctx, "unban", begun, core.Decision{Guard: g.Name(), Attempt: a}, err)
}

// Status asks Redis how the attempt's actor stands, and changes nothing.
func (g *Guard) Status(ctx context.Context, a core.Attempt) (Status, error) {
	begun := time.Now()
	a, err := a.Prepare()
	var said banReply
	if err == nil {
		said, err = g.call(ctx, a, banCall{word: "look", script: banScript, limit: g.Engine().SettleTimeout()})
	}
	return said.Status, g.Observe(ctx, "status", begun, core.Decision{Guard: g.Name(), Attempt: a}, err)
}

// fillBan fills in what a ban that lasts so long decides, unless nobody knows.
func fillBan(d *core.Decision, left time.Duration, source core.Source, err error) {
	if err != nil {
		return
	}
	d.Source = source
	if left > 0 {
		d.Reason, d.RetryAfter = core.ReasonBanned, left
	} else {
		d.Allowed, d.Reason = true, core.ReasonOK
	}
}

// left returns how long the actor's ban lasts on, and whether that is from memory or from Redis.
func (g *Guard) left(ctx context.Context, a core.Attempt) (time.Duration, core.Source, error) {
	if left, known := g.recall(a); known {
		return left, core.SourceRemembered, nil
	}
	said, err := g.call(ctx, a, banCall{word: "look", noStrikes: true, script: banScript, limit: g.Engine().Deadline()})
	return said.Left, core.SourceRedis, err
}

// banCall is one call of the script of bans.
type banCall struct {
	word      string        // what it does
	length    time.Duration // of a ban by hand
	noStrikes bool          // spares a look the counting of strikes
	script    *core.Script
	limit     time.Duration // for the call
}

// banReply is what the script says.
type banReply struct {
	Status
	banned bool // by this call
}

// call runs the script of bans and remembers what it says of the actor.
func (g *Guard) call(ctx context.Context, a core.Attempt, c banCall) (banReply, error) {
	keys := g.banKeys(a)
	if c.noStrikes {
		keys = keys[:1]
	}
	o, asked := g.options, g.ask(a)
	value, err := g.Engine().RunWithin(ctx, c.limit, c.script, keys, c.word, o.Decay.Milliseconds(), o.Refusals, o.Period.Milliseconds(),
		o.First.Milliseconds(), o.Longest.Milliseconds(), c.length.Milliseconds(), g.Engine().ScriptNow(time.Microsecond))
	if err != nil {
		if c.word == "ban" {
			g.known.Drop(asked.Key) // it may have been done
		}
		return banReply{}, err
	}
	r := core.ReadReply(value, 4, 4)
	said := banReply{banned: r.Flag()}
	said.Left, said.Level, said.Strikes = r.Duration(time.Microsecond), r.Number(), r.Number()
	if r.Err != nil {
		return banReply{}, r.Err
	}
	g.remember(asked, said.Left, said.banned || c.word == "ban")
	return said, nil
}

// recall returns how long the actor's ban lasts on, where what Redis has said is fresh. When a ban is over, Redis is
// asked again.
func (g *Guard) recall(a core.Attempt) (left time.Duration, known bool) {
	now := g.Engine().Now()
	ends, known := g.known.Find(core.Encode(a.Actor), now)
	if !known || ends.IsZero() {
		return 0, known
	}
	return ends.Sub(now), true
}

// ask notes that Redis is asked about the actor, before it is.
func (g *Guard) ask(a core.Attempt) core.Asked[string] {
	return g.known.Ask(core.Encode(a.Actor), g.Engine().Now())
}

// remember keeps what Redis has said: how long the actor's ban lasts on from when that was asked. A call that has
// banned the actor or let them in again voids the answers that are under way: they may say how the actor stood before.
func (g *Guard) remember(asked core.Asked[string], left time.Duration, changed bool) {
	ends, lasts := time.Time{}, banMemory
	if left > 0 {
		ends, lasts = asked.At.Add(left), left
	}
	if changed {
		g.known.Set(asked, ends, lasts)
	} else {
		g.known.Hear(asked, ends, lasts)
	}
}

func (g *Guard) banKeys(a core.Attempt) []string {
	actor := core.Encode(a.Actor)
	return []string{g.Key(actor), g.Key(actor, "strikes")}
}
