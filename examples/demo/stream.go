package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
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
func (s *stream) send(event string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		text = []byte(`{}`) // cannot happen: the data are structs of this program
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	control := http.NewResponseController(s.w)
	_ = control.SetWriteDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, text); err != nil {
		s.cancel()
		return
	}
	if err := control.Flush(); err != nil {
		s.cancel()
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
