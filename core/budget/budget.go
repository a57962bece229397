package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/limittext"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	checkScript   = script.New("budget_check", lua.Source("budget/check"), script.AtMostOnce)
	refundScript  = script.New("budget_refund", lua.Source("budget/refund"), script.Idempotent)
	endedScript   = script.New("budget_ended", lua.Source("budget/ended"), script.Idempotent)
	restoreScript = script.New("budget_restore", lua.Source("budget/restore"), script.AtMostOnce)
)

// The reasons that only budgets have.
const (
	// ReasonPaused: an operator has paused a node of the path: see package control.
	ReasonPaused core.Reason = "paused"
	// ReasonUnknown: the application does not know a node of the path: see [ErrUnknown].
	ReasonUnknown core.Reason = "unknown"
)

// ErrUnknown is what [Find] returns for a path that the application does not know. The attempt is refused.
var ErrUnknown = errors.New("budget: unknown path")

// Overage says what happens beyond the Max of a period. The zero value is [Hard].
type Overage int

const (
	// Hard refuses what exceeds Max.
	Hard Overage = 0
	// Metered refuses nothing: it counts, and reports alerts.
	Metered Overage = -1
)

// UpTo refuses what exceeds Max by more than so many percent. It panics unless percent is 1 to 1000.
func UpTo(percent int) Overage {
	if percent < 1 || percent > 1000 {
		panic(fmt.Sprintf("budget: UpTo(%d): give 1 to 1000 percent", percent))
	}
	return Overage(percent)
}

// Limit is one limit of a node: at most Max units in each Window, or in each period. Exactly one of Window
// and Period is set.
type Limit struct {
	Max int64
	// Window makes a sliding window, of whole milliseconds. It is exact to 100 microseconds, and then Max is
	// 10,000 at most.
	Window time.Duration
	// Resolution, if it is not zero, counts by parts of the window, 2 to 10,000 of them: Redis keeps one
	// number per part, and a unit counts as taken at the end of its part. All windows of a node have the
	// shortest part of any.
	Resolution int
	// Period makes a counter per period, such as period.MonthlyOn(15, loc).
	Period period.Period
	// Overage is for periods only.
	Overage Overage
}

// String returns the limit as in "60/1m" and "1000/period".
func (l Limit) String() string { return fmt.Sprintf("%d/%s", l.Max, l.per()) }

func (l Limit) per() string {
	if l.Window > 0 {
		return limittext.OfWindow(l.Window)
	}
	return "period"
}

// MarshalText makes it that in JSON too.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Find returns the limits of a node, at most four windows and one period. It is called in each attempt for
// each level that is present, with the path down to it: the organisation, then organisation and team, where
// an absent team is "". It must be quick, and safe for concurrent use. No limits: the node has none of its
// own.
type Find func(path []string) ([]Limit, error)

// Alert says that a node has used 80 or 100 percent of the Max of its period, or of the Max of an override.
type Alert struct {
	Path    []string
	Percent int
	Max     int64
}

// Options configure a [Guard].
type Options struct {
	// Levels names the levels of a path, 1 to 8, the outermost first. Required.
	Levels []string
	// Find returns the limits of a node. Required.
	Find Find
	// Alert is called once per node, period, Max and percentage, in the background. After an upgrade it is
	// called for the greater Max. Redis remembers the last four Max of a period. An alert is lost with the reply
	// of the call that crossed the line, or with the process. Nil: no alerts.
	Alert func(ctx context.Context, a Alert)
	// Keep is for how long periods that have ended are kept, for export: 366 days at most, and by default.
	Keep time.Duration
}

// Guard decides attempts against the limits of all levels of a path. Make it with [New]. It is safe for
// concurrent use.
//
// The Actor of an attempt is a [Path]. The Resource may be empty. A rule makes the path of its Under and
// Who. All levels of an organisation are in one slot of a cluster, and one script call decides.
//
// The units of an attempt count however its request ends. [Guard.Refund] and [Guard.Spend] correct them,
// once, on all levels.
type Guard struct {
	kit.Base
	options Options
}

// New makes a guard with the given name. It panics when the name is taken or malformed, when the options are
// invalid, or when the engine has no Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	kit.NeedRedis(e, "budget", name)
	if n := len(options.Levels); n < 1 || n > 8 {
		panic(fmt.Sprintf("budget: %d levels: name 1 to 8, such as org, team, user (guard %q)", n, name))
	}
	for _, level := range options.Levels {
		if err := script.CheckName("level's name", level); err != nil {
			panic(err)
		}
	}
	if options.Find == nil {
		panic(fmt.Sprintf("budget: Find is missing: set the function that knows the limits (guard %q)", name))
	}
	if options.Keep < 0 || options.Keep > kit.MaxTTL {
		panic(fmt.Sprintf("budget: Keep is %v: set %v at most (guard %q)", options.Keep, kit.MaxTTL, name))
	}
	if options.Keep == 0 {
		options.Keep = kit.MaxTTL
	}
	base := kit.Register(e, "budget", name, checkScript, refundScript, endedScript, restoreScript)
	return &Guard{base, options}
}

// Traits implements [core.Guard]: units count however the request ends, and the cost may be an estimate.
func (g *Guard) Traits() core.Traits {
	return core.Traits{KeepsOnFailure: true, Spends: true, Levels: len(g.options.Levels),
		Outage: core.FailClosed, Unit: kit.UnitRequests}
}

