package pipeline

import (
	"fmt"
	"hash/fnv"
	"math"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/pipeline/answers"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Rollout enables a rule for a part of the clients while it is introduced. It may be changed while requests
// are served. A report then shows a wrong limit before it harms legitimate users.
//
//	try := pipeline.Shadow()
//	rule := pipeline.Rule{
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

// cohort is the group of clients that a rule treats alike.
type cohort int

const (
	cohortEnforced cohort = iota
	cohortShadowed
	cohortSkipped
)

// cohort returns the cohort of the request's client.
func (r *mounted) cohort(req *keyfuncs.Request) cohort {
	shares, off := r.Rollout.inForce()
	switch {
	case off:
		return cohortSkipped
	case shares == 0:
		return cohortEnforced
	}
	at := uint64(wholeShare - 1)
	if actor, err := r.actor(req); err == nil {
		at = cohortNumber(r.name, actor)
	}
	switch {
	case at < wholeShare-shares&math.MaxUint32:
		return cohortEnforced
	case at < wholeShare-shares>>32:
		return cohortShadowed
	}
	return cohortSkipped
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

// note counts the result of a request, and returns the refusal to answer with, if any.
func (r *Rollout) note(c cohort, refusal *answers.Refusal) *answers.Refusal {
	switch {
	case c == cohortSkipped:
		r.skipped.Add(1)
	case refusal == nil:
		r.passed.Add(1)
	case c == cohortShadowed:
		r.wouldRefuse.Add(1)
		return nil
	default:
		r.refused.Add(1)
	}
	return refusal
}
