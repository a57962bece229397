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
		"%d rounds, %v per turn, seed %d. [How to read it](../README.md#how-to-read-the-results).", part, part,
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

// results writes the measurements of a group: the ratios first, then each load.
func (r *report) results(g group, runners []*runner) {
	r.line("\n## %s", g.name)
	r.ratios(g, "wall time of a call", runners, func(s *series) []float64 { return s.perCall })
	r.ratios(g, "CPU time of the callers' process", runners, func(s *series) []float64 { return s.own })
	if g.redis != nil {
		r.ratios(g, "CPU time of the server", runners, func(s *series) []float64 { return s.cpu })
	}
	meant := 1.0
	for _, s := range runners {
		for _, m := range s.measured {
			meant = min(meant, float64(m.meant)/float64(m.calls))
		}
	}
	r.line("\nUnder each load, at least %.1f %% of the calls of each subject were answered as the load's "+
		"name says.", 100*meant)
	for _, l := range g.loads {
		r.load(g, l, runners)
	}
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

Requests per second through a whole server on loopback, from wrk with 16 connections, and the CPU time of the
server's process per request. Ratios are to the same page without a limit, measured right before: of requests
more is better, of CPU time less.`)
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

// ratios writes a table of a value divided by the floor's value, under all loads.
func (r *report) ratios(g group, what string, runners []*runner, value func(*series) []float64) {
	columns := []string{what + ", × floor"}
	for _, l := range g.loads {
		columns = append(columns, l.String())
	}
	r.head(columns...)
	for _, s := range runners {
		cells := []string{s.name}
		for _, l := range g.loads {
			cells = append(cells, times(value(s.measured[l]), value(runners[0].measured[l])))
		}
		r.row(cells...)
	}
}

// load writes all measurements under one load. Their ratios stand in the tables of ratios, but for those of
// the scripts.
func (r *report) load(g group, l load, runners []*runner) {
	columns := []string{strings.ToLower(g.name) + ": " + l.String(), "ns per call", "p99 µs", "own CPU µs"}
	if g.redis != nil {
		columns = append(columns, "server CPU µs", "scripts µs", "× floor")
	}
	r.head(columns...)
	floor := runners[0].measured[l]
	for _, s := range runners {
		m := s.measured[l]
		cells := []string{s.name, fmt.Sprintf("%.0f", median(m.perCall)), fmt.Sprintf("%.1f", median(m.p99)),
			fmt.Sprintf("%.3f", median(m.own))}
		if g.redis != nil {
			cells = append(cells, fmt.Sprintf("%.1f", median(m.cpu)), unlessZero("%.1f", median(m.script)),
				times(m.script, floor.script))
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
