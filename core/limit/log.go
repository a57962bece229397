package limit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

// This file asks about sliding windows. All limits of an actor and resource are views of one log; limits by
// parts have one of their own, and where both kinds are asked for, each log has all units. The short scripts
// decide where all that the header of the log names are the limits of the attempt, and the long one the rest.

var (
	slidingWindowScript = newScripts("sliding_window", lua.SlidingWindow)
	slidingPartsScript  = newScripts("sliding_parts", lua.SlidingParts)
	slidingLogScript    = newScripts("sliding_log", lua.SlidingLog)
	slidingSettleScript = core.NewScript("sliding_settle", lua.SlidingSettle, core.AtMostOnce).Shared()
)

// logArgs is what the scripts take of a number of limits.
type logArgs struct {
	oneByOne, byParts string // the limits of each kind, as the header of a log has them
	short             *scripts
	front, back       []any // of the short script, around the moment
	timeless          []any // of the short script, by the server's clock
	long              []any // of the long one, behind the cost
	part              int64 // microseconds, of the limits by parts; 0 without one
}

func newLogArgs(limits []Limit) logArgs {
	var a logArgs
	var parts int
	for _, l := range limits {
		window := strconv.FormatInt(l.Window.Milliseconds(), 10)
		text := strconv.FormatInt(l.Max, 10) + "/" + window
		part := int64(0)
		if l.Resolution > 0 {
			parts++
			part = l.grain()
			a.part = part
			a.byParts = strings.TrimPrefix(a.byParts+" "+text+"/"+strconv.FormatInt(part, 10), " ")
		} else {
			a.oneByOne = strings.TrimPrefix(a.oneByOne+" "+text, " ")
		}
		a.long = append(a.long, l.Max, window, part)
	}
	if a.oneByOne != "" {
		a.oneByOne += ":"
	}
	if a.byParts != "" {
		a.byParts += ":"
	}
	switch {
	case parts == 0:
		a.short = slidingWindowScript
		a.front = []any{a.oneByOne, "^(%d+)" + strings.Repeat(" (%d+)", len(limits)) + "(.*)$", len(limits)}
		for i := range limits {
			a.back = append(a.back, a.long[3*i], a.long[3*i+1])
		}
	case parts == 1 && len(limits) == 1:
		a.short = slidingPartsScript
		a.front = []any{a.byParts}
		a.back = []any{a.part, limits[0].Max, a.long[1], ""}
	}
	a.timeless = append(append(slices.Clone(a.front), ""), a.back...)
	return a
}

// shareParts gives limits with a resolution the parts of the finest of them, since they share a log.
func shareParts(limits []Limit) error {
	var part, longest int64
	many := 0
	for _, l := range limits {
		if l.Resolution > 0 && l.Window > 0 {
			many++
			if part == 0 || l.grain() < part {
				part = l.grain()
			}
			longest = max(longest, l.Window.Microseconds())
		}
	}
	if many < 2 {
		return nil
	}
	if longest/part > maxResolution {
		return fmt.Errorf("limits with a resolution whose log would have %d parts: it has the parts of the finest "+
			"and the window of the longest, at most %d together: use a coarser resolution, or a guard of its own",
			longest/part, maxResolution)
	}
	for i := range limits {
		if limits[i].Resolution > 0 {
			limits[i].part = part
		}
	}
	return nil
}

// keysOfLogs returns the keys of the logs: one by one, and by parts.
func (l *limiter) keysOfLogs(a core.Attempt) []string {
	units := l.Key(core.TagOf(a), "log|units")
	return []string{units, strings.TrimSuffix(units, "|units")} // without a second text
}

// fillLogCall fills in the call of a script of sliding windows.
func (l *limiter) fillLogCall(
	c *core.Call, limits *limitSet, long bool, a core.Attempt, cost int64, peek bool, now string,
) {
	of := &limits.log
	c.Keys = l.keysOfLogs(a)
	if long || of.short == nil {
		c.Script = slidingLogScript.of(peek)
		c.Args = append([]any{of.oneByOne, of.byParts, now, cost}, of.long...)
		return
	}
	if of.byParts != "" { // the short script's own log comes first
		c.Keys[0], c.Keys[1] = c.Keys[1], c.Keys[0]
	}
	front := of.timeless
	if now != "" {
		front = slices.Concat(of.front, []any{now}, of.back)
	}
	c.Script, c.Args = of.short.of(peek), append(append(make([]any, 0, len(front)+1), front...), cost)
	if peek {
		return
	}
	c.Joint = core.Joint{Script: c.Script, Replies: joinedReplies, Group: c.Keys[0], Args: front, Own: cost}
	if l.by != nil { // the limits may be others at any time
		c.Joint.Group += of.oneByOne + of.byParts
	}
}

// joinedReplies returns the replies that a short script would give to n attempts, from its reply to all of
// them: see sliding_window.lua.
func joinedReplies(reply any, n int) []any {
	values, ok := reply.([]any)
	switch {
	case n == 1:
		return []any{reply}
	case ok && len(values) == n+2:
		stamp, resets, each := values[0], values[1], values[2:]
		replies := make([]any, n)
		for i, answer := range each {
			if left, ok := answer.(int64); ok && left >= 0 {
				replies[i] = []any{int64(1), left, stamp, int64(1), resets}
			} else { // refused
				replies[i] = answer
			}
		}
		return replies
	case ok && len(values) == n && !isUndecided(reply):
		return values
	}
	return nil
}
