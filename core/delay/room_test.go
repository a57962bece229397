package delay_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestAQueueCountsItsBytes: whatever happens to tasks, it knows how many bytes of payloads and results it
// has, and schedules no task that would make them more than may be.
func TestAQueueCountsItsBytes(t *testing.T) {
	const most, result, tasks = 20_000, 500, 40
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng, clock := rand.New(rand.NewPCG(seed, 0)), guardtest.NewClock()
		q := delay.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "tasks",
			delay.Options{MaxTries: 2, Keep: time.Minute})
		text := func(most int) []byte { return []byte(strings.Repeat("x", rng.IntN(most+1))) }
		tag, full, running := script.JoinTag("tasks", "0"), 0, []delay.Task(nil)
		for range 400 {
			id := fmt.Sprint("task", rng.IntN(tasks))
			var err error
			switch rng.IntN(6) {
			case 0, 1:
				_, err = q.ScheduleWithin(t.Context(), id, clock.Now(), text(1000), most, result)
				if errors.Is(err, delay.ErrFull) {
					full, err = full+1, nil
				}
			case 2:
				if err = q.Cancel(t.Context(), id); err != nil {
					err = q.Discard(t.Context(), id)
				}
				if errors.Is(err, delay.ErrNoTask) || errors.Is(err, delay.ErrOtherState) {
					err = nil
				}
			case 3:
				var more []delay.Task
				more, err = q.Claim(t.Context(), 3, 0)
				running = append(running, more...)
			case 4:
				clock.Advance(time.Duration(rng.IntN(20)) * time.Second)
			default:
				if len(running) == 0 {
					continue
				}
				task := running[0]
				running = running[1:]
				if rng.IntN(3) > 0 {
					err = q.Ack(t.Context(), task, text(result))
				} else {
					err = q.Nack(t.Context(), task, "why", 0)
				}
				if errors.Is(err, delay.ErrLost) {
					err = nil
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			for _, body := range b.Client.HVals(t.Context(), q.Key(tag, "bodies")).Val() {
				want += len(body)
			}
			got, _ := b.Client.HGet(t.Context(), q.Key(tag, "head"), "bytes").Int() // none: 0
			if got != want || want > most {
				t.Fatalf("the queue counts %d bytes and has %d, of %d", got, want, most)
			}
		}
		if full == 0 {
			t.Error("the queue was never full")
		}
	})
}
