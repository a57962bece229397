package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/limittext"
)

// nodeOf returns the keys of the root, and the node of a path, which may end at any level.
func (g *Guard) nodeOf(a core.Attempt) (tag string, names, path []string, err error) {
	path = splitPath(a.Actor)
	for len(path) > 1 && path[len(path)-1] == "" {
		path = path[:len(path)-1]
	}
	if len(path) > len(g.options.Levels) || path[0] == "" {
		return "", nil, nil, fmt.Errorf("%w: %q is no path of the levels %v", core.ErrInvalid, path,
			g.options.Levels)
	}
	for _, level := range path {
		names = append(names, script.EncodeUpTo(script.MaxRecord, level))
	}
	return kit.TagOf(core.Attempt{Actor: path[0], Resource: a.Resource}), names, path, nil
}

// setting is what an operator decides about a node.
type setting struct {
	mark, value, what string // prefix and value of the root's field; text of the audit
	until             time.Time
	who, why          string
}

// set notes what an operator decides about a node, under a field of the root.
func (g *Guard) set(ctx context.Context, op string, a core.Attempt, s setting) error {
	return g.Call(ctx, op, a, func() error {
		tag, names, path, err := g.nodeOf(a)
		switch {
		case err != nil:
			return err
		case s.who == "":
			return kit.NewError("say who decides this", core.ErrInvalid)
		case !s.until.IsZero() && !s.until.After(g.Engine().Now()):
			return kit.NewError("until is over: give a later time, or the zero Time for ever", core.ErrInvalid)
		}
		_, err = g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), setScript,
			[]string{g.Key(tag, "root"), g.Key(tag, "audit")}, s.mark+script.JoinTag(names...), s.value, s.who,
			s.why, s.what, Path(path...), untilText(s.until), "", "", g.Engine().ScriptNow(time.Millisecond))
		return err
	})
}

