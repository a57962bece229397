package mounted

import (
	"context"
	"slices"

	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// WarnOfOrder warns of a limit or semaphore in front of a narrower one, such as the limit of an
// organisation in front of the limit of its users. Refused requests of one user would take units from all
// users until they are given back. Where the narrower key is read from the body, the broader limit belongs
// in front.
func WarnOfOrder(rules []*Rule) {
	for i, narrow := range rules {
		for _, broad := range rules[:i] {
			if broad.takes() && narrow.takes() && !narrow.ReadsBody && isPart(broad.parts(), narrow.parts()) {
				warn.Broader.Tell(context.Background(), broad.Logger(), broad.Name+" "+narrow.Name,
					"first", narrow.Name, "then", broad.Name)
			}
		}
	}
}

// takes reports whether the guard is a limit or a semaphore.
func (r *Rule) takes() bool {
	_, takes := r.Guard.(kit.Phased)
	return takes
}

// parts returns the names of all that a rule's key is made of, or nil where they are not known.
func (r *Rule) parts() []string {
	all := []string{}
	for _, f := range append(slices.Clone(r.Under), r.Who, r.What) {
		if f == nil {
			continue
		}
		parts := keyfuncs.PartsOf(f)
		if parts == nil {
			return nil
		}
		all = append(all, parts...)
	}
	return all
}

// isPart reports whether all of the broader key's parts, and not only they, are in the narrower key.
func isPart(broad, narrow []string) bool {
	if broad == nil || narrow == nil {
		return false
	}
	missesIn := func(all []string) func(string) bool {
		return func(name string) bool { return !slices.Contains(all, name) }
	}
	return !slices.ContainsFunc(broad, missesIn(narrow)) && slices.ContainsFunc(narrow, missesIn(broad))
}
