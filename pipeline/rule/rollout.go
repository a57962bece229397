package rule

import (
	"fmt"
	"hash/fnv"
	"math"
	"sync/atomic"
)

// Rollout enables a rule for a part of the clients while it is introduced. It may be changed while requests
// are served. A report then shows a wrong limit before it harms legitimate users.
//
//	try := nethttpmw.Shadow()
//	perIP := nethttpmw.Rule{
//		Guard:   limit.NewSlidingWindow(gate, "new", limit.PerMinute(60)),
//		Who:     keyfuncs.IP(),
//		Rollout: try,
//	}
//
// # Cohorts
//
// Each client (Who) has a number from 0 to 100. A client's number is the same at all times and in all
// processes, and differs between guards. The rule is asked about clients whose number is below the enabled
// percentage. Among these, it refuses clients whose number is below the enforced percentage. The others are
// in the shadow: the rule decides, counts and is observed as usual, with core.Attempt.Shadow set, but does
// not refuse. So a client that is refused at 10 % is also refused at 50 %, and no client changes its cohort
// from request to request. Requests without a usable key have the highest number: they are refused only
// when the rule is enforced for all.
//
// A shadowed attempt takes units if it is allowed, and it is settled: a limit in the shadow counts the
// requests that it would allow. To try a new limit beside an existing one, put the new limit first. When
// the existing limit refuses, the new one gives back what it took.
//
// # Use
//
// The zero Rollout enforces the rule for all. All methods are safe for concurrent use. Each process has its
// own Rollout: a change in one process does not reach the others. Package control changes it in all of them.
type Rollout struct {
	shares atomic.Uint64 // hundredths of a percent: upper half not enabled, lower half not enforced
	off    atomic.Bool
	over   atomic.Pointer[uint64] // shares in place of both; nil: none

	skipped, passed, refused, wouldRefuse atomic.Int64
}

// wholeShare is 100 % in the unit of a share, a hundredth of a percent.
const wholeShare = 100_00

// Shadow returns a Rollout that enables a rule for all clients and enforces it for none.
func Shadow() *Rollout {
	r := new(Rollout)
	if err := r.Set(100, 0); err != nil {
		panic(err) // cannot happen: the percentages are valid
	}
	return r
}

// Set changes for how many percent of all clients the rule is enabled and enforced, to a hundredth of a
// percent. It returns an error, and changes nothing, if a percentage is outside of 0 to 100 or if enforced
// exceeds enabled.
func (r *Rollout) Set(enabled, enforced float64) error {
	shares, err := sharesOf(enabled, enforced)
	if err == nil {
		r.shares.Store(shares)
	}
	return err
}

// Overlay has other percentages in force than those of [Rollout.Set], and the rule on, until
// [Rollout.Uncover]. Its errors are those of Set. Package control calls it.
func (r *Rollout) Overlay(enabled, enforced float64) error {
	shares, err := sharesOf(enabled, enforced)
	if err == nil {
		r.over.Store(&shares)
	}
	return err
}

// Uncover ends an overlay. The last values of [Rollout.Set] and [Rollout.Switch] are in force again.
func (r *Rollout) Uncover() { r.over.Store(nil) }

// inForce returns the shares in force, and whether the rule is off.
func (r *Rollout) inForce() (shares uint64, off bool) {
	if over := r.over.Load(); over != nil {
		return *over, false
	}
	return r.shares.Load(), r.off.Load()
}

func sharesOf(enabled, enforced float64) (uint64, error) {
	if !(enabled >= 0 && enabled <= 100 && enforced >= 0 && enforced <= enabled) { // false for NaN too
		return 0, fmt.Errorf("gatehouse: enabled for %v %%, enforced for %v %%: give percentages from 0 to 100, "+
			"and enforce a rule for no more clients than it is enabled for", enabled, enforced)
	}
	without := func(percent float64) uint64 { return wholeShare - uint64(math.Round(percent*wholeShare/100)) }
	return without(enabled)<<32 | without(enforced), nil
}

// Switch turns the rule off for all clients at once, or on again with its percentages.
func (r *Rollout) Switch(on bool) { r.off.Store(!on) }

// RolloutReport is the state of a Rollout, with the number of requests since the process began.
type RolloutReport struct {
	// On is the last value that Switch was given, and true before that and under an overlay.
	On bool `json:"on"`
	// Enabled and Enforced are percentages of all clients.
	Enabled  float64 `json:"enabled"`
	Enforced float64 `json:"enforced"`

	// Skipped counts requests that passed because the rule was not enabled for the client.
	Skipped int64 `json:"skipped"`
	// Passed counts requests that the rule let pass, enforced or not.
	Passed int64 `json:"passed"`
	// Refused counts requests that the rule refused.
	Refused int64 `json:"refused"`
	// WouldRefuse counts requests that the rule would have refused if it were enforced for the client.
	WouldRefuse int64 `json:"would_refuse"`
}

// Report returns what is in force.
func (r *Rollout) Report() RolloutReport {
	shares, off := r.inForce()
	percent := func(without uint64) float64 { return float64(wholeShare-without) * 100 / wholeShare }
	enabled, enforced := percent(shares>>32), percent(shares&math.MaxUint32)
	return RolloutReport{
		On: !off, Enabled: enabled, Enforced: enforced,
		Skipped: r.skipped.Load(), Passed: r.passed.Load(), Refused: r.refused.Load(),
		WouldRefuse: r.wouldRefuse.Load(),
	}
}

// Cohort is the group of clients that a rule treats alike.
type Cohort int

// The cohorts of a rule.
const (
	CohortEnforced Cohort = iota // the rule refuses
	CohortShadowed               // the rule is asked, and refuses nobody
	CohortSkipped                // the rule is not asked
)

// Of returns the cohort of the client whom who finds, for the rule of a guard. Package pipeline calls it.
func (r *Rollout) Of(guard string, who func() (actor string, err error)) Cohort {
	shares, off := r.inForce()
	switch {
	case off:
		return CohortSkipped
	case shares == 0:
		return CohortEnforced
	}
	at := uint64(wholeShare - 1)
	if actor, err := who(); err == nil {
		at = cohortNumber(guard, actor)
	}
	switch {
	case at < wholeShare-shares&math.MaxUint32:
		return CohortEnforced
	case at < wholeShare-shares>>32:
		return CohortShadowed
	}
	return CohortSkipped
}

// cohortNumber returns the client's number for a guard, below wholeShare. It is the same in every process.
func cohortNumber(guard, actor string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(guard)) // hashes do not fail
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(actor))
	// FNV alone maps strings that differ only in the last byte to few remainders.
	sum := h.Sum64()
	sum ^= sum >> 33
	sum *= 0xff51afd7ed558ccd
	sum ^= sum >> 33
	return sum % wholeShare
}

// Note counts a request of a cohort that the rule has refused or let pass, and reports whether it stays
// refused. Package pipeline calls it.
func (r *Rollout) Note(c Cohort, refused bool) (stays bool) {
	switch {
	case c == CohortSkipped:
		r.skipped.Add(1)
	case !refused:
		r.passed.Add(1)
	case c == CohortShadowed:
		r.wouldRefuse.Add(1)
	default:
		r.refused.Add(1)
		return true
	}
	return false
}
