package bans

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	// Looks are idempotent, and so are manual bans, because they replace each other.
	banScript = script.New("ban", lua.Source("bans/ban"), script.Idempotent)
	// A strike whose reply was lost may have been counted. If it counted twice, it could ban an actor who was
	// not refused often enough. If it is lost, an actor who is refused often is spared one strike of many.
	banStrikeScript = script.New("ban", lua.Source("bans/ban"), script.AtMostOnce)
)

// Options say which actors are banned, and for how long. All durations are whole milliseconds, from 1 ms to
// 366 days. The zero value is valid: every field has a default.
type Options struct {
	// Refusals is how many refusals (strikes) in any Period are allowed, 1 to 1000: the next one bans. It is not
	// the number of the refusal that bans. Zero means 10.
	Refusals int64
	// Period is the window in which strikes are counted. Zero means one minute.
	Period time.Duration
	// First is the length of an actor's first ban. Each further ban is twice as long as the one before. Zero
	// means one minute.
	First time.Duration
	// Longest is the maximum length of a ban that strikes lead to. Zero means 24 hours, or First if that is
	// longer.
	Longest time.Duration
	// Decay is how long an actor has to stay without another ban, from the end of their last one, until one
	// doubling is forgotten. Each further doubling takes as long again. Zero means the value of Longest.
	//
	// Take a First of 1 minute, a Decay of 1 hour, and an actor who had bans of 1, 2 and 4 minutes. Their next
	// ban is 8 minutes long in the first hour after the end of the last one, 4 minutes in the second hour, 2
	// minutes in the third, and 1 minute after that. Bans of length Longest add no doubling, so an actor never
	// has more doublings than lead from First to Longest.
	Decay time.Duration
}

// Guard bans actors that are refused too often, for a time that grows with each ban. It looks at the Actor
// alone, whatever the Resource: an actor who floods one route is banned from all routes that use the same
// Guard.
//
// [Guard.Strike] reports a refusal. Strikes are counted one by one. More than [Options].Refusals strikes in
// any Period ban the actor; as many or fewer never do. Strikes during a ban do not lengthen it, and after a
// ban the count starts at zero.
//
// Most applications set the Guard as the Bans option of a rule (pipeline.Rule.Bans), and the rule calls
// Strike. As the guard of a rule, it refuses a banned actor with [core.ReasonBanned] and RetryAfter, and
// takes nothing.
//
// The process remembers the state of the 65,536 actors seen last. It trusts a state for one second
// at most, and a ban no longer than it lasts. A flood therefore costs one call per second, actor and process.
// A Ban or Unban takes effect in this process at once, and in other processes within one second.
//
// When the server's clock is set back, nobody is released too early. A ban whose begin is then in the future
// begins anew, because nobody knows how much of it is over. So it lasts at most twice as long, and a ban that
// was over returns once.
//
// It is safe for concurrent use.
type Guard struct {
	kit.Base
	options Options
	known   *kit.Recall[string, time.Time] // the end of the actor's ban; zero: not banned
}

const (
	// banMemory is how long the process trusts what Redis has said about an actor.
	banMemory = time.Second
	// banActors is the number of actors whose state the process remembers.
	banActors = 1 << 16
)

// Status is the state of an actor.
type Status struct {
	// Left is the remaining time of the ban; zero if the actor is not banned.
	Left time.Duration
	// Level is how many times the length of the next ban is doubled.
	Level int64
	// Strikes is the number of strikes since the last ban in the Period that ends now.
	Strikes int64
}

