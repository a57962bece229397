package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// part is a part of the benchmark. Each can be run by itself: see the flag -only.
type part struct {
	name string // of its file in the folder of results
	// needs names the program without which the part is left out; with one, it runs in full runs only.
	needs string
	// measure writes the results as Markdown. The Redis is empty.
	measure func(t *testing.T, c config, out *report) error
}

// groupsOn returns all groups of subjects that are called under loads. Another group is another line here.
func groupsOn(ctx context.Context, rdb *redis.Client) []group {
	return []group{
		onRedis(ctx, rdb),
		ofOneMoment(ctx, rdb),
		rulesOfOneRoute(ctx, rdb, "rules", "Rules of one route", rdb),
		rulesOfOneRoute(ctx, rdb, "rules-distant", "Rules of one route, 1 ms away", distant(rdb)),
		inProcess(),
		saleClaims(ctx, rdb),
		voteClaims(ctx, rdb),
		waitingRooms(ctx, rdb),
		atScale(ctx, rdb),
	}
}

// partsOn returns all parts, in the order in which they run.
func partsOn(ctx context.Context, rdb *redis.Client) (all []part) {
	for _, g := range groupsOn(ctx, rdb) {
		all = append(all, part{name: g.part, measure: func(t *testing.T, c config, out *report) error {
			runners, err := g.measure(t.Context(), c)
			if err != nil {
				return err
			}
			out.results(g, runners)
			return complete(g, c, runners)
		}})
	}
	return append(all,
		part{name: "queues", measure: func(t *testing.T, c config, out *report) error {
			return queues(t.Context(), rdb, c, out)
		}},
		part{name: "pages", needs: "wrk", measure: func(t *testing.T, c config, out *report) error {
			sites := sites(t.Context(), rdb)
			measured, err := overhead(t.Context(), sites, c.rounds, c.page, c.seed)
			if err != nil {
				return err
			}
			out.overheads(sites, measured)
			return nil
		}},
		part{name: "gateway", needs: "nginx", measure: func(t *testing.T, c config, out *report) error {
			return gateways(t, rdb, c, out)
		}},
		part{name: "network", measure: network},
		part{name: "allocations", measure: func(t *testing.T, _ config, out *report) error {
			return allocations(t.Context(), rdb, out)
		}},
		part{name: "memory", measure: func(t *testing.T, c config, out *report) error {
			for _, weigh := range []func() error{
				func() error { return weighLimits(t.Context(), usedUp(rdb), c, out) },
				func() error { return weighClaims(t.Context(), saleClaims(t.Context(), rdb), c, out) },
				func() error { return weighClaims(t.Context(), voteClaims(t.Context(), rdb), c, out) },
			} {
				if err := weigh(); err != nil {
					return err
				}
			}
			return nil
		}},
		part{name: "attack", measure: func(t *testing.T, c config, out *report) error {
			for _, g := range []group{onRedis(t.Context(), rdb), inProcess()} {
				names, most, err := g.attack(t.Context(), c.attack)
				if err != nil {
					return err
				}
				out.attacks(g, names, most)
			}
			return nil
		}},
		part{name: "comparison", measure: func(t *testing.T, c config, out *report) error {
			return compare(t, rdb, c, out)
		}},
		part{name: "instructions", needs: "valgrind", measure: instructions},
	)
}

// complete returns an error unless each subject was called in each round under each load, and callers who
// were to be allowed were.
func complete(g group, c config, runners []*runner) error {
	for _, r := range runners {
		for l, m := range r.measured {
			if len(m.perCall) != c.rounds || m.calls == 0 || !l.refused && m.meant != m.calls {
				return fmt.Errorf("%s: %s: %v: %d of %d calls as meant", g.name, r.name, l, m.meant, m.calls)
			}
		}
	}
	return nil
}
