// Package jobs guards the jobs of asynq workers. It is an example to copy: [Guarded] makes the middleware of
// a [Rule], and [PutBack] lets the server put refused jobs back.
//
// Several rules are all or nothing: when a later one refuses, a limit has counted nothing.
//
//	mux.Use(jobs.Guarded(perQueue), jobs.Guarded(perTenant))
package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/gatehouse-go/gatehouse/core"
)

// Rule is a guard, and how it sees a job.
type Rule struct {
	Guard core.Guard
	// Who finds the actor of a job, such as its tenant.
	Who Key
	// What finds the resource, such as [Queue]. It may be nil.
	What Key
}

// errUndecided is wrapped by the errors of jobs that were not begun because the guard could not decide.
var errUndecided = errors.New("jobs: the guard cannot decide")

// Guarded runs jobs that the guard allows. A job that fails or panics gives back what it has taken, except
// for what a rate limit has counted. A refused job is put back if waiting helps, and else archived.
func Guarded(rule Rule) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			a, err := rule.attempt(ctx, task)
			if err != nil {
				return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
			}
			ran := false
			err = core.Do(ctx, rule.Guard, a, func(ctx context.Context) error {
				ran = true
				return next.ProcessTask(ctx, task)
			})
			var refused *core.Refused
			switch {
			case ran || err == nil || retryAfter(err) > 0: // PutBack knows what to do
				return err
			case errors.As(err, &refused) || errors.Is(err, core.ErrInvalid): // waiting does not help
				return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
			default:
				return fmt.Errorf("%w: %w", errUndecided, err)
			}
		})
	}
}

func (r Rule) attempt(ctx context.Context, task *asynq.Task) (a core.Attempt, err error) {
	if a.Actor, err = r.Who(ctx, task); err == nil && r.What != nil {
		a.Resource, err = r.What(ctx, task)
	}
	return a, err
}

// PutBack lets a server put refused jobs back until the guard's RetryAfter. That is no failure of the job, so
// it uses up no retry. asynq archives a job that is refused when it has no retry left: give jobs one more
// than they need.
func PutBack(config asynq.Config) asynq.Config {
	failed, delay := config.IsFailure, config.RetryDelayFunc
	if failed == nil {
		failed = func(error) bool { return true }
	}
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	config.IsFailure = func(err error) bool {
		return retryAfter(err) == 0 && !errors.Is(err, errUndecided) && failed(err)
	}
	config.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		if after := retryAfter(err); after > 0 {
			return after
		}
		return delay(n, err, task)
	}
	return config
}

// retryAfter is how long a refused job waits. Zero: it was not refused, or waiting does not help.
func retryAfter(err error) time.Duration {
	var refused *core.Refused
	if errors.As(err, &refused) {
		return refused.RetryAfter
	}
	return 0
}

// Key finds a text by which jobs are counted. A job for which it returns an error is archived.
type Key func(ctx context.Context, task *asynq.Task) (string, error)

// Header finds a header of the job: see asynq.NewTaskWithHeaders.
func Header(name string) Key {
	return func(_ context.Context, task *asynq.Task) (string, error) {
		if value := task.Headers()[name]; value != "" {
			return value, nil
		}
		return "", fmt.Errorf("jobs: no header %q", name)
	}
}

// Queue finds the name of the job's queue.
func Queue(ctx context.Context, _ *asynq.Task) (string, error) {
	name, ok := asynq.GetQueueName(ctx)
	if !ok {
		return "", errors.New("jobs: not a job of a queue")
	}
	return name, nil
}
