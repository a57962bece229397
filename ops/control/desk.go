package control

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	setScript     = script.New("control_set", lua.Source("control/set"), script.AtMostOnce)
	readScript    = script.New("control_read", lua.Source("control/read"), script.Idempotent)
	restoreScript = script.New("control_restore", lua.Source("control/restore"), script.Idempotent)
)

// Desk is where operators decide about limits, lists and roll-outs: see [New]. It is safe for concurrent use.
type Desk struct {
	kit.Base
	root, audit, channel string
	kick                 chan struct{} // something has changed

	// mu is held while Redis is read, so that no reply overtakes a newer one. No request waits for it.
	mu      sync.Mutex
	bound   map[thing]*binding
	records map[string]record // by field
	lost    bool              // Redis has lost some of them, which is logged and not mended yet
	decided []Decision        // not withdrawn
	latest  int64             // the greatest ID that was heard of
	known   string            // the version of the root that was read last
	next    int64             // the end of the next decision by the server's clock; 0: none ends
	server  int64             // its clock when last read, Unix milliseconds; 0: never
	at      time.Time         // the process's clock then
	logged  map[Decision]bool
}

// thing is what a decision is about.
type thing struct{ kind, name string }

// New returns a desk of that name, which no guard of the engine has. It reads the decisions, and follows
// them until ctx ends. With a ctx that has ended it does neither: a program that only decides need not
// obey.
//
// Where Redis does not answer within a second, New logs it and goes on: limits work without Redis too. The
// values of the code are in force until Redis answers. From then on the last known decisions stay in force
// while Redis is away, and end when they have to.
//
// New panics when the name is invalid or taken, and on an engine without Redis.
func New(ctx context.Context, gate *core.Engine, name string) *Desk {
	return newDesk(ctx, gate, name, time.Second)
}

func newDesk(ctx context.Context, gate *core.Engine, name string, looks time.Duration) *Desk {
	kit.NeedRedis(gate, "control", name)
	d := &Desk{Base: kit.Register(gate, "control", name, setScript, readScript, restoreScript),
		kick: make(chan struct{}, 1), bound: map[thing]*binding{}, logged: map[Decision]bool{},
		records: map[string]record{}}
	d.root, d.audit, d.channel = d.Key(name, "root"), d.Key(name, "audit"), d.Key(name, "changed")
	if ctx.Err() == nil {
		err := d.read(ctx, true)
		go d.follow(ctx, looks, err)
	}
	return d
}

// The kinds of things.
const (
	Limits  = "limits"
	List    = "list"
	Rollout = "rollout"
)

// Decision is what an operator has decided about a thing.
type Decision struct {
	// Kind is [Limits], [List] or [Rollout].
	Kind string `json:"kind"`
	// Name is that of the limit, list or roll-out.
	Name string `json:"name"`
	// Of is the only Actor with these limits, or empty for all actors without limits of their own. For a list
	// it is the entry.
	Of string `json:"of,omitempty"`
	// Value is the value in force. Limits are as limit.ParseAll reads them ("10/s, 600/min"), and replace all
	// limits of the guard. A list has "in" or "out". A roll-out has the percentages for which the rule is
	// enabled and enforced ("100 10"; "0 0" turns it off).
	Value string `json:"value"`
	// Until is when the decision ends, by the clock of the server. Zero: never.
	Until time.Time `json:"until,omitzero"`
}

// Decide puts a decision into force, in place of an earlier one about the same. When it has returned without
// an error, this process obeys, and the others as soon as they hear of it. A mistake is a [core.ErrInvalid].
// Only a process that has bound the guard or the list knows whether it accepts the limits or the entry. Where
// it does not, processes log it, and go on as if nothing were decided. A name that a process has not bound,
// though it has bound others of the kind, is logged there once.
//
// Decisions are kept for two years after the last change, and while a process follows. Each process keeps all
// of them, and reads all after a change: a desk is for hundreds, not for millions. Where Redis has lost some,
// each process that knows them puts them back, and logs it once. A later decision wins.
func (d *Desk) Decide(ctx context.Context, x Decision, who, why string) error {
	return d.set(ctx, "decide", x, who, why)
}

