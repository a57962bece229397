package main

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/config"
	"github.com/gatehouse-go/gatehouse/internal/accesslog"
)

const (
	// sorted is how many lines are held to put them in order.
	sorted = 8192
	// replayActors is how many actors each limit counts at a time.
	replayActors = 1 << 20
)

// replayFlags are the flags of the command replay.
type replayFlags struct {
	format   string
	roles    map[string]string // what of a request: the field of the log
	users    map[string]string // the name under which the login stores the user: the field
	headers  map[string]string // the header field: the field
	keys     map[string]string // the program's key function: the field
	costs    map[string]string // the program's cost function: units, or the field
	mounts   []mountFlag
	layouts  []string
	sweeps   []string
	top      int
	csv      bool
	everyone string // the field of every user
}

// mountFlag is where the program has a list of rules: on the route with the pattern, or around all routes.
type mountFlag struct{ list, pattern string }

func (f *replayFlags) register(fs *flag.FlagSet) {
	f.roles, f.users, f.headers = map[string]string{}, map[string]string{}, map[string]string{}
	f.keys, f.costs = map[string]string{}, map[string]string{}
	fs.StringVar(&f.format, "format", "auto", "the `format` of the log: "+strings.Join(accesslog.Names(), ", ")+
		", a log_format of nginx with its $variables, or auto")
	pairs := func(into map[string]string, bare bool) func(string) error {
		return func(text string) error {
			name, field, ok := strings.Cut(text, "=")
			if !ok && bare && name != "" {
				field = "" // the log does not have it
			} else if !ok || name == "" || field == "" {
				return errors.New("write it as NAME=FIELD")
			}
			into[name] = strings.TrimPrefix(field, "$")
			return nil
		}
	}
	fs.Func("field", "where the log has time, method, uri, status, remote, host, request or duration, as "+
		"`WHAT=FIELD`, a time or duration with its unit: duration=latency:ns; may be repeated", pairs(f.roles, false))
	fs.Func("time", "a `LAYOUT` of times, as package time of Go has it: '02.01.2006 15:04:05'; may be repeated",
		func(text string) error {
			at := time.Date(2026, 11, 24, 10, 20, 30, 0, time.UTC)
			if got, err := time.Parse(text, at.Format(text)); err != nil || !got.Equal(at) {
				return errors.New("write the moment 2006-01-02 15:04:05 as the log would")
			}
			f.layouts = append(f.layouts, text)
			return nil
		})
	fs.Func("user", "the field of the log with the user that the login stores, as `NAME=FIELD`, or FIELD for all "+
		"names; may be repeated", func(text string) error {
		if !strings.Contains(text, "=") && text != "" {
			f.everyone = strings.TrimPrefix(text, "$")
			return nil
		}
		return pairs(f.users, false)(text)
	})
	fs.Func("header", "the field of the log with a header field, as `NAME=FIELD`; may be repeated", pairs(f.headers, false))
	fs.Func("key", "a key function of the program, as `NAME`, or NAME=FIELD with the field of the log that has what "+
		"it finds; may be repeated", pairs(f.keys, true))
	fs.Func("cost", "a cost function of the program, as `NAME`, NAME=UNITS, or NAME=FIELD; may be repeated",
		pairs(f.costs, true))
	fs.Func("mount", "a `LIST` of rules that all requests pass, or LIST=PATTERN for a route, as of http.ServeMux: "+
		"'voting=POST /polls/{poll}/votes'; may be repeated, the outermost first", func(text string) error {
		list, pattern, _ := strings.Cut(text, "=")
		f.mounts = append(f.mounts, mountFlag{list, pattern})
		return nil
	})
	fs.Func("sweep", "other `limits` to try, as a file has them, of the only guard or of GUARD=...: "+
		"'site=5/s, 100/min'; may be repeated", func(text string) error {
		f.sweeps = append(f.sweeps, text)
		return nil
	})
	fs.IntVar(&f.top, "top", 10, "how many actors to name of each rule")
	fs.BoolVar(&f.csv, "csv", false, "write CSV")
}