var pathEscapes = strings.NewReplacer(`\`, `\\`, `|`, `\|`)

// Path returns the Actor of an attempt that counts at these levels, the outermost first. An absent level is
// "". Its form is that of keyfuncs.JoinTexts.
func Path(levels ...string) string {
	escaped := make([]string, len(levels))
	for i, level := range levels {
		escaped[i] = pathEscapes.Replace(level)
	}
	return strings.Join(escaped, "|")
}

func splitPath(actor string) (path []string) {
	var level strings.Builder
	for i := 0; i < len(actor); i++ {
		switch c := actor[i]; {
		case c == '\\' && i+1 < len(actor):
			i++
			level.WriteByte(actor[i])
		case c == '|':
			path = append(path, level.String())
			level.Reset()
		default:
			level.WriteByte(c)
		}
	}
	return append(path, level.String())
}

// node is a level of a path that is present.
type node struct {
	level  int
	path   []string
	name   string // as Redis knows it
	part   int64  // microseconds
	limits []Limit
}

// nodesOf returns the keys and nodes of an attempt.
func (g *Guard) nodesOf(a core.Attempt) (keys []string, nodes []node, err error) {
	path := splitPath(a.Actor)
	if len(path) != len(g.options.Levels) || path[0] == "" {
		return nil, nil, fmt.Errorf("%w: the path has %d levels: it needs one text for each of %v, and the first "+
			"must not be empty", core.ErrInvalid, len(path), g.options.Levels)
	}
	tag := kit.TagOf(core.Attempt{Actor: path[0], Resource: a.Resource})
	keys = []string{g.Key(tag, "root"), g.Key(tag, "rows"), ""}
	names := make([]string, 0, len(path))
	whole := make([]string, 0, len(path))
	for i, text := range path {
		names, whole = append(names, script.Encode(text)), append(whole, script.EncodeUpTo(script.MaxRecord, text))
		if text == "" {
			continue
		}
		n := node{level: i, path: path[: i+1 : i+1], name: script.JoinTag(whole...)}
		if n.limits, err = g.options.Find(n.path); err != nil {
			return nil, nil, err
		}
		if err := n.check(); err != nil {
			return nil, nil, err
		}
		nodes = append(nodes, n)
		keys = append(keys, g.Key(tag, append([]string{"log"}, names[1:]...)...),
			g.Key(tag, append([]string{"node"}, names[1:]...)...))
	}
	keys[2] = g.Key(tag, append([]string{"calls"}, names[1:]...)...)
	return keys, nodes, nil
}

// check finds limits that cannot work, and puts the period last.
func (n *node) check() error {
	var periods, windows []Limit
	n.part = 0
	for _, l := range n.limits {
		if wrong := l.check(); wrong != "" {
			return fmt.Errorf("%w: the limits of %q: %s", core.ErrInvalid, n.path, wrong)
		}
		if l.Period != nil {
			periods = append(periods, l)
			continue
		}
		part := int64(100)
		if l.Resolution > 0 {
			part = max(l.Window.Microseconds()/int64(l.Resolution), part)
		}
		if n.part == 0 || part < n.part {
			n.part = part
		}
		windows = append(windows, l)
	}
	if len(windows) > 4 || len(periods) > 1 {
		return fmt.Errorf("%w: the limits of %q: a node has at most four windows and one period",
			core.ErrInvalid, n.path)
	}
	n.limits = slices.Concat(windows, periods)
	return nil
}

// mostUnits is the largest Max of a limit, and the largest cost: sums of a few still count exactly.
const mostUnits = core.MaxAmount / 16

// check returns what is wrong with the limit, if anything.
func (l Limit) check() string {
	switch {
	case (l.Window == 0) == (l.Period == nil):
		return "set exactly one of Window and Period"
	case l.Max < 0 || l.Max > mostUnits:
		return "Max is out of range"
	case l.Period != nil:
		return ""
	case l.Overage != Hard:
		return "a window has no Overage"
	}
	return l.checkWindow()
}

func (l Limit) checkWindow() string {
	switch {
	case l.Window < time.Millisecond || l.Window > kit.MaxTTL || l.Window%time.Millisecond != 0:
		return "a Window has whole milliseconds, 366 days at most"
	case l.Resolution == 0 && l.Max > 10_000:
		return "a window with more than 10,000 units needs a Resolution"
	case l.Resolution != 0 && (l.Resolution < 2 || l.Resolution > 10_000):
		return "a Resolution is 2 to 10,000"
	}
	return ""
}

// arguments returns the node's texts for the script, at a moment in milliseconds.
func (n *node) arguments(milli int64) (windows, in string, err error) {
	for _, l := range n.limits {
		if l.Period == nil {
			if windows == "" {
				windows = strconv.FormatInt(n.part, 10)
			}
			windows += fmt.Sprintf(" %d/%d", l.Max, l.Window.Milliseconds())
			continue
		}
		span, err := l.Period.At(milli)
		if err != nil {
			return "", "", err
		}
		in = fmt.Sprintf("%d %d %d %d", l.Max, l.Overage, span.Begins, span.Ends)
	}
	return windows, in, nil
}