// Withdraw ends a decision: the values of the code are in force again. Only Kind, Name and Of of x matter.
func (d *Desk) Withdraw(ctx context.Context, x Decision, who, why string) error {
	x.Value, x.Until = "", time.Time{}
	return d.set(ctx, "withdraw", x, who, why)
}

func (d *Desk) set(ctx context.Context, op string, x Decision, who, why string) error {
	return d.Call(ctx, op, core.Attempt{}, func() error {
		until := "0"
		if who == "" {
			return kit.NewError("say who decides this", core.ErrInvalid)
		}
		if op == "decide" {
			if err := d.check(x); err != nil {
				return kit.NewError(err.Error(), core.ErrInvalid)
			}
			until = strconv.FormatInt(schedule.Milli(x.Until), 10)
		}
		_, err := d.Engine().RunWithin(ctx, d.Engine().SettleTimeout(), setScript, []string{d.root, d.audit},
			x.field(), x.Value, who, why, strings.TrimSpace(op+" "+x.Value), x.field(), until, d.channel,
			d.lastID(), d.Engine().ScriptNow(time.Millisecond), rand.Text())
		if err == nil {
			_ = d.read(ctx, false) // else the process hears of it as the others do
		}
		return err
	})
}

// field is the field of the root that has the decision: texts of any length, which hold no '|'.
func (x Decision) field() string {
	const whole = 1 << 30
	return script.JoinTag(x.Kind, script.EncodeUpTo(whole, x.Name), script.EncodeUpTo(whole, x.Of))
}

// decisionOf reads a field of the root, and which change it was. It is the zero Decision for a field that is
// none, and has no Value where it was withdrawn.
func decisionOf(field, text string) (x Decision, id int64) {
	parts := strings.Split(field, "|")
	until, rest, _ := strings.Cut(text, " ")
	change, value, hasValue := strings.Cut(rest, " ")
	ends, err := strconv.ParseInt(until, 10, 64)
	if len(parts) != 3 || err != nil || ends != 0 && !schedule.Countable(time.UnixMilli(ends)) {
		return x, 0
	}
	if id, err = strconv.ParseInt(change, 10, 64); err != nil || id < 0 || !hasValue {
		return x, 0
	}
	x = Decision{Kind: parts[0], Name: script.Decode(parts[1]), Of: script.Decode(parts[2]), Value: value}
	if ends != 0 {
		x.Until = time.UnixMilli(ends)
	}
	return x, id
}

// Decided returns what is decided, as it stands in Redis now, without what is over.
func (d *Desk) Decided(ctx context.Context) ([]Decision, error) {
	return kit.Look(ctx, &d.Base, "decided", core.Attempt{}, func() (all []Decision, err error) {
		root, err := script.Query(ctx, d.Engine().Runner,
			redis.NewMapStringStringCmd(ctx, "hgetall", d.root))
		all = []Decision{} // which pages show as none
		d.mu.Lock()
		now := d.now()
		d.mu.Unlock()
		for field, text := range root {
			x, _ := decisionOf(field, text)
			if ends := schedule.Milli(x.Until); x.Value != "" && (ends == 0 || ends > now) {
				all = append(all, x)
			}
		}
		slices.SortFunc(all, func(a, b Decision) int {
			return slices.Compare([]string{a.Kind, a.Name, a.Of}, []string{b.Kind, b.Name, b.Of})
		})
		return all, err
	})
}

// RestoredBy is who stands in the audit for a change that a process put back: Redis had lost it.
const RestoredBy = "gatehouse"

// Audited is a change by an operator, or a change that Redis had lost and a process put back: see
// [RestoredBy]. A decision without a Value was withdrawn.
type Audited struct {
	At  time.Time `json:"at"`
	Who string    `json:"who"`
	Why string    `json:"why,omitempty"`
	Decision
}

// Audit returns the last changes, 1,000 or so, the oldest first.
func (d *Desk) Audit(ctx context.Context) ([]Audited, error) {
	return kit.Look(ctx, &d.Base, "audit", core.Attempt{}, func() (all []Audited, err error) {
		messages, err := script.Query(ctx, d.Engine().Runner,
			redis.NewXMessageSliceCmd(ctx, "xrange", d.audit, "-", "+"))
		all = []Audited{}
		for _, m := range messages {
			text := func(name string) string { s, _ := m.Values[name].(string); return s }
			at, _ := strconv.ParseInt(text("at"), 10, 64)
			_, value, _ := strings.Cut(text("what"), " ")
			x, _ := decisionOf(text("path"), text("until")+" 0 "+value)
			all = append(all, Audited{At: time.UnixMilli(at), Who: text("who"), Why: text("why"), Decision: x})
		}
		return all, err
	})
}

