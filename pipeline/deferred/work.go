package deferred

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// principalKey is the key of the principal in the context of a request that runs later.
type principalKey struct{}

// Principal returns the principal of a request that was deferred and now runs. ok is false for all other
// requests. A login accepts the principal in place of credentials: see Credentials, in the documentation of
// the package.
func Principal(ctx context.Context) (principal string, ok bool) {
	principal, ok = ctx.Value(principalKey{}).(string)
	return principal, ok
}

// Work runs stored requests through the handler until the context is over, as delay.Work does. The handler
// is that of the whole application: a request passes the same middlewares as the first time. Several
// processes may call Work. An answer longer than Options.MaxAnswer is not kept. The handler may flush,
// which has no effect, and cannot take over the connection.
func (d *Requests) Work(ctx context.Context, app http.Handler, o delay.WorkOptions) error {
	if app == nil {
		panic("gatehouse: deferred.Requests.Work has a nil handler: pass the handler of the application")
	}
	run := func(ctx context.Context, t delay.Task) error { return d.run(ctx, app, t) }
	return delay.Work(ctx, d.queue, run, o)
}

// errUnanswered means that something in front of the rule that had deferred the request has answered it.
var errUnanswered = errors.New("deferred: answered before the rule and its handler, which did not run")

// errRefused means that the rules have refused the request once more, until a known moment.
var errRefused = errors.New("deferred: refused again")

// run runs a stored request.
func (d *Requests) run(ctx context.Context, app http.Handler, t delay.Task) error {
	s, err := d.decode(t.ID, t.Payload)
	if err != nil {
		return delay.SkipRetry(err)
	}
	values, rerun := pipeline.WithRerun(context.WithValue(ctx, principalKey{}, s.Principal), s.Depth)
	r, err := s.request(values)
	if err != nil {
		return delay.SkipRetry(err)
	}
	if d.o.Restore != nil {
		if r, err = d.o.Restore(r, s.Principal); err != nil {
			return fmt.Errorf("deferred: restore: %w", err)
		}
	}
	w := &recorder{header: http.Header{}, most: d.o.MaxAnswer}
	app.ServeHTTP(w, r)
	if f := rerun.Refusal(); f != nil && f.RetryAfter() > 0 {
		return d.again(&s, f)
	}
	if w.status == 0 && ctx.Err() != nil { // the lease is lost, or the worker stops
		return fmt.Errorf("deferred: unanswered: %w", context.Cause(ctx))
	}
	w.WriteHeader(http.StatusOK) // unless there is a status
	if !rerun.Answered() {
		return d.unanswered(t.ID, w.status, rerun.Refusal())
	}
	return d.finish(ctx, t.ID, &s, w)
}

// unanswered says that something has answered the request before it got to its handler. That would answer it
// in the same way again, unless the status says that it is busy or has failed.
func (d *Requests) unanswered(task string, status int, f *answers.Refusal) error {
	err := fmt.Errorf("%w: status %d", errUnanswered, status)
	if f != nil {
		err = fmt.Errorf("%w, %s by %s", err, f.Reason, f.Decision.Guard)
	}
	d.logError(err, task)
	if status == http.StatusTooManyRequests || status >= http.StatusInternalServerError {
		return err
	}
	return delay.SkipRetry(err)
}

// again lets a request that the rules have refused once more wait, unless it is too old.
func (d *Requests) again(s *stored, f *answers.Refusal) error {
	err := fmt.Errorf("%w: %s by %s", errRefused, f.Reason, f.Decision.Guard)
	wait := f.Decision.RetryAfter
	if f.Reason == answers.ReasonUnavailable {
		wait = f.RetryAfter()
	}
	if age := max(d.now().Sub(time.Unix(s.Came, 0)), 0); wait > d.o.MaxAge-age { // neither side overflows
		return delay.SkipRetry(err)
	}
	return delay.Later(err, spread(wait))
}

// finish keeps the answer of a request that has run. A status of 500 and above is a failure.
func (d *Requests) finish(ctx context.Context, task string, s *stored, w *recorder) error {
	if w.status >= http.StatusInternalServerError {
		return fmt.Errorf("deferred: the handler answered with status %d", w.status)
	}
	outcome := pipeline.KeepResponse(w.status, w.sent, w.body, d.o.MaxAnswer)
	err := d.keep(ctx, task, s, outcome)
	if errors.Is(err, core.ErrInvalid) { // longer than a result of the queue
		outcome.Incomplete, outcome.Body = true, nil
		err = d.keep(ctx, task, s, outcome)
	}
	return err
}

// keep makes an answer the result of the task.
func (d *Requests) keep(ctx context.Context, task string, s *stored, outcome *core.Outcome) error {
	result, err := join(finished{Print: s.Print, Outcome: outcome}, outcome.Body)
	if err != nil {
		return err
	}
	if err := delay.Result(ctx, d.seal(sealAnswer, task, result)); err != nil {
		return fmt.Errorf("deferred: keep the answer: %w", err)
	}
	return nil
}

// recorder is the writer of a request that runs later. It keeps one byte more than most of the body, so that
// a longer one is known.
type recorder struct {
	header, sent http.Header // sent is the header when the status was written
	status       int         // 0: nothing was written
	body         []byte
	most         int
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status, w.sent = status, w.header.Clone()
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK) // unless there is a status
	coded := w.sent.Get("Content-Type") != "" || w.sent.Get("Content-Encoding") != ""
	if len(w.body) == 0 && len(b) > 0 && !coded {
		w.sent.Set("Content-Type", http.DetectContentType(b)) // as net/http does
	}
	w.body = append(w.body, b[:min(len(b), w.most+1-len(w.body))]...)
	return len(b), nil
}
