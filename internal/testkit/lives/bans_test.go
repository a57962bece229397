package lives

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
)

// The definition of bans, after two refusals in ten seconds, of 1, 2 and 4 minutes, with a decay of 10 minutes:
//   - the third strike in ten seconds bans; strikes while banned do not count, and a ban forgets them
//   - each ban of strikes is twice as long as the one before; ten minutes without one forget one doubling
//   - an operator's ban lasts as it says and doubles nothing; BanAtLeast ends no longer one; Unban forgets all
//   - a flush is known to a process after a second
//   - when the clock is set back before a ban's begin, the ban begins anew; nobody is released too early. A ban
//     that is over returns so while it doubles the next one, and not a second later
var _ = explore(life{
	name: "bans", of: []string{"bans"},
	events: alphabet("strike three-strikes bob check ban at-least just-before",
		"unban end window decay hour-earlier flush"),
	same: func(a, b string) bool {
		return a == "check" && b == "check" || (a == "flush" || a == "unban") && (b == "unban" || b == "flush")
	},
	world: func(p *place) world {
		return &bansWorld{place: p, guard: bans.New(p.Engine(), "bans", bans.Options{Refusals: 2, Period: 10 * time.Second,
			First: time.Minute, Longest: 4 * time.Minute, Decay: 10 * time.Minute})}
	},
	row: row{
		over:      "The ban ends; `Unban`.",
		remembers: "How often the next ban is doubled, until it has decayed. `Unban` forgets that, too.",
		forgets:   "The strikes.",
		back:      "-",
	},
})

type bansWorld struct {
	*place
	guard *bans.Guard

	name       string
	strikes    []time.Time
	begins     time.Time // of the last ban
	ends       time.Time
	level      int64 // at the end of the last ban
	bobStrikes int
}

func (w *bansWorld) begin(name string) {
	w.name = name
	w.forget()
}
func (w *bansWorld) end() error { return nil }

func (w *bansWorld) forget() {
	w.strikes, w.begins, w.ends, w.level, w.bobStrikes = nil, time.Time{}, time.Time{}, 0, 0
}

func (w *bansWorld) attempt(who string) core.Attempt { return core.Attempt{Actor: w.name + who} }

func (w *bansWorld) do(event string) (string, error) {
	ctx := context.Background()
	switch event {
	case "strike":
		return w.strike()
	case "three-strikes":
		for range 2 {
			if told, err := w.strike(); err != nil {
				return told, err
			}
		}
		return w.strike()
	case "bob":
		if w.bobStrikes++; w.bobStrikes > 2 {
			return "", errImpossible
		}
		if banned, err := w.guard.Strike(ctx, w.attempt("bob")); err != nil || banned {
			return "", broken("Each actor has strikes of their own", "%t: %v", banned, err)
		}
	case "ban":
		if err := w.guard.Ban(ctx, w.attempt("ann"), 3*time.Minute); err != nil {
			return "", broken("A ban is no error", "%v", err)
		}
		w.decay()
		w.ban(3 * time.Minute)
	case "at-least":
		if err := w.guard.BanAtLeast(ctx, w.attempt("ann"), 2*time.Minute); err != nil {
			return "", broken("A ban is no error", "%v", err)
		}
		w.decay()
		if !w.banned() || w.ends.Sub(w.Now()) < 2*time.Minute {
			w.ban(2 * time.Minute)
		}
	case "unban":
		if err := w.guard.Unban(ctx, w.attempt("ann")); err != nil {
			return "", broken("Unban is no error", "%v", err)
		}
		bob := w.bobStrikes
		w.forget()
		w.bobStrikes = bob
	case "just-before", "end":
		if !w.banned() {
			return "", errImpossible
		}
		at := w.ends
		if event == "just-before" {
			at = at.Add(-time.Microsecond)
		}
		w.PassUntil(at)
	case "window":
		w.Pass(10 * time.Second)
	case "decay":
		w.Pass(10 * time.Minute)
	case "hour-earlier":
		if !w.ends.IsZero() && !w.banned() {
			over := w.Now().Sub(w.ends) - time.Duration(w.level)*10*time.Minute
			if over >= 0 && over <= time.Second {
				return "", errImpossible
			} else if over > 0 {
				w.begins, w.ends, w.level = time.Time{}, time.Time{}, 0
			}
		}
		w.Pass(-time.Hour)
	case "flush":
		w.Flush()
		w.Pass(time.Second) // for which the process trusts what Redis has said
		w.forget()
	}
	return w.check()
}

// banned reports whether ann is banned. It begins a ban anew that is in the future.
func (w *bansWorld) banned() bool {
	now := w.Now()
	if w.begins.After(now) {
		w.begins, w.ends = now, now.Add(w.ends.Sub(w.begins))
	}
	return now.Before(w.ends)
}

// decay forgets doublings.
func (w *bansWorld) decay() {
	if !w.ends.IsZero() && !w.banned() {
		w.level = max(w.level-int64(w.Now().Sub(w.ends)/(10*time.Minute)), 0)
	}
}

func (w *bansWorld) ban(length time.Duration) {
	w.begins, w.ends, w.strikes = w.Now(), w.Now().Add(length), nil
}

// counted returns the strikes that count.
func (w *bansWorld) counted() (counted []time.Time) {
	for _, at := range w.strikes {
		if w.Now().Sub(at) < 10*time.Second && !at.After(w.Now()) {
			counted = append(counted, at)
		}
	}
	return counted
}

func (w *bansWorld) strike() (string, error) {
	banned, err := w.guard.Strike(context.Background(), w.attempt("ann"))
	want := false
	if !w.banned() {
		for _, at := range w.strikes {
			if at.After(w.Now()) { // how old they are is unknown
				w.strikes = nil
				break
			}
		}
		if want = len(w.counted()) == 2; want {
			w.decay()
			length := time.Minute << w.level
			if length < 4*time.Minute {
				w.level++
			}
			w.ban(length)
		} else {
			w.strikes = append(w.strikes, w.Now())
		}
	}
	if err != nil || banned != want {
		return "", broken("The third strike in ten seconds bans", "%t, want %t: %v", banned, want, err)
	}
	return w.check()
}

func (w *bansWorld) check() (string, error) {
	ctx := context.Background()
	d, err := w.guard.Check(ctx, w.attempt("ann"))
	banned := w.banned()
	left := time.Duration(0)
	if banned {
		left = w.ends.Sub(w.Now())
	}
	told := string(d.Reason) + " " + d.RetryAfter.String()
	if err != nil || d.Allowed == banned || d.RetryAfter != left {
		return told, broken("A ban lasts as long as it was told", "want %s: %v", left, err)
	}
	s, err := w.guard.Status(ctx, w.attempt("ann"))
	level := w.level
	if !banned && !w.ends.IsZero() {
		level = max(level-int64(w.Now().Sub(w.ends)/(10*time.Minute)), 0)
	}
	if err != nil || s.Left != left || s.Level != level || s.Strikes != int64(len(w.counted())) {
		return told, broken("The status is what happened", "%+v, want %s, level %d, %d strikes: %v", s, left, level,
			len(w.counted()), err)
	}
	return told, nil
}
