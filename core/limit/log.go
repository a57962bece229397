package limit

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

// This file asks about sliding windows. All limits of an actor and resource are views of one log. Limits by
// parts have a log of their own. If both kinds are asked for, each log has all units. The short scripts
// decide if the header of the log names only the limits of the attempt. The long script decides otherwise.

var (
	slidingWindowScript  = newScripts("sliding_window", lua.Source("limit/sliding_window"))
	slidingWindowsScript = newScripts("sliding_windows", lua.Source("limit/sliding_windows"))
	slidingPartsScript   = newScripts("sliding_parts", lua.Source("limit/sliding_parts"))
	slidingLogScript     = newScripts("sliding_log", lua.Source("limit/sliding_log"))
	slidingSettleScript  = script.New("sliding_settle", lua.Source("limit/sliding_settle"),
		script.AtMostOnce).Shared()
)

// logArgs is what the scripts take of a number of limits.
type logArgs struct {
	oneByOne, byParts string // the limits of each kind, as the header of a log has them
	short             *scripts
	joins             bool  // several attempts in one call of the short script
	args              []any // of the short script: the limits, and the server's clock
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
		a.byParts += "|"
	}
	switch {
	case len(limits) > 1 && parts == 0:
		a.short = slidingWindowsScript
	case len(limits) == 1 && parts == 1:
		a.short, a.joins = slidingPartsScript, true
	case len(limits) == 1:
		a.short, a.joins = slidingWindowScript, true
	}
	a.args = []any{a.oneByOne + a.byParts, ""}
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

// keysOfLogs returns the keys of the logs: of the only log, or of both kinds.
func (l *limiter) keysOfLogs(tag string) []string {
	parts := l.Key(tag, "log|parts")
	return []string{strings.TrimSuffix(parts, "|parts"), parts} // without a second text
}

// prepareLog prepares a call of a script of sliding windows.
func (l *limiter) prepareLog(c *script.Call, q asked, now string) {
	of := &q.limits.log
	if q.long || of.short == nil {
		c.Script, c.Keys = slidingLogScript.of(q.peek), l.keysOfLogs(q.tag)
		c.Args = append([]any{of.oneByOne, of.byParts, now, q.cost}, of.long...)
		return
	}
	c.Script, c.Keys = of.short.of(q.peek), append(c.Keys, l.Key(q.tag, "log"))
	args := of.args
	if now != "" {
		args = []any{args[0], now}
	}
	switch { // the usual is left out
	case q.cost != 1:
		c.Args = []any{args[0], now, q.cost}
	case now != "":
		c.Args = args
	default:
		c.Args = args[:1:1]
	}
	if q.peek || !of.joins {
		return
	}
	c.Join = script.Join{Script: c.Script, Replies: joinedReplies, Group: c.Keys[0], Args: args, Own: q.cost}
	if l.by != nil { // the limits may be others at any time
		c.Join.Group += of.oneByOne + of.byParts
	}
}

// joinedReplies returns the replies that a short script would give to n attempts, from its reply to all of
// them: see limit/sliding_window.lua.
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
				replies[i] = fmt.Sprint(left, stamp, resets)
			} else { // refused
				replies[i] = answer
			}
		}
		return replies
	}
	return nil
}

// askLong are actors whose log the short script has left to the long one a moment ago: during a deployment
// each of two releases finds the other's limits there. For a second they are spared the call of the short
// one.
type askLong struct {
	until [256]atomic.Int64 // by the hash of the tag: its upper bits, and milliseconds since 1970
}

const (
	millisBits  = 42 // of the milliseconds
	askLongTime = 1000
)

// add notes a tag at a moment, in microseconds of the clock by which the limiter counts inside the process.
func (u *askLong) add(tag string, now int64) {
	h := maphash.String(memorySeed, tag)
	until := (now/1000 + askLongTime) & (1<<millisBits - 1)
	u.until[h%uint64(len(u.until))].Store(int64(h>>millisBits<<millisBits) | until)
}

// has reports whether a tag was noted less than a second before now, which is asked for only if it may be.
func (u *askLong) has(tag string, now func() int64) bool {
	h := maphash.String(memorySeed, tag)
	slot := u.until[h%uint64(len(u.until))].Load()
	if slot == 0 || uint64(slot)>>millisBits != h>>millisBits {
		return false
	}
	rest := slot&(1<<millisBits-1) - now()/1000
	return 0 < rest && rest <= askLongTime // else the clock was set back
}