// noted is what an operator hears of a decision that may have no effect.
type noted struct {
	Note  string   `json:"note"`
	Bound []string `json:"bound"` // the names of this kind that the process has
}

// unbound returns a note about a decision on a name that this process has not bound, or nil. A process that
// has bound nothing of the kind knows nothing of names.
func (d *Desk) unbound(x Decision) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	if names := d.others(x); names != nil {
		return noted{"this process has not bound that name: look for a slip, unless another process has", names}
	}
	return nil
}

// in returns the moment after a time, by the server's clock.
func (d *Desk) in(ctx context.Context, after time.Duration) (until time.Time, err error) {
	switch {
	case after < 0:
		return until, kit.NewError("for is less than no time: leave it out, or say how long", core.ErrInvalid)
	case after == 0:
		return until, nil
	}
	err = d.read(ctx, false)
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.UnixMilli(d.now()).Add(after), err
}

// Describe implements [kit.Describer].
func (d *Desk) Describe() kit.Description {
	about := []kit.Field{{Name: "kind", Required: true, Choices: []string{Limits, List, Rollout},
		Hint: "what is changed"}, {Name: "name", Required: true, Hint: "that of the limit, list or roll-out"},
		{Name: "of", Hint: "an actor, or all without it; of a list the entry"}}
	by := []kit.Field{{Name: "who", Required: true, Caller: true, Hint: "who decides this"}, {Name: "why"}}
	said := func(in kit.Input) Decision {
		return Decision{Kind: in.Text("kind"), Name: in.Text("name"), Of: in.Text("of"), Value: in.Text("value")}
	}
	return kit.Description{
		Kind: "control",
		Operations: []kit.Operation{
			{Name: "decided", Run: func(ctx context.Context, _ kit.Input) (any, error) { return d.Decided(ctx) }},
			{Name: "audit", Run: func(ctx context.Context, _ kit.Input) (any, error) { return d.Audit(ctx) }},
			{Name: "decide", Changes: true, Reversible: true, Fields: slices.Concat(about, []kit.Field{
				{Name: "value", Required: true,
					Hint: `limits such as "600/min"; in or out of a list; percent enabled and enforced, such as "100 10"`},
				{Name: "for", Kind: kit.FieldDuration, Hint: "such as 1h; empty: for ever"}}, by),
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					x := said(in)
					until, err := d.in(ctx, in.Duration("for"))
					if x.Until = until; err != nil {
						return nil, err
					}
					if err := d.Decide(ctx, x, in.Text("who"), in.Text("why")); err != nil {
						return nil, err
					}
					return d.unbound(x), nil
				}},
			{Name: "withdraw", Changes: true, Reversible: true, Fields: slices.Concat(about, by),
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return nil, d.Withdraw(ctx, said(in), in.Text("who"), in.Text("why"))
				}},
		},
		Ops: []string{"decide", "withdraw", "decided", "audit"},
	}
}

// now returns the time in Unix milliseconds by the server's clock, or by the process's clock if the server
// has not answered yet. The caller holds mu.
func (d *Desk) now() int64 {
	if d.server == 0 {
		return d.Engine().Now().UnixMilli()
	}
	return d.server + d.Engine().Now().Sub(d.at).Milliseconds()
}

// malformed says once that a decision is ignored. The caller holds mu.
func (d *Desk) malformed(x Decision, err error) {
	if !d.logged[x] {
		d.logged[x] = true
		d.Logger().Warn("gatehouse: a decision is ignored: withdraw it, or correct it", "desk", d.Name(),
			"kind", x.Kind, "name", fmt.Sprintf("%.100q", x.Name), "of", fmt.Sprintf("%.100q", x.Of),
			"value", fmt.Sprintf("%.100q", x.Value), "err", err)
	}
}
