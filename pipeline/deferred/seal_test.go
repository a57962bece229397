package deferred_test

import (
	"bytes"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/warntest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
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

// tasks returns the IDs of what waits.
func (w *world) tasks() (all []string) {
	w.Helper()
	tasks, err := w.queue.Peek(w.Context(), delay.Pending, 100)
	if err != nil {
		w.Fatal(err)
	}
	for _, task := range tasks {
		all = append(all, task.ID)
	}
	return all
}

// wantDead waits until a task is dead.
func (w *world) wantDead(id string) {
	w.Helper()
	redistest.Eventually(w.T, time.Minute, func() bool {
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
		// What an application without secrets, or with others, stores under the same names.
		of := func(id string, secrets [][]byte) string {
			t.Helper()
			other := newWorld(t, b, delay.Options{}, func(o *deferred.Options) { o.Secrets = secrets })
			before := w.tasks()
			other.defers("rows")
			for _, task := range w.tasks() {
				if !slices.Contains(before, task) {
					return task
				}
			}
			t.Fatalf("%s was not stored", id)
			return ""
		}
		changed := bytes.Clone(own.Payload)
		changed[len(changed)/2] ^= 1
		forged := []string{
			forge("a changed bit", changed),
			forge("another task", own.Payload),
			forge("more", append(bytes.Clone(own.Payload), 's')),
			forge("less", own.Payload[:len(own.Payload)-1]),
			forge("no nonce", own.Payload[:5]),
			forge("nothing", nil),
			forge("a line", []byte("\n")),
			of("without a secret", nil),
			of("another secret", [][]byte{bytes.Repeat([]byte("f"), 32)}),
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
	for i := range done.Result {
		evil := bytes.Clone(done.Result)
		evil[i] ^= 1
		w.forgeResult(id, evil)
		if to := w.page("ann", first); to.Code != http.StatusNotFound {
			t.Errorf("another answer: %d %s", to.Code, to.Body)
		}
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

// TestSecretsRotate: what the former first secret sealed runs as long as it is one of the secrets.
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
