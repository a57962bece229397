package lives

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
)

// The definition of a queue with two IDs, two tries, a lease of an hour, and a day for what is done:
//   - an ID is scheduled exactly if no task has it: none was scheduled, it was cancelled or discarded, or it has
//     ended and its time is over. What was scheduled last is what runs
//   - a claim gets all tasks that are due, the first due first. A task whose lease was over comes alone, before
//     others, until it has ended once
//   - a lease that is over counts as a try where the task came so
//   - a task that has failed in its last try is dead, for a week; Retry gives it all its tries
//   - Ack, Nack and Extend count exactly under the last claim of the task, until it is taken back. Fences grow
//   - what arrives a second time within a minute changes nothing, whatever others have done meanwhile
//   - a queue that nobody uses for a month and a day is forgotten
//   - of a task whose time was over before the clock was set back, it may know or not; what it tells counts
var _ = explore(life{
	name: "delay", of: []string{"delay"}, absolute: ":delay:",
	events: alphabet("schedule-a schedule-b schedule-again schedule-first-again claim claim-again ack "+
		"ack-earlier ack-again nack nack-again extend-earlier cancel cancel-again later retry discard",
		"at-lease second minute-earlier day month flush"),
	found: []string{"schedule-b schedule-a claim ack day minute-earlier"},
	world: func(p *place) world {
		w := &queueWorld{place: p}
		for range 2 {
			o := delay.Options{Lease: time.Hour, MaxTries: 2, Keep: 24 * time.Hour}
			w.queues = append(w.queues, delay.New(p.Engine(), "tasks", o))
		}
		return w
	},
	row: row{
		over:      "`Ack` and its `Keep`, `Cancel`, `Discard`, a week after the last try.",
		remembers: "Nothing; calls of the last minute.",
		forgets:   "The payload, the tries, the reason.",
		back:      "`delay.ErrLost` for a claim of earlier.",
	},
})

type queueWorld struct {
	*place
	queues []*delay.Queue

	tasks     map[string]*queued // by ID, those that the queue has
	over      map[string]*queued // those that have ended, and whose time was over: see look
	runs      []delay.Task       // all that were claimed
	ended     map[int64]string   // by the fence, the call that ended a run
	made      int                // payloads
	last      map[string]copied  // by what they do, the last calls that changed something
	used      time.Time          // the last moment that the queue knows of
	forgot    bool               // it does not know its last fence
	setBack   bool
	lastFence int64
}

// copied is a call that may arrive once more.
type copied struct {
	call int
	at   time.Time
}

// queued is a task.
type queued struct {
	state   delay.State
	payload string
	at      time.Time // when it is due
	ends    time.Time // its lease, or what is kept of it
	try     int
	fence   int64
	suspect bool
	lapsed  bool // it died of a lease that was over
}

func (w *queueWorld) begin(string) {
	*w = queueWorld{place: w.place, queues: w.queues, tasks: map[string]*queued{}, over: map[string]*queued{},
		last: map[string]copied{}, ended: map[int64]string{}}
}
func (w *queueWorld) end() error { return nil }

