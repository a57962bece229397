// Package gatehouselog writes denials of Gatehouse's guards to slog. It writes a sample only, so that an
// attack cannot fill the disk.
//
//	denials := gatehouselog.New(slog.Default(), gatehouselog.Options{})
//	gate := core.New(rdb, core.WithObserver(core.Observers(core.LogErrors(), denials)))
//
// It logs no errors, which [core.LogErrors] does, and no breakers, which the engine logs itself. Requests
// that are refused without a decision are logged by both: by LogErrors once per minute for each kind.
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

// Options says how much is logged. The zero value suits most applications.
type Options struct {
	// PerSecond is the maximum number of records per second for one guard and one reason. Further denials are
	// counted, and the next record has their number as not_logged. Zero: 5.
	PerSecond int
	// Level is the level of the records. Nil: slog.LevelInfo.
	Level slog.Leveler
	// HashKey makes the observer log actors and resources as hashes: the first 64 bits of HMAC-SHA-256 with
	// this key. The same actor always has the same hash, and whoever has the key can compute it. The key has
	// at least 16 bytes. Nil: actors and resources are left out, because addresses and user names are
	// personal data.
	HashKey []byte
	// Show makes the observer log actors and resources in plain text. It excludes HashKey.
	Show bool
}

// Observer is a [core.Observer] that logs denials. Make it with [New]. It is safe for concurrent use.
type Observer struct {
	logger  *slog.Logger
	options Options

	mu      sync.Mutex
	samples map[kind]*sample
}

// kind is a sampling key. There are no more kinds than guards times reasons and keys, in the shadow or not.
type kind struct {
	guard  string
	reason core.Reason
	key    string // of refusals without a decision
	shadow bool
}

type sample struct {
	second    time.Time // when the second began
	logged    int       // records in that second
	notLogged int       // denials since the last record
}

// New returns an Observer that logs to the logger. It panics on a nil logger and on options that contradict
// each other.
func New(logger *slog.Logger, o Options) *Observer {
	switch {
	case logger == nil:
		panic("gatehouselog: New(nil): pass slog.Default() or another logger")
	case o.PerSecond < 0:
		panic(fmt.Sprintf("gatehouselog: PerSecond is %d: use a positive number, or 0 for 5 records per second",
			o.PerSecond))
	case o.HashKey != nil && len(o.HashKey) < 16:
		panic("gatehouselog: HashKey is shorter than 16 bytes and can be guessed: use at least 16 random bytes")
	case o.HashKey != nil && o.Show:
		panic("gatehouselog: HashKey and Show exclude each other: set one of them")
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

// Observe implements [core.Observer]. It logs denials, and refusals without a decision with the key function
// that refused, such as User("uid") where nobody is logged in. It ignores the replay of a stored answer,
// which is not a denial.
func (o *Observer) Observe(ctx context.Context, e core.Event) {
	d := &e.Decision
	if e.Op == "refuse" {
		o.refused(ctx, e)
		return
	}
	if !e.Decided() || d.Allowed || d.Reason == core.ReasonDone ||
		!o.logger.Enabled(ctx, o.options.Level.Level()) {
		return
	}
	notLogged, ok := o.take(kind{e.Guard, d.Reason, "", d.Attempt.Shadow}, time.Now())
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
	o.logger.LogAttrs(ctx, o.options.Level.Level(), message,
		append(attributes, slog.Int("not_logged", notLogged))...)
}

// refused logs a refusal without a decision.
func (o *Observer) refused(ctx context.Context, e core.Event) {
	d, level := &e.Decision, o.options.Level.Level()
	if !o.logger.Enabled(ctx, level) {
		return
	}
	notLogged, ok := o.take(kind{e.Guard, d.Reason, e.Key, d.Attempt.Shadow}, time.Now())
	if !ok {
		return
	}
	message := "gatehouse: refused"
	if d.Attempt.Shadow {
		message = "gatehouse: would have been refused"
	}
	o.logger.LogAttrs(ctx, level, message,
		slog.String("guard", e.Guard), slog.String("reason", string(d.Reason)),
		slog.String("key", e.Key), slog.String("function", e.Function), slog.Int("not_logged", notLogged))
}

// take reports whether one more denial of a kind may be logged now, and how many were not logged since the
// last record.
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

// name returns the logged form of an actor or a resource.
func (o *Observer) name(text string) string {
	if o.options.Show {
		return text
	}
	mac := hmac.New(sha256.New, o.options.HashKey)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