// wanted returns the fields of the log that flags name.
func (f *replayFlags) wanted() map[string]bool {
	all := map[string]bool{}
	for _, names := range []map[string]string{f.users, f.headers, f.keys, f.costs} {
		for _, field := range names {
			all[field] = true
		}
	}
	if f.everyone != "" {
		all[f.everyone] = true
	}
	return all
}

// options returns the options with which the file is read.
func (f *replayFlags) options() (all []config.Option) {
	for name, field := range f.keys {
		all = append(all, config.WithKey(name, fieldOf(field)))
	}
	for name, source := range f.costs {
		all = append(all, config.WithCost(name, costOf(source)))
	}
	return all
}

func replay(ctx context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error {
	var f replayFlags
	f.register(fs)
	operands, err := parse()
	if err != nil {
		return err
	}
	switch {
	case len(operands) < 2:
		return usagef("%d operands: name the file of rules, and then the logs, - for standard input", len(operands))
	case e.json && f.csv:
		return usagef("-json and -csv: choose one of them")
	case f.top < 0:
		return usagef("-top is %d", f.top)
	}
	logs, err := openLogs(e, operands[1:])
	defer logs.close()
	if err != nil {
		return err
	}
	bar := newBar(e.errs, logs)
	report := &replayed{Rules: operands[0]}
	r := &replayer{ctx: ctx, flags: &f, rules: operands[0], report: report, bar: bar}
	for i := range logs.files {
		if err := r.read(ctx, logs.names[i], logs.files[i]); err != nil {
			bar.clear()
			return err
		}
	}
	err = r.finish()
	if bar.clear(); err != nil {
		return err
	}
	if f.csv {
		var b strings.Builder
		if err := report.writeCSV(&b); err != nil {
			return err
		}
		_, err := io.WriteString(e.out, unobtrusive(b.String()))
		return err
	}
	return e.write(report, report.write)
}

// logFiles are the opened logs.
type logFiles struct {
	names []string
	files []io.Reader
	open  []*os.File
	size  int64 // of all, 0 if it is not known
	done  int64
}

func openLogs(e *env, names []string) (*logFiles, error) {
	all := &logFiles{names: names}
	for _, name := range names {
		if name == "-" {
			all.files = append(all.files, e.in)
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			return all, err
		}
		all.open = append(all.open, file)
		info, err := file.Stat()
		if err != nil {
			return all, err
		}
		if info.IsDir() {
			return all, fmt.Errorf("%s is a directory: name a log", name)
		}
		all.size += info.Size()
		all.files = append(all.files, &counting{file, &all.done})
	}
	if len(all.open) < len(names) {
		all.size = 0
	}
	return all, nil
}

func (l *logFiles) close() {
	for _, file := range l.open {
		_ = file.Close() // it was only read
	}
}

// counting counts the bytes that are read.
type counting struct {
	io.Reader
	read *int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.read += int64(n)
	return n, err
}

// replayer passes the requests of the logs through the rules in the order of their times.
type replayer struct {
	ctx      context.Context
	flags    *replayFlags
	rules    string
	report   *replayed
	bar      *bar
	plan     *replayPlan
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

// logged is what the requests of a log say about how it was read.
type logged struct {
	requests    int
	took        time.Duration
	first, last time.Time // when the log has the first and the last
}

func (l *logged) add(e *accesslog.Entry) {
	at := e.Time.Add(e.Took)
	if l.requests++; l.requests == 1 {
		l.first, l.last = at, at
	}
	if at.Before(l.first) {
		l.first = at
	}
	if at.After(l.last) {
		l.last = at
	}
	l.took += min(e.Took, maxTook-l.took)
}

const (
	// fewRequests is how many requests tell nothing about the unit of their durations.
	fewRequests = 10
	// maxRunning is how many requests run at a time, at most, if their durations have the unit that their form
	// suggests.
	maxRunning = 1000
	// maxTook bounds the sum of durations.
	maxTook = time.Duration(1 << 62)
)

// doubt returns why the log says nothing about rules: most lines could not be read, or the durations put the
// requests out of any order.
func (l *logged) doubt(in *accesslog.Reader) error {
	if in.Broken > l.requests || l.requests == 0 && in.Other > 0 {
		text := fmt.Sprintf("%s of %s were read, which says nothing about the rules", count(l.requests, "request"),
			count(in.Lines, "line"))
		for _, b := range in.First {
			text += fmt.Sprintf("\n  line %d: %s", b.Line, printable(b.Why))
		}
		return errors.New(text)
	}
	running := l.took.Seconds() / max(l.last.Sub(l.first), time.Second).Seconds()
	most := min(maxRunning, float64(l.requests)/4)
	if in.Assumed != "" && l.requests >= fewRequests && running > most {
		return fmt.Errorf("if %s is in seconds, %.0f requests ran at a time: name its unit, as in "+
			"-field duration=%[1]s:ms", in.Assumed, running)
	}
	return nil
}

// begin makes the rules, when it is known which fields the log has.
func (r *replayer) begin(in *accesslog.Reader) error {
	var err error
	if r.plan, err = newReplayPlan(r.rules, r.flags, in); err != nil {
		return err
	}
	r.requests = newRequests(r.flags)
	scenes := [][]mountFlag{r.flags.mounts}
	if len(r.flags.mounts) == 0 {
		scenes = nil
		for _, list := range r.plan.lists { // each as if it were the only one
			scenes = append(scenes, []mountFlag{{list: list.name}})
		}
	}
	for _, mounts := range scenes {
		mounts = slices.DeleteFunc(slices.Clone(mounts), func(m mountFlag) bool {
			return r.plan.planned(m.list) == nil
		})
		w, err := r.plan.newWorld(mounts, nil)
		if err != nil {
			return err
		}
		r.worlds = append(r.worlds, w)
	}
	for i := range r.plan.sweeps {
		var worlds []*world
		for _, base := range r.worlds {
			var mounts []mountFlag
			for _, m := range base.mounts {
				mounts = append(mounts, mountFlag{m.list, m.pattern})
			}
			w, err := r.plan.newWorld(mounts, &r.plan.sweeps[i])
			if err != nil {
				return err
			}
			worlds = append(worlds, w)
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
		return fmt.Errorf("%d of %s have a target that is no URL", r.report.Unusable, count(r.count, "request"))
	}
	r.report.complete(r)
	return nil
}

// decide passes a request through the rules. One that comes too late to be put in order counts at the latest
// time.
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
	status := e.Status
	if status < 200 {
		status = 200
	}
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

// bar shows on a terminal how far the replay is.
type bar struct {
	out   io.Writer // nil: nowhere
	logs  *logFiles
	begun time.Time
}

func newBar(out io.Writer, logs *logFiles) *bar {
	b := &bar{logs: logs, begun: time.Now()}
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			b.out = out
		}
	}
	return b
}

// barWidth is the length of the bar.
const barWidth = 30

func (b *bar) show(lines int) {
	if b.out == nil {
		return
	}
	text := fmt.Sprintf("%d requests, %.0f s", lines, time.Since(b.begun).Seconds())
	if b.logs.size > 0 {
		done := min(float64(b.logs.done)/float64(b.logs.size), 1)
		full := int(done * barWidth)
		text = fmt.Sprintf("[%s%s] %3.0f %%, %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full),
			100*done, text)
	}
	_, _ = fmt.Fprintf(b.out, "\r%s", text)
}

// clear removes the bar.
func (b *bar) clear() {
	if b.out != nil {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K")
	}
}
