package mounted

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
)

// sameRequest is the default of Rule.Which for guards that keep outcomes. It tells whether two requests are
// the same.
var sameRequest = keyfuncs.Fingerprint()

// New checks a rule, and asks its guard once for its traits.
func New(of rule.Rule) (*Rule, error) {
	if err := of.Check(); err != nil {
		name := "no guard"
		if !rule.IsNil(of.Guard) {
			name = fmt.Sprintf("guard %q", of.Guard.Name())
		}
		return nil, fmt.Errorf("(%s) %w", name, err)
	}
	if counted := slices.Clone(of.Counted); counted != nil {
		of.Failed = func(status int) bool { return !slices.Contains(counted, status) }
	}
	of.Under = slices.Clone(of.Under) // as it was checked
	r := &Rule{Rule: of, Name: of.Guard.Name(), Traits: of.Guard.Traits(), Table: answers.TableOf(of.Guard)}
	r.Source = answers.Source{Logger: r.Logger, Name: r.Name, Traits: r.Traits, Headers: of.Headers,
		Texts: of.Texts}
	phased, joins := kit.PhasesOf(of.Guard)
	r.Counts, r.Places = phased != nil && r.Traits.KeepsOnFailure, !r.Traits.KeepsOnFailure
	if joins {
		r.Phases = phased
	}
	r.Local, _ = of.Guard.(kit.LocalGuard)
	r.Holder, _ = of.Guard.(kit.Holder)
	if of.Which == nil && r.Traits.KeepsOutcome {
		r.Which = sameRequest
	}
	r.runs, r.ReadsBody = runsOf(&of), readsBody(&r.Rule)
	r.stages, r.has = r.stagesOf(), r.partsOf()
	r.logins = loginsOf(of.Who)
	if of.Bans != nil {
		r.bans = answers.TableOf(of.Bans)
	}
	return r, nil
}

// readsBody reports whether a function of the rule reads the request's body. A Cost is assumed to read it.
func readsBody(r *rule.Rule) bool {
	all := append([]keyfuncs.Func{r.Who, r.What, r.Which, r.ID, r.Origin}, r.Under...)
	for _, list := range []*keyfuncs.List{r.Deny, r.Allow} {
		if list != nil {
			all = append(all, list.Key())
		}
	}
	return r.Cost != nil || slices.ContainsFunc(all, keyfuncs.ReadsBody)
}

// stagesOf returns the stages that the rule needs.
func (r *Rule) stagesOf() []stage {
	return needed(map[stage]bool{
		stageRollout: r.Rollout != nil, stageLists: r.Deny != nil || r.Allow != nil,
		stagePreflight: !r.CountPreflights, stageAttempt: true,
	})
}

// needed returns what is needed of all, in order.
func needed[T cmp.Ordered](all map[T]bool) []T {
	maps.DeleteFunc(all, func(_ T, needed bool) bool { return !needed })
	return slices.Sorted(maps.Keys(all))
}

// partsOf returns the parts that the rule's attempts have.
func (r *Rule) partsOf() []part {
	return needed(map[part]bool{
		partResource: r.What != nil, partID: r.ID != nil, partItem: r.Which != nil, partCost: r.Cost != nil,
		partToken: r.Traits.KeepsToken, partOrigin: r.Origin != nil,
	})
}
