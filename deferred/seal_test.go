package deferred_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/deferred"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
	"github.com/gatehouse-go/gatehouse/internal/warn/warntest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// stored returns the only task that waits.
func (w *world) stored() delay.Status {
	w.Helper()
	tasks, err := w.queue.Peek(w.Context(), delay.Pending, 10)
	if err != nil || len(tasks) != 1 {
		w.Fatal(tasks, err)
	}
	task, err := w.queue.Find(w.Context(), tasks[0].ID)
	if err != nil {
		w.Fatal(err)
	}
	return task
}

// wantDead waits until a task is dead.
func (w *world) wantDead(id string) {
	w.Helper()
	redistest.Eventually(w.T, 30*time.Second, func() bool {
		task, err := w.queue.Find(w.Context(), id)
		return err == nil && task.State != delay.Pending && task.State != delay.Running
	}, "the task has ended")
	if task, err := w.queue.Find(w.Context(), id); err != nil || task.State != delay.Dead {
		w.Errorf("%+v, %v: want it dead", task, err)
	}
}

// TestWhoWritesToRedisRunsNoRequests: whoever could write to Redis ran requests as any user.
func TestWhoWritesToRedisRunsNoRequests(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		w := newWorld(t, b, delay.Options{}, nil)
		location := w.defers("rows", ofKey)
		own := w.stored()
		forge := func(id string, payload []byte) string {
			t.Helper()
			if created, err := w.queue.Schedule(t.Context(), id, time.Time{}, payload); err != nil || !created {
				t.Fatal(id, created, err)
			}
			return id
		}
		_, unsigned, _ := bytes.Cut(own.Payload, []byte("\n"))
		forged := []string{
			forge("another user", bytes.Replace(own.Payload, []byte(`"principal":"ann"`),
				[]byte(`"principal":"bob"`), 1)),
			forge("another body", append(bytes.Clone(own.Payload), 's')),
			forge("another task", own.Payload),
			forge("no MAC", append([]byte("\n"), unsigned...)),
			forge("no line", unsigned[:5]),
		}
		w.gate.open.Store(true)
		w.work()
		for _, id := range forged {
			w.wantDead(id)
		}
		w.wantState(location, deferred.StateDone)
		// The request itself, once it has run, is known.
		if created, err := w.queue.Schedule(t.Context(), own.ID, time.Time{}, own.Payload); err != nil || created {
			t.Errorf("again: %v, %v", created, err)
		}
		w.wantPending(0)
		if got := w.runs(); len(got) != 1 {
			t.Errorf("ran: %q", got)
		}
	})
}

// TestWhoWritesToRedisAnswersNoRequests: the page shows no answer that a worker has not stored for this
// request.
func TestWhoWritesToRedisAnswersNoRequests(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
	first := w.defers("rows", ofKey)
	id := w.stored().ID
	w.gate.open.Store(true)
	w.work()
	w.wantState(first, deferred.StateDone)
	done, err := w.queue.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	w.forgeResult(id, bytes.Replace(done.Result, []byte("made"), []byte("evil"), 1))
	if to := w.page("ann", first); to.Code != http.StatusNotFound {
		t.Errorf("another answer: %d %s", to.Code, to.Body)
	}
	w.forgeResult(id, done.Result)
	if to := w.page("ann", first); to.Code != http.StatusCreated {
		t.Errorf("its own answer: %d %s", to.Code, to.Body)
	}
}

// forgeResult writes the result of a task past the queue.
func (w *world) forgeResult(id string, result []byte) {
	w.Helper()
	key := w.queue.Key("deferred|0", "bodies")
	if n, err := w.client.HExists(w.Context(), key, id).Result(); err != nil || !n {
		w.Fatalf("%s has no %s: %v", key, id, err)
	}
	if err := w.client.HSet(w.Context(), key, id, result).Err(); err != nil {
		w.Fatal(err)
	}
}

// TestSecretsRotate: what the former first secret signed runs as long as it is one of the secrets.
func TestSecretsRotate(t *testing.T) {
	next, other := bytes.Repeat([]byte("n"), 32), bytes.Repeat([]byte("o"), 32)
	for name, c := range map[string]struct {
		secrets [][]byte
		want    deferred.State
	}{
		"rotated":  {[][]byte{next, secret}, deferred.StateDone},
		"replaced": {[][]byte{next, other}, deferred.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			b := redistest.Mini(t)
			before := newWorld(t, b, delay.Options{}, nil)
			location := before.defers("rows")
			w := newWorld(t, b, delay.Options{}, func(o *deferred.Options) { o.Secrets = c.secrets })
			w.gate.open.Store(true)
			w.work()
			w.wantState(location, c.want)
			if ran := len(w.runs()) == 1; ran != (c.want == deferred.StateDone) {
				t.Errorf("ran: %q", w.runs())
			}
		})
	}
}

// TestRequestsWithoutSecretsAreWarnedOf: set-up says what that means.
func TestRequestsWithoutSecretsAreWarnedOf(t *testing.T) {
	log := warntest.Record(t)
	w := newWorld(t, redistest.Mini(t), delay.Options{}, nil)
	log.Want(t)
	deferred.New(w.queue, deferred.Options{Who: keyfuncs.User("uid"), Limit: w.gate})
	if told := log.Want(t, "GH009")[0]; told["queue"] != "deferred" {
		t.Errorf("told %v", told)
	}
}

// TestRequestsWithoutSecretsRun all the same.
func TestRequestsWithoutSecretsRun(t *testing.T) {
	w := newWorld(t, redistest.Mini(t), delay.Options{}, func(o *deferred.Options) { o.Secrets = nil })
	location := w.defers("rows")
	w.gate.open.Store(true)
	w.work()
	w.wantState(location, deferred.StateDone)
}

// TestARequestThatIsLongerThanAPayloadIsRefused, and takes nothing of the limit of what is stored: its header
// counts, too.
func TestARequestThatIsLongerThanAPayloadIsRefused(t *testing.T) {
	b := redistest.Mini(t)
	w := newWorld(t, b, delay.Options{MaxPayload: 4000}, func(o *deferred.Options) {
		o.Limit = limit.NewSlidingWindow(guardtest.NewEngine(b), "few", limit.PerHour(1))
	})
	for _, header := range []string{"Accept-Language", "X-Other"} {
		to := w.post("ann", "rows", header+": "+string(bytes.Repeat([]byte("x"), 4000)))
		if to.Code != http.StatusTooManyRequests {
			t.Errorf("%s: %d %s", header, to.Code, to.Body)
		}
	}
	w.wantPending(0)
	w.defers("rows")
}