// untilText returns a moment in milliseconds. 0: for ever.
func untilText(t time.Time) string {
	if t.IsZero() {
		return "0"
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// untilOf reads what untilText writes.
func untilOf(text string) (t time.Time) {
	if ends, _ := strconv.ParseInt(text, 10, 64); ends > 0 {
		t = time.UnixMilli(ends)
	}
	return t
}

// Override sets other limits for a node until a moment. The zero Time: for ever. The Actor of a is the path
// to the node, and may end at any level. Each limit replaces the node's limit with that Window, or, without
// a Window, the limit of its period. The node's other limits stay. No limits: those of the application
// apply again. An override replaces an earlier one of the node. An override for a limit that the node does
// not have is an error.
//
// Each process obeys with its next call. It is kept as long as calls of the organisation come, and for half a
// year at least.
func (g *Guard) Override(
	ctx context.Context, a core.Attempt, limits []Limit, until time.Time, who, why string,
) error {
	_, _, path, err := g.nodeOf(a)
	if err != nil {
		return err
	}
	own, err := g.options.Find(path)
	if err != nil {
		return kit.NewError(fmt.Sprintf("%q: %v", path, err), core.ErrInvalid)
	}
	has := func(l Limit) bool { // where nothing is known of the node, as for the command, all may be right
		return len(own) == 0 || slices.ContainsFunc(own, func(o Limit) bool { return o.Window == l.Window })
	}
	value, what := "", "no override"
	if len(limits) > 0 {
		value, what = untilText(until), "override:"
	}
	for _, l := range limits {
		if l.Max < 0 || l.Max > core.MaxAmount/16 || l.Window < 0 || l.Window > 0 && l.Overage != Hard {
			return kit.NewError(fmt.Sprintf("%v cannot override a limit", l), core.ErrInvalid)
		}
		if !has(l) {
			return kit.NewError(fmt.Sprintf("the node has no limit per %s: it has %v", l.per(), own),
				core.ErrInvalid)
		}
		if l.Window > 0 {
			value += fmt.Sprintf(" w%d=%d", l.Window.Milliseconds(), l.Max)
		} else {
			value += fmt.Sprintf(" p=%d/%d", l.Max, l.hard())
		}
		what += " " + l.String()
	}
	return g.set(ctx, "override", a, setting{"", value, what, until, who, why})
}

// parseLimits reads the limits of an override: as package limit does, and those of a period as String writes
// them.
func parseLimits(text string) (limits []Limit, err error) {
	for one := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		parts := limittext.Split(one)
		var l Limit
		if len(parts) != 2 {
			err = errors.New("there are no two parts")
		} else if l.Max, err = limittext.Whole(parts[0]); err == nil && parts[1] != "period" {
			if l.Window, err = limittext.Window(parts[1]); err == nil && l.Window <= 0 {
				err = errors.New("the window is not above 0")
			}
		}
		if err != nil {
			return nil, kit.NewError(
				fmt.Sprintf("%.40q: %v: write limits such as 5000/min and 100000/period", one, err), core.ErrInvalid)
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// Pause refuses all attempts below a node, until a moment. The zero Time: until [Guard.Resume]. Each
// process obeys with its next call.
func (g *Guard) Pause(ctx context.Context, a core.Attempt, until time.Time, who, why string) error {
	return g.set(ctx, "pause", a, setting{"!", untilText(until), "pause", until, who, why})
}

// Resume ends a pause.
func (g *Guard) Resume(ctx context.Context, a core.Attempt, who, why string) error {
	return g.set(ctx, "resume", a, setting{mark: "!", what: "resume", who: who, why: why})
}

// Decided is what operators have decided about a node.
type Decided struct {
	Path   []string `json:"path"`
	Paused bool     `json:"paused"`
	// Limits are the limits of an override. A limit without a Window is the period's.
	Limits []Limit `json:"limits,omitempty"`
	// Until is when it ends. Zero: never. It may be over.
	Until time.Time `json:"until,omitzero"`
}

// Overrides returns what is decided about the organisation of the path and all below it.
func (g *Guard) Overrides(ctx context.Context, a core.Attempt) ([]Decided, error) {
	return kit.Look(ctx, &g.Base, "overrides", a, func() (all []Decided, err error) {
		tag, _, _, err := g.nodeOf(a)
		if err != nil {
			return nil, err
		}
		root, err := script.Query(ctx, g.Engine().Runner,
			redis.NewMapStringStringCmd(ctx, "hgetall", g.Key(tag, "root")))
		for field, value := range root {
			if field == "=" {
				continue
			}
			words, d := strings.Fields(value), Decided{Paused: field[0] == '!'}
			d.Path = pathOf(strings.TrimPrefix(field, "!"))
			d.Until = untilOf(words[0])
			for _, word := range words[1:] {
				d.Limits = append(d.Limits, limitOf(word))
			}
			all = append(all, d)
		}
		slices.SortFunc(all, func(a, b Decided) int { return slices.Compare(a.Path, b.Path) })
		return all, err
	})
}

// limitOf reads a word of an override.
func limitOf(word string) (l Limit) {
	what, most, _ := strings.Cut(word, "=")
	most, hard, _ := strings.Cut(most, "/")
	l.Max, _ = strconv.ParseInt(most, 10, 64)
	if milli, found := strings.CutPrefix(what, "w"); found {
		length, _ := strconv.ParseInt(milli, 10, 64)
		l.Window = time.Duration(length) * time.Millisecond
	} else if end, _ := strconv.ParseInt(hard, 10, 64); end < 0 {
		l.Overage = Metered
	} else if end > l.Max {
		l.Overage = Overage((end*100+l.Max-1)/max(l.Max, 1) - 100)
	}
	return l
}

func pathOf(name string) []string {
	path := strings.Split(name, "|")
	for i, level := range path {
		path[i] = script.Decode(level)
	}
	return path
}

// Audited is a change by an operator.
type Audited struct {
	At    time.Time `json:"at"`
	Who   string    `json:"who"`
	Why   string    `json:"why,omitempty"`
	What  string    `json:"what"`
	Path  []string  `json:"path"`
	Until time.Time `json:"until,omitzero"` // zero: for ever
}

// Audit returns the last changes below the organisation of the path, 1,000 or so, the oldest first.
func (g *Guard) Audit(ctx context.Context, a core.Attempt) ([]Audited, error) {
	return kit.Look(ctx, &g.Base, "audit", a, func() (all []Audited, err error) {
		tag, _, _, err := g.nodeOf(a)
		if err != nil {
			return nil, err
		}
		messages, err := script.Query(ctx, g.Engine().Runner,
			redis.NewXMessageSliceCmd(ctx, "xrange", g.Key(tag, "audit"), "-", "+"))
		for _, m := range messages {
			text := func(name string) string { s, _ := m.Values[name].(string); return s }
			at, _ := strconv.ParseInt(text("at"), 10, 64)
			all = append(all, Audited{time.UnixMilli(at), text("who"), text("why"), text("what"),
				splitPath(text("path")), untilOf(text("until"))})
		}
		return all, err
	})
}

// Usage returns what each limit of the path says now, which may end at any level. It takes nothing.
func (g *Guard) Usage(ctx context.Context, a core.Attempt) ([]Figure, error) {
	if missing := len(g.options.Levels) - len(splitPath(a.Actor)); missing > 0 {
		a.Actor += strings.Repeat("|", missing)
	}
	d, err := g.Peek(ctx, a)
	return Figures(d), err
}

// shownFigure is a [Figure] as operators see it.
type shownFigure struct {
	Level      string   `json:"level"`
	Path       []string `json:"path"`
	Limit      Limit    `json:"limit"`
	Max        int64    `json:"max"`
	Used       int64    `json:"used"`
	RetryAfter string   `json:"retry_after"`
	ResetAfter string   `json:"reset_after"`
}

func shownFigures(figures []Figure) []shownFigure {
	all := make([]shownFigure, 0, len(figures))
	for _, f := range figures {
		retry := kit.TextOf(f.RetryAfter)
		if f.RetryAfter < 0 {
			retry = "never"
		}
		all = append(all, shownFigure{f.Level, f.Path, f.Limit, f.Max, f.Used, retry, kit.TextOf(f.ResetAfter)})
	}
	return all
}

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description {
	path := []kit.Field{{Name: "actor", Required: true, Hint: "the path, such as acme|dev|ann"},
		{Name: "resource"}}
	change := slices.Concat(path, []kit.Field{
		{Name: "for", Kind: kit.FieldDuration, Hint: "such as 1h; empty: for ever"},
		{Name: "who", Required: true, Caller: true, Hint: "who decides this"}, {Name: "why"}})
	const types = "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#"
	until := func(in kit.Input) (t time.Time) {
		if d := in.Duration("for"); d > 0 {
			t = g.Engine().Now().Add(d).Truncate(time.Millisecond)
		}
		return t
	}
	return kit.Description{
		Kind:     "budget",
		Settings: []kit.Detail{{Name: "levels", Value: strings.Join(g.options.Levels, ", ")}},
		Answers: append(kit.StandardAnswers(core.ReasonLimited, core.ReasonOverLimit, core.ReasonQuota,
			core.ReasonGone, core.ReasonDayRolled),
			kit.Answer{Reason: ReasonPaused, Status: 429, Title: "Paused", Detail: "This account is paused.",
				Type:      types + "paused",
				PageTitle: "Paused", PageDetail: "Your account is paused."},
			kit.Answer{Reason: ReasonUnknown, Status: 403, Title: "Unknown", Detail: "There is no such account.",
				Type:      types + "unknown",
				PageTitle: "Unknown account", PageDetail: "There is no account for this request."}),
		Operations: []kit.Operation{
			{Name: "usage", Fields: path, Run: func(ctx context.Context, in kit.Input) (any, error) {
				figures, err := g.Usage(ctx, in.Attempt())
				return shownFigures(figures), err
			}},
			{Name: "decided", Fields: path, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return g.Overrides(ctx, in.Attempt())
			}},
			{Name: "audit", Fields: path, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return g.Audit(ctx, in.Attempt())
			}},
			{Name: "override", Changes: true, Reversible: true, Fields: append(change[:5:5],
				kit.Field{Name: "limits", Hint: `such as "5000/min, 100000/period"; empty: as the application says`}),
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					limits, err := parseLimits(in.Text("limits"))
					if err != nil {
						return nil, err
					}
					d := Decided{Path: splitPath(in.Text("actor")), Limits: limits, Until: until(in)}
					return d, g.Override(ctx, in.Attempt(), limits, d.Until, in.Text("who"), in.Text("why"))
				}},
			{Name: "pause", Changes: true, Reversible: true, Fields: change,
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					d := Decided{Path: splitPath(in.Text("actor")), Paused: true, Until: until(in)}
					return d, g.Pause(ctx, in.Attempt(), d.Until, in.Text("who"), in.Text("why"))
				}},
			{Name: "resume", Changes: true, Reversible: true, Fields: append(path[:2:2], change[3:]...),
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					d := Decided{Path: splitPath(in.Text("actor"))}
					return d, g.Resume(ctx, in.Attempt(), in.Text("who"), in.Text("why"))
				}},
			{Name: "restore", Changes: true, Fields: append(append(path[:2:2], change[3:]...),
				kit.Field{Name: "used", Kind: kit.FieldNumber, Required: true, Hint: "in this period, before the loss"}),
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return g.Restore(ctx, in.Attempt(), g.Engine().Now(), in.Number("used"), in.Text("who"), in.Text("why"))
				}},
			{Name: "ended", Changes: true, Fields: path, Run: func(ctx context.Context, in kit.Input) (any, error) {
				return g.Ended(ctx, in.Attempt())
			}},
			{Name: "export", Fields: append(path[:2:2], kit.Field{Name: "after", Kind: kit.FieldNumber}),
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					rows, next, err := g.Export(ctx, in.Attempt(), in.Number("after"))
					return Exported{rows, next}, err
				}},
		},
		Ops: []string{"check", "peek", "settle", "refund", "spend", "override", "pause", "resume", "overrides",
			"audit", "export", "ended", "restore"},
	}
}
