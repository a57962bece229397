package pipeline

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// settle settles the claims that were not settled before the header was sent: first those that are given back
// together, then the others in the order of the rules, outcomes last.
func (p *Passage) settle() {
	defer p.settleFrom(0) // also if a guard of the application panics
	p.settleTogether()
}

// settleFrom goes through the claims twice, counted by i, and settles those that keep outcomes the second
// time. It reaches every claim even if a guard of the application panics.
func (p *Passage) settleFrom(i int) {
	n := len(p.claims)
	defer func() {
		if i < 2*n { // it panics
			p.settleFrom(i + 1)
		}
	}()
	for ; i < 2*n; i++ {
		if c := &p.claims[i%n]; c.rule.Traits.KeepsOutcome == (i >= n) {
			c.settle(p)
		}
	}
}

// settle tells the guard how the attempt has ended, if that was not done.
func (c *claim) settle(p *Passage) {
	was := c.on(eventClose)
	if was == stateAsked || was == stateSettled {
		return
	}
	end := c.ending(p)
	c.on(eventSettle)
	defer c.free()
	switch was {
	case stateTaken, stateConfirmed: // by others, or before the header was sent
	case stateUnsure:
		c.place.SettleLater(c.rule.Guard, c.decision, end)
	default:
		c.place.Settle(&p.settling, c.rule.Guard, c.decision, end)
	}
}

// ending returns how the attempt ended.
func (c *claim) ending(p *Passage) core.Ending {
	if sum, told := c.spending.end(); told { // spent units stay spent, also if the request failed
		return core.CommitCost(sum)
	}
	switch c.state() {
	case stateKept, stateKeeping, statePending, stateUnsure:
		if c.rule.Traits.KeepsOutcome {
			outcome := p.recording.outcome(int(p.status), c.rule.Traits.MaxBody, !p.aborted)
			outcome.Pending = false // whatever is missing will not come
			return core.CommitWith(outcome)
		}
		return core.Commit
	case stateConfirmed:
		return core.Commit
	case stateRevoked:
		return core.Revoke
	default:
		return core.Rollback
	}
}

// undone adds that the claim is given back, if its guard has taken anything.
func (c *claim) undone(to []settlement) []settlement {
	quiet := c.state() == stateAsked
	switch {
	case c.state() == stateSettled:
		return to
	case c.decision.Allowed && !c.decision.Kept:
		to = append(to, settlement{claim: c, quiet: quiet})
	default: // there is nothing to give back, or no way to
		c.free()
	}
	c.on(eventSettle)
	return to
}

// settleTogether gives back together what the request took of several guards that are kit.Phased, or tells
// them what it has cost.
func (p *Passage) settleTogether() {
	several := 0
	for c := range p.all {
		if c.joins() {
			several++
		}
	}
	if several < 2 {
		return
	}
	ends := make([]settlement, 0, several)
	for c := range p.all {
		if !c.joins() {
			continue
		}
		if c.on(eventClose); c.state() != stateTaken {
			ends = append(ends, settlement{claim: c, end: c.ending(p)})
			c.on(eventSettle)
		}
	}
	p.settleAll(ends)
}

// joins reports whether the claim's ending may go out together with others: it gives something back, or says
// what the request has cost.
func (c *claim) joins() bool {
	if c.rule.Phases == nil {
		return false
	}
	switch c.state() {
	case stateOpen, stateFailed, stateUndoing:
		return true
	case stateKept, stateKeeping:
		return c.spending.told()
	default:
		return false
	}
}

// settlement is how a claim ends.
type settlement struct {
	*claim
	end   core.Ending // zero: core.Rollback
	quiet bool        // the observer is told of errors only
	at    time.Time
	begun kit.Prepared // without a Finisher: the guard's Settle is called
}

// settleAll settles claims. The calls of guards that are kit.Phased go out together.
func (p *Passage) settleAll(all []settlement) {
	ended := 0
	defer func() {
		for i := range all[ended:] { // a guard of the application, or a hook of a client, panics
			all[ended+i].later()
		}
	}()
	calls := make([]*script.Call, 0, len(all))
	for i := range all {
		s := &all[i]
		if s.rule.Phases == nil {
			continue
		}
		s.at, s.begun = time.Now(), s.rule.Phases.BeginSettle(&p.settling, s.decision, s.end)
		if s.begun.Call != nil {
			calls = append(calls, s.begun.Call)
		}
	}
	if len(calls) > 0 {
		script.Send(&p.settling, calls...)
	}
	for i := range all {
		ended++
		all[i].finish(&p.settling)
	}
}

// later leaves the ending to the background.
func (s *settlement) later() {
	if s.begun.Finisher != nil {
		s.begun.Drop()
	}
	s.place.SettleLater(s.rule.Guard, s.decision, s.end)
	s.free()
}

func (s *settlement) finish(ctx context.Context) {
	defer s.free()
	if s.begun.Finisher == nil {
		s.place.Settle(ctx, s.rule.Guard, s.decision, s.end)
		return
	}
	_, err := s.begun.End(ctx)
	if err != nil || !s.quiet {
		err = s.rule.Phases.Observe(ctx, "settle", s.at, s.decision, err)
	}
	s.place.Settled(s.rule.Guard, s.decision, s.end, err)
}
