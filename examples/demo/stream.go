package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// stream sends server-sent events. It is safe for concurrent use.
type stream struct {
	w      http.ResponseWriter
	cancel context.CancelFunc // ends what sends, when the client is gone

	mu sync.Mutex
}

// newStream answers with an event stream. The deadlines of the server are for short answers; from here on
// each event has its own.
func newStream(w http.ResponseWriter, cancel context.CancelFunc) *stream {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // of a writer that has none: not needed
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, cancel: cancel}
}

// send sends an event with its data as JSON.
func (s *stream) send(event string, data any) { s.write(encode(event, data)) }

func encode(event string, data any) string {
	text, err := json.Marshal(data)
	if err != nil {
		text = []byte(`{}`) // cannot happen: the data are structs of this program
	}
	return fmt.Sprintf("event: %s\ndata: %s\n\n", event, text)
}

func (s *stream) write(events string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	control := http.NewResponseController(s.w)
	_ = control.SetWriteDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(s.w, events); err != nil {
		s.cancel()
		return
	}
	if err := control.Flush(); err != nil {
		s.cancel()
	}
}

// tape keeps the events of a run for all who watch it, also those who come late.
type tape struct {
	run int64 // its number

	mu     sync.Mutex
	events []string
	ended  bool
	more   chan struct{} // closed when there is more, or the end
}

func newTape(run int64) *tape { return &tape{run: run, more: make(chan struct{})} }

func (t *tape) send(event string, data any) {
	text := encode(event, data)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, text)
	close(t.more)
	t.more = make(chan struct{})
}

func (t *tape) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	close(t.more)
}

func (t *tape) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// follow sends the events from the first one on, until the run has ended or the client leaves.
func (t *tape) follow(ctx context.Context, w http.ResponseWriter) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.Header().Set("Run", strconv.FormatInt(t.run, 10))
	out := newStream(w, cancel)
	for seen := 0; ; {
		t.mu.Lock()
		part, more, ended := t.events[seen:], t.more, t.ended
		t.mu.Unlock()
		seen += len(part)
		out.write(strings.Join(part, ""))
		if ended {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// every calls f at once, in each period, and a last time when stop is called. stop waits for it.
func every(period time.Duration, f func()) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(period)
		defer ticks.Stop()
		for {
			f()
			select {
			case <-ticks.C:
			case <-done:
				f()
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(done)
		<-ended
	})
}

// counting plays a run. It sends what look finds, as "counts" in each period and as "done" in the end.
func counting[T any](
	ctx context.Context, send func(string, any), period time.Duration,
	look func(context.Context) (T, error), play func() error,
) error {
	stop := every(period, func() {
		if c, err := look(ctx); err == nil {
			send("counts", c)
		}
	})
	defer stop()
	if err := play(); err != nil {
		return err
	}
	stop()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c, err := look(ctx)
	if err == nil {
		send("done", c)
	}
	return err
}

// together calls f with the numbers below n, some at a time, until the context is over.
func together(ctx context.Context, atATime, n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(atATime, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}

// pause waits, or returns the error of a context that has ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
