package operator

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// nameMost is how many bytes of a name are kept: it may come from a client.
const nameMost = 256

// halved is how often the counts of actors are halved, so that those of now are in front.
const halved = 10 * time.Minute

// actors is who attempts most at a guard: the space-saving sketch (Metwally, Agrawal, El Abbadi, 2005). A new
// actor takes the place of the one with the fewest attempts, and that one's count. Whoever makes more than a
// 64th of all attempts is in it. Beside it are those who are banned, whom others would displace.
type actors struct {
	mu     sync.Mutex
	places map[place]*actor
	all    []*actor // those of places, to find the one with the fewest attempts without walking a map
	banned map[string]*actor
	halved time.Time
}

// place is what a guard counts by.
type place struct{ actor, resource string }

// actor is what is known of an actor at a resource.
type actor struct {
	place
	item     string // of the last attempt
	cut      bool   // a name was too long, so nothing can be asked about it
	attempts uint64 // and those of actors whose place it took: maybe too many
	refused  uint64
	reason   core.Reason // of the last refusal
	until    time.Time   // when it ends; zero: the last attempt was allowed, or unknown
}

func (a *actors) note(d *core.Decision, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.places == nil {
		a.places, a.banned, a.halved = make(map[place]*actor, actorsMost), map[string]*actor{}, now
	}
	if now.Sub(a.halved) >= halved {
		a.halve(now)
	}
	one := a.at(&d.Attempt)
	one.attempts++
	one.until = time.Time{}
	if d.Allowed {
		return
	}
	one.refused++
	one.reason = d.Reason
	if d.RetryAfter > 0 {
		one.until = now.Add(d.RetryAfter)
	}
	if d.Reason == core.ReasonBanned {
		a.ban(one, now)
	}
}

// at returns the actor of an attempt, who may take the place of another one.
func (a *actors) at(attempt *core.Attempt) *actor {
	key := place{attempt.Actor, attempt.Resource}
	isLong := len(key.actor) > nameMost || len(key.resource) > nameMost || len(attempt.Item) > nameMost
	if isLong {
		key = place{head(key.actor), head(key.resource)}
	}
	one := a.places[key]
	if one == nil {
		one = new(actor)
		if len(a.all) < actorsMost {
			a.all = append(a.all, one)
		} else {
			one = slices.MinFunc(a.all, func(x, y *actor) int { return cmp.Compare(x.attempts, y.attempts) })
			delete(a.places, one.place)
			*one = actor{attempts: one.attempts}
		}
		// copies, since the texts may be parts of a whole request
		one.place = place{strings.Clone(key.actor), strings.Clone(key.resource)}
		a.places[one.place] = one
	}
	one.cut = isLong
	if one.item != attempt.Item {
		one.item = strings.Clone(head(attempt.Item))
	}
	return one
}

func head(text string) string { return text[:min(len(text), nameMost)] }

// ban keeps a banned actor, in place of the one whose ban ends first.
func (a *actors) ban(one *actor, now time.Time) {
	if a.banned[one.actor] == nil && len(a.banned) >= actorsMost {
		first := one
		for name, other := range a.banned {
			if !other.until.After(now) {
				delete(a.banned, name)
			} else if other.until.Before(first.until) {
				first = other
			}
		}
		if len(a.banned) >= actorsMost {
			if first == one {
				return
			}
			delete(a.banned, first.actor)
		}
	}
	kept := *one
	a.banned[one.actor] = &kept
}

// free forgets that the actor of an attempt is refused. A ban concerns the actor alone. A reset also has a
// resource.
func (a *actors) free(attempt *core.Attempt) {
	key := place{head(attempt.Actor), head(attempt.Resource)}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.banned, key.actor)
	for _, one := range a.all {
		if one.actor == key.actor && (one.reason == core.ReasonBanned || one.resource == key.resource) {
			one.until = time.Time{}
		}
	}
}

func (a *actors) halve(now time.Time) {
	a.halved = now
	a.all = slices.DeleteFunc(a.all, func(one *actor) bool {
		one.attempts /= 2
		one.refused /= 2
		if one.attempts == 0 {
			delete(a.places, one.place)
		}
		return one.attempts == 0
	})
}

// list returns the actors: first those that are refused now, then by their attempts.
func (a *actors) list(now time.Time) []actor {
	a.mu.Lock()
	all := make([]actor, 0, len(a.places)+len(a.banned))
	for _, one := range a.banned {
		if one.until.After(now) {
			all = append(all, *one)
		}
	}
	for _, one := range a.all {
		if ban := a.banned[one.actor]; ban == nil || !ban.until.After(now) {
			all = append(all, *one)
		}
	}
	a.mu.Unlock()
	slices.SortFunc(all, func(x, y actor) int {
		if now := cmp.Compare(y.refusedNow(now), x.refusedNow(now)); now != 0 {
			return now
		}
		return cmp.Or(cmp.Compare(y.attempts, x.attempts), cmp.Compare(x.actor, y.actor),
			cmp.Compare(x.resource, y.resource))
	})
	return all
}

// refusedNow is 2 for a banned actor, 1 for an actor that is refused until later than now, and 0 for
// others.
func (a *actor) refusedNow(now time.Time) int {
	switch {
	case !a.until.After(now):
		return 0
	case a.reason == core.ReasonBanned:
		return 2
	}
	return 1
}
