package bench

import (
	"context"
	"fmt"
	"os"
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

// preface says with what it was measured. The versions of the libraries are those of go.mod.
func (r *report) preface(ctx context.Context, rdb *redis.Client, c config, part string) error {
	info, err := rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	r.line("# Results: %s\n\nWritten by `make bench BENCHFLAGS='-only %s'` on %s: %s, Redis %s, %d CPUs%s;\n"+
		"%d rounds, %v per turn, seed %d. How to read it: proofs/bench/README.md.", part, part,
		time.Now().UTC().Format(time.DateOnly), runtime.Version(), info["Server"]["redis_version"],
		runtime.NumCPU(), busy(), c.rounds, c.turn, c.seed)
	return nil
}

// busy says what else the machine does, where the system tells: the average number of programs that want a
// CPU, over the last minute.
func busy() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	load, _, _ := strings.Cut(string(text), " ")
	return ", load average " + load
}

// results writes the measurements of a group: a table for each.
func (r *report) results(g group, runners []*runner) {
	r.line("\n## %s", g.name)
	r.measured(g, runners, "wall time of a call, ns", "%.0f", func(s *series) []float64 { return s.perCall })
	r.measured(g, runners, "CPU time of the callers' process, µs", "%.3f",
		func(s *series) []float64 { return s.own })
	if g.redis != nil {
		r.measured(g, runners, "CPU time of the server, µs", "%.1f", func(s *series) []float64 { return s.cpu })
	}
	r.measured(g, runners, "p99 of a call, µs", "%.1f", func(s *series) []float64 { return s.p99 })
	meant := 1.0
	for _, s := range runners {
		for _, m := range s.measured {
			meant = min(meant, float64(m.meant)/float64(m.calls))
		}
	}
	r.line("\nUnder each load, at least %.1f %% of the calls of each subject were answered as the load's "+
		"name says.", 100*meant)
}

// attacks writes what the limiters of a group admit at most.
func (r *report) attacks(g group, names []string, most []int) {
	r.line("\n## %s", g.name)
	r.head("the limit", fmt.Sprintf("most admitted in any window / %d", attackUnits))
	for i, name := range names {
		r.row(name, fmt.Sprintf("%.2f", float64(most[i])/attackUnits))
	}
}

// overheads writes what a limit costs a whole web application.
func (r *report) overheads(all []site, measured []paces) {
	r.line(`
## In front of a page

Requests per second through a whole server on loopback, from wrk with 16 connections or 64, and the CPU time
of the server's process per request. Ratios are to the same page without a limit, measured right before: of
requests more is better, of CPU time less.`)
	r.head("limit", "allowed, per second", "× no limit", "CPU µs", "× no limit",
		"refused, per second", "× no limit", "CPU µs", "× no limit")
	for i := 0; i < len(all); {
		s := all[i]
		cells := []string{s.framework + ", " + s.limit}
		for ; i < len(all) && all[i].framework == s.framework && all[i].limit == s.limit; i++ {
			cells = append(cells, measured[i].cells()...)
		}
		if len(cells) == 5 { // it refuses nothing
			cells = append(cells, "–", "–", "–", "–")
		}
		r.row(cells...)
	}
}

func (p *paces) cells() []string {
	return []string{
		fmt.Sprintf("%.0f", median(rates(p.own))), times(rates(p.own), rates(p.floor)),
		fmt.Sprintf("%.1f", median(cpus(p.own))), times(cpus(p.own), cpus(p.floor)),
	}
}

// measured writes a table of a value under all loads, and, but for a percentile, of its ratio to the floor's.
func (r *report) measured(
	g group, runners []*runner, what, format string, value func(*series) []float64,
) {
	percentile := strings.HasPrefix(what, "p99")
	columns := []string{what + ", × floor"}
	if percentile {
		columns[0] = what
	}
	for _, l := range g.loads {
		columns = append(columns, l.String())
	}
	r.head(columns...)
	for _, s := range runners {
		cells := []string{s.name}
		for _, l := range g.loads {
			values := value(s.measured[l])
			cell := unlessZero(format, median(values))
			if !percentile && median(values) != 0 {
				cell += ", " + times(values, value(runners[0].measured[l]))
			}
			cells = append(cells, cell)
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