// New returns a [Guard] that is named name on e. It panics when the name is invalid or already in use, when
// the options are invalid, or when e has no Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	kit.NeedRedis(e, "bans", name)
	options = options.withDefaults()
	if err := options.check(); err != nil {
		panic(fmt.Sprintf("bans: %v (guard %q)", err, name))
	}
	return &Guard{
		Base:    kit.Register(e, "bans", name, banScript),
		options: options,
		known:   kit.NewRecall[string, time.Time](banActors, banMemory),
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

// check returns an error for options that are out of range.
func (o Options) check() error {
	if o.Refusals < 1 || o.Refusals > 1000 {
		return fmt.Errorf("a ban after %d refusals: give 1 to 1000", o.Refusals)
	}
	for _, field := range []struct {
		name  string
		value time.Duration
	}{{"Period", o.Period}, {"First", o.First}, {"Longest", o.Longest}, {"Decay", o.Decay}} {
		if d := field.value; d < time.Millisecond || d > kit.MaxTTL || d%time.Millisecond != 0 {
			return fmt.Errorf("a ban with a %s of %v: use whole milliseconds, 1 ms to %v",
				field.name, d, kit.MaxTTL)
		}
	}
	if o.First > o.Longest {
		return fmt.Errorf("a First of %v is longer than the Longest of %v: make First shorter", o.First, o.Longest)
	}
	return nil
}

// Traits implements [core.Guard]. There is nothing to settle. The outage policy is [core.FailOpen] unless a
// rule sets another: a ban is the second line behind a limit, which still refuses, and FailClosed would lock
// out everybody instead of a few.
func (g *Guard) Traits() core.Traits { return core.Traits{KeepsOnFailure: true, Outage: core.FailOpen} }

// Check implements [core.Guard]. It refuses a banned actor and admits any other. It takes nothing, and it
// does not count as a strike. An invalid attempt is a [core.ErrInvalid].
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

// Settle implements [core.Guard]. It does nothing, because a check takes nothing.
func (g *Guard) Settle(context.Context, core.Decision, core.Ending) error { return nil }

// Strike counts one more refusal of the attempt's actor, and reports whether this strike has banned them. A
// strike during a ban does not count. A strike is sent to Redis at most once. If the reply is lost, Strike
// returns an error, and the strike may have been counted.
func (g *Guard) Strike(ctx context.Context, a core.Attempt) (banned bool, err error) {
	begun := time.Now()
	a, err = a.Prepare()
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err == nil {
		var said banReply
		said, err = g.call(ctx, a, banCall{op: "strike", script: banStrikeScript, timeout: g.Engine().Deadline()})
		fillBan(&d, said.Left, core.SourceRedis, err)
		banned = said.banned
	}
	return banned, g.Observe(ctx, "strike", begun, d, err)
}

// Ban bans the attempt's actor from now on for the given length, 1 ms to 366 days. It replaces a current ban,
// and so it can also shorten one. It leaves the level unchanged and forgets the strikes. A length out of
// range is a [core.ErrInvalid]. To ban an actor forever, use keyfuncs.List.
func (g *Guard) Ban(ctx context.Context, a core.Attempt, length time.Duration) error {
	return g.ban(ctx, a, "ban", length)
}

// BanAtLeast is Ban, but leaves a current ban as it is that lasts as long. It is for callers of whom the last
// to arrive need not know best.
func (g *Guard) BanAtLeast(ctx context.Context, a core.Attempt, length time.Duration) error {
	return g.ban(ctx, a, "lengthen", length)
}

func (g *Guard) ban(ctx context.Context, a core.Attempt, op string, length time.Duration) error {
	begun := time.Now()
	a, err := a.Prepare()
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err == nil && (length < time.Millisecond || length > kit.MaxTTL) {
		err = fmt.Errorf("%w: a ban of %v: use 1 ms to %v", core.ErrInvalid, length, kit.MaxTTL)
	}
	if err == nil {
		var said banReply
		said, err = g.call(ctx, a, banCall{
			op: op, length: length, script: banScript, timeout: g.Engine().SettleTimeout(),
		})
		fillBan(&d, said.Left, core.SourceRedis, err)
	}
	return g.Observe(ctx, "ban", begun, d, err)
}

// Unban ends the ban of the attempt's actor and forgets their level and strikes. Other processes see it
// within one second.
func (g *Guard) Unban(ctx context.Context, a core.Attempt) error {
	begun := time.Now()
	a, err := a.Prepare()
	if err == nil {
		asked := g.ask(a)
		if err = g.Delete(ctx, g.banKeys(a)...); err == nil {
			g.remember(asked, 0, true)
		} else {
			g.known.Drop(asked.Key) // the server may have done it
		}
	}
	return g.Observe(ctx, "unban", begun, core.Decision{Guard: g.Name(), Attempt: a}, err)
}

// Status asks Redis for the state of the attempt's actor, and counts nothing.
func (g *Guard) Status(ctx context.Context, a core.Attempt) (Status, error) {
	begun := time.Now()
	a, err := a.Prepare()
	var said banReply
	if err == nil {
		said, err = g.call(ctx, a, banCall{op: "look", script: banScript, timeout: g.Engine().SettleTimeout()})
	}
	return said.Status, g.Observe(ctx, "status", begun, core.Decision{Guard: g.Name(), Attempt: a}, err)
}

// fillBan writes the decision of a ban with the remaining time left into d, unless there was an error.
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

// left returns the remaining time of the actor's ban, and whether it is from memory or from Redis.
func (g *Guard) left(ctx context.Context, a core.Attempt) (time.Duration, core.Source, error) {
	if left, known := g.recall(a); known {
		return left, core.SourceRemembered, nil
	}
	said, err := g.call(ctx, a, banCall{
		op: "look", noStrikes: true, script: banScript, timeout: g.Engine().Deadline(),
	})
	return said.Left, core.SourceRedis, err
}

// banCall is one call of lua/bans/ban.lua.
type banCall struct {
	op        string        // "look", "strike", "ban" or "lengthen"
	length    time.Duration // of a manual ban
	noStrikes bool          // whether a look leaves out the number of strikes
	script    *script.Script
	timeout   time.Duration
}

// banReply is the reply of lua/bans/ban.lua.
type banReply struct {
	Status
	banned bool // whether this call has banned the actor
}

// call runs lua/bans/ban.lua and remembers the state of the actor that it returns.
func (g *Guard) call(ctx context.Context, a core.Attempt, c banCall) (banReply, error) {
	keys := g.banKeys(a)
	if c.noStrikes {
		keys = keys[:1]
	}
	o, asked := g.options, g.ask(a)
	value, err := g.Engine().RunWithin(ctx, c.timeout, c.script, keys, c.op,
		o.Decay.Milliseconds(), o.Refusals, o.Period.Milliseconds(),
		o.First.Milliseconds(), o.Longest.Milliseconds(), c.length.Milliseconds(),
		g.Engine().ScriptNow(time.Microsecond))
	if err != nil {
		if c.length > 0 {
			g.known.Drop(asked.Key) // the server may have done it
		}
		return banReply{}, err
	}
	r := script.ReadReply(value, 4, 4)
	said := banReply{banned: r.Flag()}
	said.Left, said.Level, said.Strikes = r.Duration(time.Microsecond), r.Number(), r.Number()
	if r.Err != nil {
		return banReply{}, r.Err
	}
	g.remember(asked, said.Left, said.banned)
	return said, nil
}

// recall returns the remaining time of the actor's ban, if it is remembered and fresh. When a ban is over, it
// is not, so that Redis is asked again.
func (g *Guard) recall(a core.Attempt) (left time.Duration, known bool) {
	now := g.Engine().Now()
	ends, known := g.known.Find(script.Encode(a.Actor), now)
	if !known || ends.IsZero() {
		return 0, known
	}
	return ends.Sub(now), true
}

// ask notes that Redis is about to be asked about the actor.
func (g *Guard) ask(a core.Attempt) kit.Asked[string] {
	return g.known.Ask(script.Encode(a.Actor), g.Engine().Now())
}

// remember keeps what Redis has said: the remaining time of the actor's ban, counted from when Redis was
// asked. A call that has changed the state voids the replies that are on their way, because they may be about
// the state before.
func (g *Guard) remember(asked kit.Asked[string], left time.Duration, changed bool) {
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

// banKeys returns the keys of the actor's last ban and of their strikes.
func (g *Guard) banKeys(a core.Attempt) []string {
	actor := script.Encode(a.Actor)
	return []string{g.Key(actor), g.Key(actor, "strikes")}
}
