// Package replay is the command replay: it passes the requests of access logs through rules.
package replay

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/internal/accesslog"
)

// sorted is how many lines are held to put them in order.
const sorted = 8192

// Command is the command replay.
var Command = cli.Command{Name: "replay", Args: "[flags] RULES LOG ...",
	Does: "what rules would have done to the requests of access logs", Run: replay}

func replay(ctx context.Context, e *cli.Env) error {
	var f flags
	f.register(e.Flags)
	operands, err := e.Operands()
	if err != nil {
		return err
	}
	switch {
	case len(operands) < 2:
		return cli.Usagef("%d operands: name the file of rules, and then the logs, - for standard input",
			len(operands))
	case e.JSON && f.csv:
		return cli.Usagef("-json and -csv: choose one of them")
	case f.top < 0:
		return cli.Usagef("-top is %d", f.top)
	}
	logs, err := openLogs(e, operands[1:])
	defer logs.close()
	if err != nil {
		return err
	}
	r := &replayer{ctx: ctx, flags: &f, report: &report{Rules: operands[0]},
		bar: newBar(e.Errs, logs)}
	for i := 0; err == nil && i < len(logs.files); i++ {
		err = r.read(ctx, logs.names[i], logs.files[i])
	}
	if err == nil {
		err = r.finish()
	}
	if r.bar.clear(); err != nil {
		return err
	}
	text := r.report.write
	if f.csv {
		text = r.report.writeCSV
	}
	return e.Write(r.report, text)
}

// replayer passes the requests of the logs through the rules in the order of their times.
type replayer struct {
	ctx      context.Context
	flags    *flags
	report   *report
	bar      *bar
	plan     *plan
	requests *requests
	worlds   []*world // with the rules of the file: one for all mounts, or one for each list
	swept    [][]*world
	held     entries
	count    int
	latest   time.Time // that was decided
	newest   time.Time // that was read
	// decided is told what each world made of a request, in tests.
	decided func(e *accesslog.Entry, w *world)
}

// read reads a log.
func (r *replayer) read(ctx context.Context, name string, from io.Reader) error {
	in, err := accesslog.NewReader(from, accesslog.Options{Format: r.flags.format, Roles: r.flags.roles,
		Layouts: r.flags.layouts, Wanted: r.flags.wanted()})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var seen logged
	for {
		entry, err := in.Next()
		if err != nil { // the end: Next counts whatever else goes wrong
			r.report.addLog(name, in)
			if err := cmp.Or(ctx.Err(), seen.doubt(in)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		}
		if r.plan == nil {
			if err := r.begin(in); err != nil {
				return err
			}
		}
		seen.add(&entry)
		r.hold(entry)
		if r.count++; r.count%4096 == 0 {
			r.bar.show(r.count)
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
}

// begin makes the rules, when it is known which fields the log has.
func (r *replayer) begin(in *accesslog.Reader) error {
	var err error
	if r.plan, err = newPlan(r.report.Rules, r.flags, in); err != nil {
		return err
	}
	r.requests = newRequests(r.flags)
	scenes := [][]mount{r.flags.mounts}
	if len(r.flags.mounts) == 0 {
		scenes = nil
		for _, list := range r.plan.lists { // each as if it were the only one
			scenes = append(scenes, []mount{{list: list.name}})
		}
	}
	for i, mounts := range scenes {
		scenes[i] = slices.DeleteFunc(slices.Clone(mounts), func(m mount) bool {
			return r.plan.planned(m.list) == nil
		})
	}
	newWorlds := func(s *sweep) (worlds []*world, err error) {
		for _, mounts := range scenes {
			w, err := r.plan.newWorld(mounts, s)
			if err != nil {
				return nil, err
			}
			worlds = append(worlds, w)
		}
		return worlds, nil
	}
	if r.worlds, err = newWorlds(nil); err != nil {
		return err
	}
	for i := range r.plan.sweeps {
		worlds, err := newWorlds(&r.plan.sweeps[i])
		if err != nil {
			return err
		}
		r.swept = append(r.swept, worlds)
	}
	return nil
}

// hold puts a request among those that wait for earlier ones, and decides the earliest if there are enough.
func (r *replayer) hold(e accesslog.Entry) {
	if e.Time.Before(r.newest) {
		r.report.OutOfOrder++
	} else {
		r.newest = e.Time
	}
	heap.Push(&r.held, held{e, r.count})
	if len(r.held) > sorted {
		r.decide(heap.Pop(&r.held).(held).Entry)
	}
}

// finish decides those that are held, and completes the report.
func (r *replayer) finish() error {
	for len(r.held) > 0 {
		r.decide(heap.Pop(&r.held).(held).Entry)
	}
	switch {
	case r.count == 0:
		return errors.New("the logs have no requests")
	case r.report.Unusable > r.report.Requests:
		return fmt.Errorf("%d of %s have a target that is no URL", r.report.Unusable, cli.Count(r.count, "request"))
	}
	r.complete()
	return nil
}

// complete takes what the worlds have counted into the report.
func (r *replayer) complete() {
	p := r.report
	p.NotReplayed = r.plan.skipped
	if len(r.flags.mounts) == 0 && len(r.plan.lists) > 1 {
		p.Notes = append(p.Notes, r.plan.alone())
	}
	for _, w := range r.worlds {
		p.Results = append(p.Results, w.results(r.plan, p)...)
	}
	for i, worlds := range r.swept {
		for _, w := range worlds {
			for _, one := range w.results(r.plan, p) {
				if one.Guard == r.plan.sweeps[i].guard {
					one.Limits, one.Actors, one.Top, one.Notes = r.plan.sweeps[i].limits, 0, nil, nil
					p.Sweeps = append(p.Sweeps, one)
				}
			}
		}
	}
}

// decide passes a request through the rules. A request that comes too late to be put in order counts at the
// latest time.
func (r *replayer) decide(e accesslog.Entry) {
	if e.Time.Before(r.latest) {
		r.report.Late++
		e.Time = r.latest
	}
	r.latest = e.Time
	request, err := r.requests.request(r.ctx, &e)
	if err != nil {
		r.report.Unusable++
		return
	}
	status := max(e.Status, http.StatusOK)
	r.report.add(&e)
	for _, w := range r.worlds {
		w.serve(request, e.Time, status)
		if r.decided != nil {
			r.decided(&e, w)
		}
	}
	for _, worlds := range r.swept {
		for _, w := range worlds {
			w.serve(request, e.Time, status)
		}
	}
}

// held is a request that waits for earlier ones.
type held struct {
	accesslog.Entry
	number int
}

// entries is a heap of requests by time, and by their place in the log.
type entries []held

func (h entries) Len() int { return len(h) }
func (h entries) Less(i, j int) bool {
	if !h[i].Time.Equal(h[j].Time) {
		return h[i].Time.Before(h[j].Time)
	}
	return h[i].number < h[j].number
}
func (h entries) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *entries) Push(x any) { *h = append(*h, x.(held)) }

// Pop implements heap.Interface.
func (h *entries) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = held{}
	*h = (*h)[:last]
	return x
}
