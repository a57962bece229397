package pipeline

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/pipeline/answers"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// try is a rule of several whose checks may go out together: see kit.Phased.
type try struct {
	entry
	prepared prepared // a copy, since that of other rules takes no allocation
	prepares bool     // the rule was prepared
	asks     bool     // its bans and its guard have to be asked
	asksBans bool     // its bans have to be asked
	fits     bool     // further rules may go along
	at       time.Time
	begun    kit.Prepared // without a Second, the guard is not asked
	ended    bool
}

// askTogether asks rules whose guards are kit.Phased. It returns the rule that refuses the request, if one
// does.
//
// Conclusions are drawn in the order of the rules. So a rule behind one that refuses has no effect: its bans
// count no strike, its Rollout counts nothing, observers are not told of it, and giveBack returns at once
// what its guard took.
func (p *Passage) askTogether(rules []*mounted, ready []prepared) (*mounted, *answers.Refusal) {
	tries := make([]try, len(rules))
	for i, rule := range rules {
		tries[i].rule, tries[i].prepared = rule, ready[i]
	}
	rest := tries // not asked yet
	defer func() {
		if len(rest) > 0 { // a rule refuses, or a function of the application panics
			p.giveBack(rest)
		}
	}()
	for len(rest) > 0 {
		for range p.askSome(rest) {
			t := &rest[0]
			rest = rest[1:]
			if refusal := p.concludeTry(t); refusal != nil {
				return t.rule, refusal
			}
		}
	}
	return nil, nil
}

// askSome asks the first of the rules, and those behind it that go along, and returns how many these are.
func (p *Passage) askSome(rest []try) (asked int) {
	for asked < len(rest) {
		t := &rest[asked]
		t.begin(p, asked > 0, asked+1 < len(rest))
		if !t.fits && asked > 0 {
			break // its turn comes when those in front have answered
		}
		if asked++; !t.fits {
			break
		}
	}
	calls := make([]*script.Call, 0, asked)
	for i := range rest[:asked] {
		if t := &rest[i]; t.begun.Call != nil {
			t.run = t.rule.begin(&t.prepared.attempt)
			calls = append(calls, t.begun.Call)
		}
	}
	if len(calls) == 0 {
		return asked
	}
	script.Send(&p.settling, calls...)
	for i := range rest[:asked] {
		if t := &rest[i]; t.begun.Call != nil {
			t.end(p)
		}
	}
	return asked
}

// begin begins the check of the rule's guard, unless that was done. A rule that goes along with others
// (notFirst) asks its bans in its turn, since observers are told of that.
func (t *try) begin(p *Passage, notFirst, notLast bool) {
	if !t.prepares {
		t.prepares = true
		t.rule.prepare(&p.settling, &p.from, &t.prepared)
		t.asks = t.prepared.asks()
		t.asksBans, t.fits = t.asks && t.rule.Bans != nil, !t.asks && t.prepared.refusal == nil
	}
	if !notFirst {
		t.askBans(p)
	}
	a := &t.prepared.attempt
	if !t.asks || t.begun.Finisher != nil || t.prepared.failed != nil {
		return
	}
	if t.prepared.only {
		t.fits = true // its bans are asked in its turn
		return
	}
	if t.prepared.failed = t.takePlace(); t.prepared.failed != nil {
		t.fits = a.Shadow
		return
	}
	t.at = time.Now()
	t.begun = t.rule.phases.Begin(&p.settling, *a, notFirst, notLast)
	t.fits = t.begun.Batchable || a.Shadow && t.begun.Call == nil
}

// askBans asks the rule's bans, unless that was done. If they refuse, the guard is not asked, and what it
// took goes back.
func (t *try) askBans(p *Passage) {
	if !t.asksBans {
		return
	}
	t.asksBans = false
	d, banned := t.rule.banned(&p.settling, t.prepared.attempt)
	if !banned {
		return
	}
	t.dropped(p)
	if t.decision.Allowed {
		p.settleAll([]settlement{{entry: &t.entry, quiet: true}})
	}
	t.free()
	t.prepared.banned, t.prepared.failed, t.decision = true, nil, d
	t.asks, t.begun, t.fits = false, kit.Prepared{}, t.prepared.attempt.Shadow
}

// dropped ends what was begun and does not count. Observers are told of errors all the same.
func (t *try) dropped(p *Passage) {
	switch {
	case t.begun.Finisher != nil && !t.ended:
		t.begun.Drop()
	case t.ended && t.prepared.failed != nil:
		t.tell(p)
	}
}

// end hears what the guard says.
func (t *try) end(p *Passage) {
	t.ended = true
	t.decision, t.prepared.failed = t.begun.End(&p.settling)
}

// tell tells the guard's observer of the check.
func (t *try) tell(p *Passage) {
	t.prepared.failed = t.rule.phases.Observe(&p.settling, "check", t.at, t.decision, t.prepared.failed)
}

// concludeTry draws the conclusion from what a rule was asked.
func (p *Passage) concludeTry(t *try) *answers.Refusal {
	defer t.freeUnlessAllowed()
	t.askBans(p)
	if t.begun.Finisher != nil {
		if !t.ended {
			t.run = t.rule.begin(&t.prepared.attempt)
			t.end(p)
		}
		t.tell(p)
	}
	return p.conclude(t.rule, &t.prepared, &t.entry)
}

// giveBack rolls back the entries, the latest first, and the early claims of rules behind them.
func (p *Passage) giveBack(early []try) {
	if len(p.entries)+len(early) == 0 {
		return
	}
	back := make([]settlement, 0, len(p.entries)+len(early))
	for i := len(p.entries) - 1; i >= 0; i-- {
		if e := p.entries[i]; !e.settled {
			e.settled = true
			back = append(back, settlement{entry: e})
		}
	}
	for i := range early {
		t := &early[i]
		t.dropped(p)
		back = append(back, settlement{entry: &t.entry, quiet: true})
	}
	kept := back[:0]
	for _, s := range back {
		if s.decision.Allowed && !s.decision.Kept { // else there is nothing to give back, or no way to
			kept = append(kept, s)
		} else {
			s.free()
		}
	}
	p.settleAll(kept)
}

// settleTogether gives back together what the request took of several guards that are kit.Phased, or tells
// them what it has cost.
func (p *Passage) settleTogether() {
	var ends []settlement
	for _, e := range p.entries {
		if e.rule.phases != nil && !e.settled && (!e.kept || e.spending.told()) && !e.confirmed && !e.again {
			ends = append(ends, settlement{entry: e})
		}
	}
	if len(ends) < 2 {
		return
	}
	claimed := ends[:0]
	for _, s := range ends {
		s.settled, s.end = true, s.ending(p)
		if s.claim() {
			claimed = append(claimed, s)
		} else {
			s.free()
		}
	}
	p.settleAll(claimed)
}

// settlement is how an entry ends.
type settlement struct {
	*entry
	end   core.Ending
	quiet bool // the observer is told of errors only
	at    time.Time
	begun kit.Prepared // without a Finisher: the guard's Settle is called
}

// settleAll settles entries. The calls of guards that are kit.Phased go out together.
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
		if s.rule.phases == nil {
			continue
		}
		s.at, s.begun = time.Now(), s.rule.phases.BeginSettle(&p.settling, s.decision, s.end)
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
		err = s.rule.phases.Observe(ctx, "settle", s.at, s.decision, err)
	}
	s.place.Settled(s.rule.Guard, s.decision, s.end, err)
}
