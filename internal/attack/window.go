package attack

import (
	"slices"
	"sort"
	"time"
)

// Admission is a unit that was admitted at an unknown moment between two known ones.
type Admission struct{ After, Before time.Time }

// MostIn returns how many of the units were certainly admitted in some window of the length: the true number
// may be larger, but not smaller. The order of the units does not matter.
func MostIn(window time.Duration, admitted []Admission) int {
	units, ends := slices.Clone(admitted), slices.Clone(admitted)
	slices.SortFunc(units, func(a, b Admission) int { return b.After.Compare(a.After) })
	slices.SortFunc(ends, func(a, b Admission) int { return a.Before.Compare(b.Before) })
	rank := func(t time.Time) int { // how many units end before t
		return sort.Search(len(ends), func(i int) bool { return !ends[i].Before.Before(t) })
	}
	// The units are added from the last that began to the first, so that all in the tree began after the one
	// that opens the window.
	tree, most := make(fenwick, len(ends)+1), 0
	for begin := 0; begin < len(units); {
		end := begin
		for end < len(units) && units[end].After.Equal(units[begin].After) {
			tree.add(rank(units[end].Before) + 1)
			end++
		}
		most = max(most, tree.sum(rank(units[begin].After.Add(window))))
		begin = end
	}
	return most
}

// fenwick is a binary indexed tree: numbers of units by rank, beginning with 1.
type fenwick []int

func (f fenwick) add(rank int) {
	for ; rank < len(f); rank += rank & -rank {
		f[rank]++
	}
}

// sum returns the number of units of ranks up to this one.
func (f fenwick) sum(rank int) (sum int) {
	for ; rank > 0; rank -= rank & -rank {
		sum += f[rank]
	}
	return sum
}
