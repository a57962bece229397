// Package gatehouselog writes the denials of Gatehouse's guards to slog, a sample of them: an attack must not fill the disk.
//
//	denials := gatehouselog.New(slog.Default(), gatehouselog.Options{})
//	gate := core.New(rdb, core.WithObserver(core.Observers(core.LogErrors(), denials)))
//
// Errors are core.LogErrors' business, and breakers the engine's own.
package gatehouselog

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// Options says how much is logged. The zero value is a good one.
type Options struct {
	// PerSecond is how many denials of one guard for one reason are logged in a second. The others are counted, and the next record
	// has their number as not_logged. Zero: 5.
	PerSecond int
	// Level is the records' level. Zero: slog.LevelInfo.
	Level slog.Leveler
	// HashKey has actors and resources logged as hashes (HMAC-SHA-256 with this key, 64 bits of it), by which the same one can be
	// recognized, and found by who has the key. It has at least 16 bytes. Nil: they are left out, because addresses and users are
	// personal data.
	HashKey []byte
	// Show has actors and resources logged as they are.
	Show bool
}

// Observer is a core.Observer that logs denials. Make it with New. It is safe for concurrent use.
type Observer struct {
	logger  *slog.Logger
	options Options

	mu      sync.Mutex
	samples map[kind]*sample
}

// kind is what is sampled by itself: there are as many as the program has guards and reasons.
type kind struct {
	guard  string
	reason core.Reason
	shadow bool
}

type sample struct {
	second    time.Time // when the second began
	logged    int       // in it
	notLogged int       // since the last record
}

// New makes an Observer that logs to a logger. It panics on options that make no sense.
func New(logger *slog.Logger, o Options) *Observer {
	switch {
	case logger == nil:
		panic("gatehouselog: New(nil): pass slog.Default(), or a logger of your own")
	case o.PerSecond < 0:
		panic(fmt.Sprintf("gatehouselog: %d records a second: leave PerSecond out for 5", o.PerSecond))
	case o.HashKey != nil && len(o.HashKey) < 16:
		panic("gatehouselog: a HashKey of less than 16 bytes can be guessed, and addresses with it: give it 16 random ones at least")
	case o.HashKey != nil && o.Show:
		panic("gatehouselog: HashKey and Show: take one of them")
	}
	if o.PerSecond == 0 {
		o.PerSecond = 5
	}
	if o.Level == nil {
		o.Level = slog.LevelInfo
	}
	o.HashKey = append([]byte(nil), o.HashKey...)
	return &Observer{logger: logger, options: o, samples: map[kind]*sample{}}
}

// Observe implements core.Observer. An operation that is done, and whose answer is told again, is no denial.
func (o *Observer) Observe(ctx context.Context, e core.Event) {
	d := &e.Decision
	if !e.Decided() || d.Allowed || d.Reason == core.ReasonDone || !o.logger.Enabled(ctx, o.options.Level.Level()) {
		return
	}
	notLogged, ok := o.take(kind{e.Guard, d.Reason, d.Attempt.Shadow}, time.Now())
	if !ok {
		return
	}
	attributes := append(make([]slog.Attr, 0, 10),
		slog.String("guard", e.Guard), slog.String("reason", string(d.Reason)), slog.String("source", e.Source()))
	if d.Limit > 0 {
		attributes = append(attributes, slog.Int64("limit", d.Limit), slog.Int64("remaining", d.Remaining))
	}
	if d.RetryAfter > 0 {
		attributes = append(attributes, slog.Duration("retry_after", d.RetryAfter))
	}
	if o.options.Show || len(o.options.HashKey) > 0 {
		attributes = append(attributes, slog.String("actor", o.name(d.Attempt.Actor)))
		if d.Attempt.Resource != "" {
			attributes = append(attributes, slog.String("resource", o.name(d.Attempt.Resource)))
		}
	}
	message := "gatehouse: denied"
	if d.Attempt.Shadow {
		message = "gatehouse: would have been denied"
	}
	o.logger.LogAttrs(ctx, o.options.Level.Level(), message, append(attributes, slog.Int("not_logged", notLogged))...)
}

// take reports whether one more of a kind may be logged now, and how many have not been since the last.
func (o *Observer) take(k kind, now time.Time) (notLogged int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.samples[k]
	if s == nil {
		s = &sample{second: now}
		o.samples[k] = s
	}
	if now.Sub(s.second) >= time.Second {
		s.second, s.logged = now, 0
	}
	if s.logged >= o.options.PerSecond {
		s.notLogged++
		return 0, false
	}
	s.logged++
	notLogged, s.notLogged = s.notLogged, 0
	return notLogged, true
}

// name is how an actor or a resource is logged.
func (o *Observer) name(text string) string {
	if o.options.Show {
		return text
	}
	mac := hmac.New(sha256.New, o.options.HashKey)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
