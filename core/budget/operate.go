package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// Decisions returns where package control keeps the decisions about a node: the hash and the stream of its
// organisation, and the field of the hash. A field with "!" in front is a pause. The Actor of a is the path
// to the node, and may end at any level.
func (g *Guard) Decisions(a core.Attempt) (root, audit, field string, err error) {
	tag, names, _, err := g.nodeOf(a)
	if err != nil {
		return "", "", "", err
	}
	return g.Key(tag, "root"), g.Key(tag, "audit"), script.JoinTag(names...), nil
}

// Override reads limits for a node from a text such as "5000/min, 100000/period", and returns them as words
// of the script. A limit replaces the Max of the node's limit with that window, or of its period. The node's
// other limits stay, and so does the Overage. A limit that the node does not have is a [core.ErrInvalid].
func (g *Guard) Override(path, text string) (words string, err error) {
	_, _, levels, err := g.nodeOf(core.Attempt{Actor: path})
	if err != nil {
		return "", err
	}
	own, err := g.options.Find(levels)
	if err != nil {
		return "", kit.NewError(fmt.Sprintf("%q: %v", levels, err), core.ErrInvalid)
	}
	for one := range strings.SplitSeq(text, ",") {
		l, err := parseLimit(one)
		// Where nothing is known of the node, as for the command, all may be right.
		if err == nil && len(own) > 0 &&
			!slices.ContainsFunc(own, func(o Limit) bool { return o.Window == l.Window }) {
			err = fmt.Errorf("the node has no limit per %s: it has %v", l.per(), own)
		}
		if err != nil {
			return "", kit.NewError(err.Error(), core.ErrInvalid)
		}
		words += fmt.Sprintf(" w%d=%d", l.Window.Milliseconds(), l.Max)
	}
	return words, nil
}

// parseLimit reads a limit of an override: as package limit does, and that of a period as String writes it.
func parseLimit(text string) (l Limit, err error) {
	parts := limittext.Split(text)
	if len(parts) != 2 {
		err = errors.New("there are no two parts")
	} else if l.Max, err = limittext.Whole(parts[0]); err == nil && parts[1] != "period" {
		if l.Window, err = limittext.Window(parts[1]); err == nil && l.Window <= 0 {
			err = errors.New("the window is not above 0")
		}
	}
	if err == nil && l.Max > mostUnits {
		err = errors.New("too many units")
	}
	if err != nil {
		return l, fmt.Errorf("%.40q: %w: write limits such as 5000/min and 100000/period", text, err)
	}
	return l, nil
}

func pathOf(name string) []string {
	path := strings.Split(name, "|")
	for i, level := range path {
		path[i] = script.Decode(level)
	}
	return path
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
	by := []kit.Field{{Name: "who", Required: true, Caller: true, Hint: "who decides this"}, {Name: "why"}}
	const types = "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#"
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
			{Name: "restore", Changes: true, Fields: append(slices.Concat(path, by),
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
		Ops: []string{"check", "peek", "settle", "refund", "spend", "export", "ended", "restore"},
	}
}