func (w *queueWorld) do(event string) (string, error) {
	for id, q := range w.tasks {
		if (q.state == delay.Done || q.state == delay.Dead) && !w.Now().Before(q.ends) {
			delete(w.tasks, id)
			w.over[id] = q
		}
	}
	seen, err := w.event(event)
	if err != nil {
		return seen, err
	}
	for _, id := range []string{"a", "b"} {
		if err := w.look(id); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// look compares a task with what the queue tells of it.
func (w *queueWorld) look(id string) error {
	s, err := w.queues[0].Find(context.Background(), id)
	q := w.tasks[id]
	if q != nil && (q.state == delay.Done || q.state == delay.Dead) && !w.Now().Before(q.ends) {
		q = nil
	}
	if q == nil {
		if over := w.over[id]; over != nil && err == nil && s.State == over.state && w.Now().Before(over.ends) {
			w.tasks[id] = over // the clock was set back before its end: it may be there, and is now
			return nil
		}
		if !errors.Is(err, delay.ErrNoTask) {
			return broken("A task that is not scheduled is not there", "%s: %+v, %v", id, s, err)
		}
		return nil
	}
	payload := string(s.Payload)
	if q.state == delay.Done {
		payload = q.payload
	}
	if err != nil || s.State != q.state || s.Try != q.try || payload != q.payload ||
		q.state == delay.Pending && !s.At.Equal(q.at) {
		return broken("A task is as its calls left it", "%s: %+v, %v: want %+v", id, s, err, *q)
	}
	return nil
}

// sent notes a call that changed something, and until when the queue is kept.
func (w *queueWorld) sent(what string, call int, until time.Time) {
	w.last[what] = copied{call, w.Now()}
	if _, known := w.last[what+"-first"]; !known {
		w.last[what+"-first"] = w.last[what]
	}
	if until.After(w.used) {
		w.used = until
	}
}

func (w *queueWorld) event(event string) (string, error) {
	ctx, call, now := context.Background(), w.Sent(), w.Now()
	what, again := strings.CutSuffix(event, "-again")
	if again {
		c, known := w.last[what]
		if !known || now.Sub(c.at) >= 50*time.Second {
			return "", errImpossible
		}
		if err := w.Again(c.call); err != nil {
			return "", broken("A call that arrives twice is no error", "%v", err)
		}
		return "", nil
	}
	switch event {
	case "schedule-a", "schedule-b":
		id := event[len(event)-1:]
		w.made++
		payload := fmt.Sprint(w.made)
		created, err := w.queues[0].Schedule(ctx, id, time.Time{}, []byte(payload))
		if err != nil || created != (w.tasks[id] == nil) {
			return "", broken("An ID is scheduled exactly if no task has it", "%s: %t, %v", id, created, err)
		}
		if created {
			w.tasks[id] = &queued{state: delay.Pending, payload: payload, at: now}
			delete(w.over, id)
			w.sent("schedule", call, now.Add(24*time.Hour))
		}
		return fmt.Sprint(created), nil
	case "claim":
		return w.claim(call)
	case "ack", "ack-earlier", "nack", "extend-earlier":
		return w.tell(event, call)
	case "cancel", "later", "retry", "discard":
		return w.byName(event, call)
	case "at-lease":
		for _, id := range []string{"a", "b"} {
			if q := w.tasks[id]; q != nil && q.state == delay.Running && now.Before(q.ends) {
				w.PassUntil(q.ends)
				return "", nil
			}
		}
		return "", errImpossible
	case "second":
		w.Pass(time.Second)
	case "minute-earlier":
		w.Pass(-time.Minute)
		w.setBack = true
	case "day":
		w.Pass(24 * time.Hour)
	case "month":
		w.Pass(40 * 24 * time.Hour)
		if !w.Now().Before(w.used.Add(31 * 24 * time.Hour)) {
			w.tasks, w.last, w.forgot = map[string]*queued{}, map[string]copied{}, true
		}
	case "flush":
		w.Flush()
		w.Pass(time.Millisecond) // no two fences are of one moment
		w.tasks, w.last, w.forgot = map[string]*queued{}, map[string]copied{}, true
	}
	return "", nil
}

// claim claims what is due.
func (w *queueWorld) claim(call int) (string, error) {
	now := w.Now()
	var suspects, due []string
	for _, id := range []string{"a", "b"} {
		q := w.tasks[id]
		if q == nil {
			continue
		}
		if q.state == delay.Running && !now.Before(q.ends) {
			switch {
			case q.suspect && q.try >= 2:
				q.state, q.ends, q.lapsed = delay.Dead, now.Add(7*24*time.Hour), true
			case q.suspect:
				q.state, q.at = delay.Pending, q.ends.Add(time.Second<<(q.try-1))
			default:
				q.state, q.at, q.suspect = delay.Pending, q.ends, true
				q.try--
			}
			w.used = maxTime(w.used, now.Add(7*24*time.Hour))
		}
		if q.state == delay.Pending && !q.at.After(now) {
			if q.suspect {
				suspects = append(suspects, id)
			} else {
				due = append(due, id)
			}
		}
	}
	first := func(ids []string) {
		slices.SortStableFunc(ids, func(a, b string) int { return w.tasks[a].at.Compare(w.tasks[b].at) })
	}
	first(suspects)
	first(due)
	if len(suspects) > 0 {
		due = suspects[:1] // the half of one, and of two
	}
	tasks, err := w.queues[1].Claim(context.Background(), 10, 0)
	var got []string
	for _, task := range tasks {
		got = append(got, task.ID)
	}
	if err != nil || !slices.Equal(got, due) {
		return fmt.Sprint(got), broken("A claim gets what is due", "%q, want %q: %v", got, due, err)
	}
	for _, task := range tasks {
		q := w.tasks[task.ID]
		q.try++
		if task.Suspect != q.suspect || task.Try != q.try || string(task.Payload) != q.payload {
			return "", broken("A claim gets the task that was scheduled", "%+v, want %+v", task, *q)
		}
		if task.Fence() <= w.lastFence && (!w.forgot || !w.setBack) {
			return "", broken("A fence is greater than all before", "%d after %d", task.Fence(), w.lastFence)
		}
		q.state, q.fence, q.ends = delay.Running, task.Fence(), now.Add(time.Hour)
		w.runs = append(w.runs, task)
	}
	if len(tasks) > 0 {
		w.lastFence = max(w.lastFence, tasks[0].Fence())
		w.sent("claim", call, now.Add(7*24*time.Hour))
	}
	return fmt.Sprint(got), nil
}

// tell ends or renews a run: the last one, or the first.
func (w *queueWorld) tell(event string, call int) (string, error) {
	if len(w.runs) == 0 || strings.HasSuffix(event, "earlier") && len(w.runs) < 2 {
		return "", errImpossible
	}
	ctx, now, task := context.Background(), w.Now(), w.runs[len(w.runs)-1]
	what, earlier := strings.CutSuffix(event, "-earlier")
	if earlier {
		task = w.runs[0]
	}
	q := w.tasks[task.ID]
	theirs := q != nil && q.state == delay.Running && q.fence == task.Fence()
	ended := q != nil && q.state != delay.Running && q.fence == task.Fence() && !q.lapsed && !q.suspect
	var err error
	switch what {
	case "ack":
		err = w.queues[1].Ack(ctx, task, nil)
		theirs = theirs || ended && q.state == delay.Done
	case "nack":
		err = w.queues[1].Nack(ctx, task, "no", 0)
		theirs = theirs || ended && q.state != delay.Done
	case "extend":
		_, err = w.queues[1].Extend(ctx, task, 0)
	}
	if q == nil && w.ended[task.Fence()] == what && err == nil {
		return "known still", nil // it is true, and the queue forgets when it claims next
	}
	if errors.Is(err, delay.ErrLost) == theirs || err != nil && theirs {
		return "", broken("A call counts exactly under the last claim", "%v, still theirs: %t", err, theirs)
	}
	if err != nil || q.state != delay.Running {
		return fmt.Sprint(err), nil
	}
	switch {
	case what == "ack":
		q.state, q.ends, q.suspect = delay.Done, now.Add(24*time.Hour), false
	case what == "extend":
		q.ends = now.Add(time.Hour)
	case q.try >= 2:
		q.state, q.ends, q.suspect = delay.Dead, now.Add(7*24*time.Hour), false
	default:
		q.state, q.at, q.suspect = delay.Pending, now, false
	}
	w.ended[task.Fence()] = what
	w.sent(what, call, now.Add(7*24*time.Hour))
	return "", nil
}

// byName changes the task a.
func (w *queueWorld) byName(event string, call int) (string, error) {
	ctx, now, q, g := context.Background(), w.Now(), w.tasks["a"], w.queues[1]
	state := delay.Pending
	if event == "retry" || event == "discard" {
		state = delay.Dead
	}
	var want, err error
	switch {
	case q == nil:
		want = delay.ErrNoTask
	case q.state != state:
		want = delay.ErrOtherState
	}
	switch event {
	case "cancel":
		err = g.Cancel(ctx, "a")
	case "later":
		err = g.Reschedule(ctx, "a", now.Add(2*time.Second))
	case "retry":
		err = g.Retry(ctx, "a")
	case "discard":
		err = g.Discard(ctx, "a")
	}
	if !errors.Is(err, want) || want == nil && err != nil {
		return "", broken("A call by name needs a task in its state", "%s: %v, want %v", event, err, want)
	}
	if want != nil {
		return fmt.Sprint(want), nil
	}
	switch event {
	case "cancel", "discard":
		delete(w.tasks, "a")
	case "later":
		q.at = now.Add(2 * time.Second)
	case "retry":
		q.state, q.at, q.try, q.suspect = delay.Pending, now, 0, q.lapsed
		q.lapsed = false
	}
	w.sent(event, call, now.Add(2*time.Second))
	return "", nil
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
