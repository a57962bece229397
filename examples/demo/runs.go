package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// scenario plays a run.
type scenario func(ctx context.Context, in *instance, t *tape) error

// press changes the run that goes on: a button of the page, and whether it is on.
type press func(ctx context.Context, what string, on bool) error

// tape has the events of a run, also for those who come late.
type tape struct {
	run string // its name

	mu    sync.Mutex
	lines []string // an event each, as JSON
	press press    // nil: there are no buttons, or not yet
	ended bool
	more  chan struct{} // closed when there is more, or the end
}

func newTape(scenario string) *tape { return &tape{run: fresh(scenario), more: make(chan struct{})} }

// change changes a tape, and wakes those who follow it.
func (t *tape) change(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
	close(t.more)
	t.more = make(chan struct{})
}

func (t *tape) send(event string, data any) {
	line, _ := json.Marshal(object{"event": event, "data": data}) // the data are of this program
	t.change(func() { t.lines = append(t.lines, string(line)+"\n") })
}

// buttons lets the page change the run that goes on.
func (t *tape) buttons(p press) { t.change(func() { t.press = p }) }

// push pushes one of them.
func (t *tape) push(ctx context.Context, button string, on bool) error {
	t.mu.Lock()
	press := t.press
	t.mu.Unlock()
	if press == nil {
		return errNotRunning
	}
	return press(ctx, button, on)
}

// end keeps how a run has ended. The cause of an error that is not for the page is for the log.
func (t *tape) end(ctx context.Context, err error) {
	say := errRedis
	switch {
	case err == nil:
	case errors.As(context.Cause(ctx), &say), errors.As(err, &say):
	case ctx.Err() != nil:
		say = errEnds
	default:
		slog.Warn("demo: a scenario failed", "run", t.run, "error", err)
	}
	if err != nil {
		t.send("failed", object{"error": say})
	}
	t.change(func() { t.press, t.ended = nil, true })
}

// since returns the lines from a number on, whether they are the last ones, and what is closed after them.
func (t *tape) since(n int) (lines []string, ended bool, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines[n:], t.ended, t.more
}

// follow answers with the events from the first one on, a line each, until the run has ended or the client
// leaves.
func (t *tape) follow(w http.ResponseWriter, r *http.Request) {
	// The deadlines of the server are for short answers.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Run", t.run)
	for seen := 0; ; {
		lines, ended, more := t.since(seen)
		seen += len(lines)
		_ = control.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(w, strings.Join(lines, "")); err != nil || ended {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// run answers with the events of a run from the first one on, so that all tabs see the same. POST starts it,
// unless it goes on. GET watches the last one.
func (d *demo) run(w http.ResponseWriter, r *http.Request) {
	find := d.instance().last
	if r.Method == http.MethodPost {
		find = d.instance().start
	}
	t, err := find(r.PathValue("scenario"))
	if err != nil {
		fail(w, err)
		return
	}
	t.follow(w, r)
}

// press is a button of the page, for the run that goes on.
func (d *demo) press(w http.ResponseWriter, r *http.Request) {
	t, err := d.instance().last(r.PathValue("scenario"))
	if err == nil {
		err = t.push(r.Context(), r.PathValue("button"), r.FormValue("on") == "true")
	}
	d.changed(w, r, err)
}

// pageError is an error whose text is for the page.
type pageError string

func (e pageError) Error() string { return string(e) }

const (
	errNoScenario = pageError("There is no such scenario.")
	errNotRun     = pageError("This has not run yet.")
	errReset      = pageError("The demo was reset while this ran.")
	errNoRace     = pageError("There are no orders to send again: run the sale first.")
	errLong       = pageError("This took longer than a minute, and was ended.")
	errEnds       = pageError("The demo ends.")
	errRedis      = pageError("Redis did not answer, so there is no result. Give it back and try again.")
	errNotRunning = pageError("This does not run, or has only just begun.")
	errNotOurs    = pageError("Redis runs outside of the demo (REDIS_URL), so the demo does not stop it.")
)

// fail answers with an error. The cause of one that is not for the page is for the log.
func fail(w http.ResponseWriter, err error) {
	var say pageError
	if errors.As(err, &say) {
		http.Error(w, say.Error(), http.StatusConflict)
		return
	}
	slog.Warn("demo: a request failed", "error", err)
	unavailable(w)
}

// counting plays a run. It sends what look finds, as "counts" in each period and as "done" in the end.
func counting(
	ctx context.Context, t *tape, period time.Duration,
	look func(context.Context) (object, error), play func(context.Context) error,
) error {
	ended := make(chan error, 1)
	go func() { ended <- play(ctx) }()
	for {
		if counts, err := look(ctx); err == nil {
			t.send("counts", counts)
		}
		select {
		case <-time.After(period):
			continue
		case err := <-ended:
			if err != nil {
				return err
			}
		}
		counts, err := look(ctx)
		if err == nil {
			t.send("done", counts)
		}
		return err
	}
}

// together calls f with the numbers below n, some at a time. The first error ends it.
func together(ctx context.Context, atATime, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(atATime, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// until looks in each period, until what it looks for is there.
func until(ctx context.Context, period time.Duration, there func() (bool, error)) error {
	for {
		if yes, err := there(); yes || err != nil {
			return err
		}
		if err := pause(ctx, period); err != nil {
			return err
		}
	}
}

// pause waits, or returns the error of a context that has ended.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
