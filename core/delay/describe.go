package delay

import (
	"context"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core/kit"
)

// shownBytes is how much of a payload or a result an operator sees.
const shownBytes = 1000

// Describe implements [kit.Tool].
func (q *Queue) Describe() kit.Description {
	id := []kit.Field{{Name: "id", Required: true, Hint: "the ID of the task, such as order 7"}}
	byID := func(name string, reversible bool, f func(ctx context.Context, id string) error) kit.Operation {
		return kit.Operation{Name: name, Changes: true, Reversible: reversible, Fields: id,
			Run: func(ctx context.Context, in kit.Input) (any, error) { return nil, f(ctx, in.Text("id")) }}
	}
	return kit.Description{
		Kind: "queue",
		Settings: []kit.Detail{{Name: "lease", Value: q.options.Lease.String()},
			{Name: "tries", Value: q.options.MaxTries}},
		Operations: []kit.Operation{
			{Name: "counts", Run: func(ctx context.Context, _ kit.Input) (any, error) { return q.Counts(ctx) }},
			{Name: "peek", Fields: []kit.Field{{Name: "state", Required: true,
				Hint: "pending, running or dead"}}, Run: q.peeked},
			{Name: "find", Fields: id, Run: q.found},
			{Name: "contents", Changes: true, Reversible: true, Fields: id, Run: q.contents},
			byID("cancel", false, q.Cancel),
			{Name: "reschedule", Changes: true, Reversible: true,
				Fields: append(id[:1:1], kit.Field{Name: "in", Kind: kit.FieldDuration, Required: true,
					Hint: "how long from now, such as 90m"}),
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return nil, q.Reschedule(ctx, in.Text("id"), q.Engine().Now().Add(in.Duration("in")))
				}},
			byID("retry", true, q.Retry),
			byID("discard", false, q.Discard),
		},
		Ops: []string{"schedule", "claim", "release", "recovered", "extend", "ack", "nack", "dead", "panic",
			"cancel", "reschedule", "retry", "discard", "find", "counts", "peek"},
	}
}

// peeked is what an operator sees of a state: the first 100 tasks.
func (q *Queue) peeked(ctx context.Context, in kit.Input) (any, error) {
	found, err := q.Peek(ctx, State(in.Text("state")), 100)
	all := make([]map[string]any, 0, len(found))
	for _, s := range found {
		all = append(all, shown(s))
	}
	return all, err
}

// found is what an operator sees of a task.
func (q *Queue) found(ctx context.Context, in kit.Input) (any, error) {
	s, err := q.Find(ctx, in.Text("id"))
	if err != nil {
		return nil, err
	}
	return shown(s), nil
}

// contents is found with the beginning of the payload or the result. Users have sent these, so whoever looks
// is recorded, as whoever changes something is.
func (q *Queue) contents(ctx context.Context, in kit.Input) (any, error) {
	s, err := q.Find(ctx, in.Text("id"))
	if err != nil {
		return nil, err
	}
	figures := shown(s)
	for name, body := range map[string][]byte{"payload": s.Payload, "result": s.Result} {
		if len(body) > 0 {
			figures[name] = strings.ToValidUTF8(string(body[:min(len(body), shownBytes)]), "\uFFFD")
		}
	}
	return figures, nil
}

func shown(s Status) map[string]any {
	figures := map[string]any{"id": s.ID, "state": s.State, "try": s.Try,
		"at": s.At.UTC().Format(time.RFC3339Nano)}
	for name, body := range map[string][]byte{"payload": s.Payload, "result": s.Result} {
		if len(body) > 0 {
			figures[name+"_bytes"] = len(body)
		}
	}
	if !s.Ends.IsZero() {
		figures["ends"] = s.Ends.UTC().Format(time.RFC3339Nano)
	}
	if s.Reason != "" {
		figures["reason"] = s.Reason
	}
	return figures
}
