package nethttpmw

import (
	"fmt"
	"hash/fnv"
	"math"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Rollout says for whom a rule is on while it is brought in, and may be changed while requests go on. A wrong limit is then seen
// in a report, rather than by honest users.
//
//	try := nethttpmw.Shadow()
//	rule := nethttpmw.Rule{Guard: gate.SlidingWindow("new", core.PerMinute(60)), Who: keyfuncs.IP(), Rollout: try}
//
// Each client (Who) has a fate from 0 to 100 that is the same at all times and in all processes, and another one in each guard. The rule
// is asked about those whose fate is below the enabled percentage. Of these, it refuses those below the enforced one; the others are
// in its shadow: it decides, counts and is observed as ever, with core.Attempt.Shadow set, and then lets them pass. So whoever is refused at
// 10 % is at 50 % too, and no client is in and out by turns. Requests out of which no key can be made have the highest fate: they are
// refused when the rule is enforced for all.
//
// What a shadowed attempt is allowed to take, it takes, and it is settled: a limit in the shadow counts what it would let through.
// To try a new limit beside the one that is in force, put the new one first: when the other refuses, what the new one has taken is given back.
//
// The zero Rollout enforces the rule for all. All methods may be called concurrently. Processes do not know of each other's Rollout.
type Rollout struct {
	shares atomic.Uint64 // those left out, in hundredths of a percent: not enabled, and in the lower half not enforced
	off    atomic.Bool

	skipped, passed, refused, wouldRefuse atomic.Int64
}

// wholeShare is 100 %, the resolution of a share.
const wholeShare = 100_00

// Shadow returns a Rollout that enables a rule for all and enforces it for nobody.
func Shadow() *Rollout {
	r := new(Rollout)
	if err := r.Set(100, 0); err != nil {
		panic(err) // these are right
	}
	return r
}

// Set changes for how many percent of the clients the rule is enabled and, of all clients, enforced; to a hundredth of a percent.
// Percentages outside of 0 to 100, and more enforced than enabled, are an error, and change nothing.
func (r *Rollout) Set(enabled, enforced float64) error {
	if !(enabled >= 0 && enabled <= 100 && enforced >= 0 && enforced <= enabled) { // false for NaN too
		return fmt.Errorf("gatehouse: enabled for %v %%, enforced for %v %%: give percentages from 0 to 100, "+
			"and enforce a rule for no more clients than it is enabled for", enabled, enforced)
	}
	without := func(percent float64) uint64 { return wholeShare - uint64(math.Round(percent*wholeShare/100)) }
	r.shares.Store(without(enabled)<<32 | without(enforced))
	return nil
}

// Switch turns the rule off for all at once, or on again with the percentages that it has.
func (r *Rollout) Switch(on bool) { r.off.Store(!on) }

// RolloutReport says where a Rollout stands, and what has become of the requests since the process began.
type RolloutReport struct {
	// On is what Switch has said last; true before.
	On bool `json:"on"`
	// Enabled and Enforced are percentages of the clients.
	Enabled  float64 `json:"enabled"`
	Enforced float64 `json:"enforced"`

	// Skipped requests were let pass without asking the rule.
	Skipped int64 `json:"skipped"`
	// Passed requests were let pass by the rule, enforced or not.
	Passed int64 `json:"passed"`
	// Refused requests were refused: the rule was enforced.
	Refused int64 `json:"refused"`
	// WouldRefuse counts requests that the rule would have refused had it been enforced. They went on.
	WouldRefuse int64 `json:"would_refuse"`
}

// Report returns where the Rollout stands.
func (r *Rollout) Report() RolloutReport {
	enabled, enforced := r.percentages()
	return RolloutReport{
		On: !r.off.Load(), Enabled: enabled, Enforced: enforced,
		Skipped: r.skipped.Load(), Passed: r.passed.Load(), Refused: r.refused.Load(), WouldRefuse: r.wouldRefuse.Load(),
	}
}

func (r *Rollout) percentages() (enabled, enforced float64) {
	shares := r.shares.Load()
	percent := func(without uint64) float64 { return float64(wholeShare-without) * 100 / wholeShare }
	return percent(shares >> 32), percent(shares & math.MaxUint32)
}

// fate is what a rule does about one client.
type fate int

const (
	fateEnforced fate = iota
	fateShadowed
	fateSkipped
)

// fate returns what the rule does about the request's client.
func (r *mounted) fate(req *keyfuncs.Request) fate {
	if r.Rollout == nil {
		return fateEnforced
	}
	shares := r.Rollout.shares.Load()
	switch {
	case r.Rollout.off.Load():
		return fateSkipped
	case shares == 0:
		return fateEnforced
	}
	at := uint64(wholeShare - 1)
	if actor, err := text("who", r.Who, req); err == nil {
		at = fateOf(r.name, actor)
	}
	switch {
	case at < wholeShare-shares&math.MaxUint32:
		return fateEnforced
	case at < wholeShare-shares>>32:
		return fateShadowed
	}
	return fateSkipped
}

// fateOf is a number below wholeShare for a client of a guard, the same in every process.
func fateOf(guard, actor string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(guard)) // hashes do not fail
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(actor))
	// FNV alone spreads texts that differ in the last byte only over few remainders.
	sum := h.Sum64()
	sum ^= sum >> 33
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	return sum % wholeShare
}

// note counts what has become of a request, and returns what is to be answered.
func (r *Rollout) note(fate fate, refusal *Refusal) *Refusal {
	if r == nil {
		return refusal
	}
	switch {
	case fate == fateSkipped:
		r.skipped.Add(1)
	case refusal == nil:
		r.passed.Add(1)
	case fate == fateShadowed:
		r.wouldRefuse.Add(1)
		return nil
	default:
		r.refused.Add(1)
	}
	return refusal
}
