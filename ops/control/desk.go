package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
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

// Desk is where operators decide about limits, lists, roll-outs and budgets: see [New]. It is safe for
// concurrent use.
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

// The kinds of things. A node of a budget may have limits and a pause at a time.
const (
	Limits  = "limits"
	List    = "list"
	Rollout = "rollout"
	Budget  = "budget"
	Pause   = "pause" // of a budget
)

// Decision is what an operator has decided about a thing.
type Decision struct {
	// Kind is [Limits], [List], [Rollout], [Budget] or [Pause].
	Kind string `json:"kind"`
	// Name is that of the limit, list, roll-out or budget.
	Name string `json:"name"`
	// Of is the only Actor with these limits, or empty for all actors without limits of their own. For a list
	// it is the entry. For a budget it is the path to a node, which may end at any level.
	Of string `json:"of,omitempty"`
	// Resource is that of the attempts, for a budget that counts by Resource.
	Resource string `json:"resource,omitempty"`
	// Value is the value in force. Limits are as limit.ParseAll reads them ("10/s, 600/min"), and replace all
	// limits of the guard. A list has "in" or "out". A roll-out has the percentages for which the rule is
	// enabled and enforced ("100 10"; "0 0" turns it off). Limits of a budget ("5000/min, 100000/period")
	// replace those of the node with the same window. A pause has "on".
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
		root, audit, field, err := d.place(x)
		value, until := "", "0"
		if err == nil && op == "decide" {
			value, err = d.check(x)
			until = strconv.FormatInt(schedule.Milli(x.Until), 10)
		}
		if who == "" {
			err = errors.New("say who decides this")
		}
		if err != nil {
			return kit.NewError(err.Error(), core.ErrInvalid)
		}
		_, err = d.Engine().RunWithin(ctx, d.Engine().SettleTimeout(), setScript, []string{root, audit}, field,
			value, who, why, strings.TrimSpace(op+" "+x.Value), x.field(), until, d.channel, d.lastID(),
			d.Engine().ScriptNow(time.Millisecond), rand.Text())
		if err == nil {
			_ = d.read(ctx, false) // else the process hears of it as the others do
		}
		return err
	})
}

// place returns where a decision is kept: the root, the audit, and the field of the root.
func (d *Desk) place(x Decision) (root, audit, field string, err error) {
	if !x.ofBudget() {
		return d.root, d.audit, x.field(), nil
	}
	d.mu.Lock()
	b := d.bound[thing{Budget, x.Name}]
	d.mu.Unlock()
	if b == nil {
		return "", "", "", kit.NewError(fmt.Sprintf("this process has bound no budget named %.40q", x.Name),
			core.ErrInvalid)
	}
	root, audit, field, err = b.keeper.Decisions(core.Attempt{Actor: x.Of, Resource: x.Resource})
	if x.Kind == Pause {
		field = "!" + field
	}
	return root, audit, field, err
}

// ofBudget reports whether a budget keeps the decision.
func (x Decision) ofBudget() bool { return x.Kind == Budget || x.Kind == Pause }

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

// Decided returns what is decided, as it stands in Redis now, without what is over. A budget keeps decisions
// apart for each organisation, which Kind, Name and Of of about name. The zero about is for all others.
func (d *Desk) Decided(ctx context.Context, about Decision) ([]Decision, error) {
	return kit.Look(ctx, &d.Base, "decided", core.Attempt{}, func() (all []Decision, err error) {
		key, _, _, err := d.place(about)
		if err != nil {
			return nil, err
		}
		root, err := script.Query(ctx, d.Engine().Runner, redis.NewMapStringStringCmd(ctx, "hgetall", key))
		all = []Decision{} // which pages show as none
		d.mu.Lock()
		now := d.now()
		d.mu.Unlock()
		for field, text := range root {
			if about.ofBudget() { // as check writes it
				text, field, _ = strings.Cut(text, "|")
				field, _, _ = strings.Cut(field, " ")
			}
			x, _ := decisionOf(field, text)
			x.Resource = about.Resource
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

// Audit returns the last changes, 1,000 or so, the oldest first. It finds them as Decided does. What a budget
// has restored is among its changes, with the Kind "restore".
func (d *Desk) Audit(ctx context.Context, about Decision) ([]Audited, error) {
	return kit.Look(ctx, &d.Base, "audit", core.Attempt{}, func() (all []Audited, err error) {
		_, key, _, err := d.place(about)
		if err != nil {
			return nil, err
		}
		messages, err := script.Query(ctx, d.Engine().Runner,
			redis.NewXMessageSliceCmd(ctx, "xrange", key, "-", "+"))
		all = []Audited{}
		for _, m := range messages {
			text := func(name string) string { s, _ := m.Values[name].(string); return s }
			at, _ := strconv.ParseInt(text("at"), 10, 64)
			_, value, _ := strings.Cut(text("what"), " ")
			x, _ := decisionOf(text("path"), text("until")+" 0 "+value)
			x.Resource = about.Resource
			all = append(all, Audited{At: time.UnixMilli(at), Who: text("who"), Why: text("why"), Decision: x})
		}
		return all, err
	})
}

// account is what operators see of an organisation of a budget.
type account struct {
	Decided []Decision `json:"decided"`
	Audit   []Audited  `json:"audit"`
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
	about := []kit.Field{
		{Name: "kind", Required: true, Choices: slices.Sorted(maps.Keys(kinds)), Hint: "what is changed"},
		{Name: "name", Required: true, Hint: "that of the limit, list, roll-out or budget"},
		{Name: "of", Hint: "an actor, or all without it; of a list the entry; of a budget a path such as acme|dev"},
		{Name: "resource", Hint: "of a budget that counts by resource"}}
	by := []kit.Field{{Name: "who", Required: true, Caller: true, Hint: "who decides this"}, {Name: "why"}}
	said := func(in kit.Input) Decision {
		return Decision{Kind: in.Text("kind"), Name: in.Text("name"), Of: in.Text("of"),
			Resource: in.Text("resource"), Value: in.Text("value")}
	}
	return kit.Description{
		Kind: "control",
		Operations: []kit.Operation{
			{Name: "decided", Run: func(ctx context.Context, _ kit.Input) (any, error) {
				return d.Decided(ctx, Decision{})
			}},
			{Name: "audit", Run: func(ctx context.Context, _ kit.Input) (any, error) {
				return d.Audit(ctx, Decision{})
			}},
			{Name: "budget", Fields: about[1:], Run: func(ctx context.Context, in kit.Input) (any, error) {
				x := said(in)
				x.Kind = Budget
				decided, err := d.Decided(ctx, x)
				if err != nil {
					return nil, err
				}
				audit, err := d.Audit(ctx, x)
				return account{decided, audit}, err
			}},
			{Name: "decide", Changes: true, Reversible: true, Fields: slices.Concat(about, []kit.Field{
				{Name: "value", Required: true,
					Hint: `limits such as "600/min"; in or out of a list; percent enabled and enforced, such as "100 10"; on`},
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
