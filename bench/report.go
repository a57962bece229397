package bench

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// report writes the results as Markdown. It names nothing about the machine but what readers need.
type report struct{ strings.Builder }

func (r *report) line(format string, args ...any) { _, _ = fmt.Fprintf(r, format+"\n", args...) }

// row writes a row of a table.
func (r *report) row(cells ...string) { r.line("| %s |", strings.Join(cells, " | ")) }

// head writes the first rows of a table: the names of its columns, of which the first holds text and the
// others numbers.
func (r *report) head(columns ...string) {
	r.line("")
	r.row(columns...)
	r.line("|---|%s", strings.Repeat("---:|", len(columns)-1))
}

// required finds the modules that a go.mod requires directly, with their versions.
var required = regexp.MustCompile(`(?m)^\t(\S+ v\S+)$`)

// preface says what was measured and with what, and how to read it.
func (r *report) preface(ctx context.Context, rdb *redis.Client, c config) error {
	info, err := rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	r.line("# Results\n\nWritten by `make bench` on %s: %s, Redis %s, %d CPUs for the callers and the server "+
		"together;\n"+
		"%d rounds, %v per turn, seed %d. With:\n", time.Now().UTC().Format(time.DateOnly), runtime.Version(),
		info["Server"]["redis_version"], runtime.NumCPU(), c.rounds, c.turn, c.seed)
	for _, module := range required.FindAllStringSubmatch(string(mod), -1) {
		if !strings.HasPrefix(module[1], "github.com/gatehouse-go/") {
			r.line("- %s", module[1])
		}
	}
	r.line(`
Read the ratios, written ×: one call takes as long as this many calls of the floor, in the same run. The times
depend on the machine, the day and the other load. Each number is the median over the rounds. "allowed, 16"
means 16 callers whose calls are allowed. README.md says what is measured, and where the comparison is not fair.`)
	return nil
}

// results writes the measurements of a group: the ratios first, then each load.
func (r *report) results(g group, c config, runners []*runner) {
	r.line("\n## %s", g.name)
	r.ratios("wall time of a call", runners, func(s *series) []float64 { return s.perCall })
	if g.redis != nil {
		r.ratios("the server's CPU time of a call", runners, func(s *series) []float64 { return s.cpu })
	}
	if g.claims {
		r.head("memory", fmt.Sprintf("bytes in Redis per claimant, of %d", c.crowd),
			"more bytes, kept for an hour at most for retries")
	} else {
		r.head("the limit", fmt.Sprintf("most admitted in any window / %d", attackUnits),
			fmt.Sprintf("bytes per key in Redis after %d units", c.units))
	}
	meant := 1.0
	for _, s := range runners {
		if g.claims {
			r.row(s.name, each(s.bytes-s.passing, c.crowd), each(s.passing, c.crowd))
		} else {
			r.row(s.name, unlessZero("%.2f", float64(s.admitted)/attackUnits), unlessZero("%.0f", float64(s.bytes)))
		}
		for _, m := range s.measured {
			meant = min(meant, float64(m.meant)/float64(m.calls))
		}
	}
	r.line("\nUnder each load, at least %.1f %% of the calls of each subject were answered as the load's "+
		"name says.", 100*meant)
	for _, l := range loads {
		r.load(g, l, runners)
	}
}

// overheads writes what a limit costs a whole web application.
func (r *report) overheads(all []site, measured []pace) {
	r.line("\n## In front of a page\n\nRequests per second through a whole server on loopback, from wrk with " +
		"16 connections, and their ratio to those of the " +
		"same page\nwithout a limit, measured right before. More is better here.")
	r.head("limit", "allowed, per second", "× no limit", "refused, per second", "× no limit")
	for i := 0; i < len(all); i++ {
		s := all[i]
		if i == 0 || s.framework != all[i-1].framework {
			r.row(s.framework+", "+s.limit, fmt.Sprintf("%.0f", median(measured[i].rates)), "1.00×", "–", "–")
			continue
		}
		cells := []string{s.framework + ", " + s.limit}
		for ; i < len(all) && all[i].framework == s.framework && all[i].limit == s.limit; i++ {
			cells = append(cells, fmt.Sprintf("%.0f", median(measured[i].rates)),
				times(measured[i].rates, measured[i].floor))
		}
		i--
		r.row(cells...)
	}
}

// ratios writes a table of a value divided by the floor's value, under all loads.
func (r *report) ratios(what string, runners []*runner, value func(*series) []float64) {
	columns := []string{what + ", × floor"}
	for _, l := range loads {
		columns = append(columns, l.String())
	}
	r.head(columns...)
	for _, s := range runners {
		cells := []string{s.name}
		for _, l := range loads {
			cells = append(cells, times(value(s.measured[l]), value(runners[0].measured[l])))
		}
		r.row(cells...)
	}
}

// load writes all measurements under one load.
func (r *report) load(g group, l load, runners []*runner) {
	columns := []string{strings.ToLower(g.name) + ": " + l.String(), "ns per call", "calls per second",
		"× floor", "p99 µs"}
	if g.redis != nil {
		columns = append(columns, "server CPU µs", "× floor", "scripts µs", "× floor")
	}
	r.head(columns...)
	floor := runners[0].measured[l]
	for _, s := range runners {
		m := s.measured[l]
		perCall := median(m.perCall)
		cells := []string{
			s.name, fmt.Sprintf("%.0f", perCall), fmt.Sprintf("%.0f", 1e9/perCall), times(m.perCall, floor.perCall),
			fmt.Sprintf("%.1f", median(m.p99)),
		}
		if g.redis != nil {
			cells = append(cells, fmt.Sprintf("%.1f", median(m.cpu)), times(m.cpu, floor.cpu),
				unlessZero("%.1f", median(m.script)), times(m.script, floor.script))
		}
		r.row(cells...)
	}
}

func (l load) String() string {
	answer := "allowed"
	if l.refused {
		answer = "refused"
	}
	return fmt.Sprintf("%s, %d", answer, l.callers)
}

func times(values, floor []float64) string { return unlessZero("%.2f×", ratio(values, floor)) }

// each returns the bytes per member of a crowd.
func each(bytes int64, crowd int) string { return unlessZero("%.0f", float64(bytes)/float64(crowd)) }

// unlessZero formats a value, or returns a dash for zero.
func unlessZero(format string, value float64) string {
	if value == 0 {
		return "–"
	}
	return fmt.Sprintf(format, value)
}
