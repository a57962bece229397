package nethttpmw

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
)

// askTogether asks rules whose guards are core.Traits.Early, so that their checks go out together. It returns
// how many it has asked, and the rule that refuses the request, if one does. Rules that it has not asked come
// next.
//
// Conclusions are drawn in the order of the rules. So a rule behind one that refuses has no effect: its bans
// count no strike, its Rollout counts nothing, observers are not told of it, and giveBack returns at once
// what its guard took.
func (p *Passage) askTogether(rules []*mounted, ready []prepared) (asked int, by *mounted, refusal *Refusal) {
	var round core.Round
	tries := make([]try, len(rules))
	for i, rule := range rules {
		tries[i].rule, tries[i].prepared = rule, ready[i]
	}
	rest := tries // whose turn has not come
	defer func() {
		if rest != nil { // a rule refuses, or a function of the application panics
			p.giveBack(rest)
		}
	}()
	made := round.Make(&p.settling, len(tries), func(ctx context.Context, i int) bool {
		t := &tries[i]
		return t.rule.try(ctx, &p.from, &t.prepared, &t.entry)
	})
	for i := range tries {
		switch t := &tries[i]; {
		case i >= made:
			ready[i] = t.prepared // for the next time
			t.free()
		case refusal != nil:
			round.Drop(i)
		default:
			rest = tries[i+1:]
			round.Tell(i)
			if refusal = p.conclude(t.rule, &t.prepared, &t.entry); refusal != nil {
				by = t.rule
			}
			t.freeUnlessAllowed()
		}
	}
	if refusal == nil {
		rest = nil
	}
	return made, by, refusal
}

// try is a rule that is asked together with others.
type try struct {
	entry
	prepared prepared // a copy, since that of other rules takes no allocation
}

// giveBack rolls back what the entries took, the latest first, and what rules behind them took early.
func (p *Passage) giveBack(early []try) {
	if len(p.entries)+len(early) == 0 {
		return
	}
	back := make([]*entry, 0, len(p.entries)+len(early))
	for i := len(p.entries) - 1; i >= 0; i-- {
		if e := p.entries[i]; !e.settled {
			e.settled = true
			back = append(back, e)
		}
	}
	entries := len(back)
	for i := range early {
		if e := &early[i].entry; e.decision.Allowed {
			back = append(back, e)
		} else {
			e.free()
		}
	}
	var round core.Round
	round.Make(&p.settling, len(back), func(ctx context.Context, i int) bool {
		back[i].giveBack(ctx)
		return true
	})
	for i := range back {
		if i < entries {
			round.Tell(i)
		} else {
			round.Drop(i)
		}
	}
}

func (e *entry) giveBack(ctx context.Context) {
	defer e.free()
	if e.decision.Kept {
		return // nothing can give it back any more
	}
	e.place.Settle(ctx, e.rule.Guard, e.decision, core.Rollback)
}

// settleTogether gives back together what the request took of several guards that are core.Traits.Early, or
// tells them what it has cost.
func (p *Passage) settleTogether() {
	var ends []*entry
	for _, e := range p.entries {
		if e.rule.traits.Early && (!e.kept || e.spending.told()) && !e.confirmed {
			ends = append(ends, e)
		}
	}
	if len(ends) < 2 {
		return
	}
	var round core.Round
	defer func() {
		for i := range ends {
			round.Tell(i)
		}
	}()
	round.Make(&p.settling, len(ends), func(ctx context.Context, i int) bool {
		ends[i].settle(ctx, p)
		return true
	})
}
