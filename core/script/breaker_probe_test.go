package script

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// probedServer is a breaker whose probes find what the test says.
type probedServer struct {
	*breaker
	probes atomic.Int64
	found  atomic.Pointer[probed]
	takes  time.Duration
	told   []turned
}

func newProbedServer() *probedServer {
	s := &probedServer{}
	all := newBreakers(0, 0, nil)
	all.changed = func(_ context.Context, change BreakerChange, took time.Duration, err error) {
		s.told = append(s.told, turned{change, took, err})
	}
	all.learned = func(probed) {}
	all.probe = func(string, string) probed {
		s.probes.Add(1)
		<-time.After(s.takes)
		return *s.found.Load()
	}
	s.breaker = all.of(context.Background(), "")
	s.finds(nil)
	return s
}

func (s *probedServer) finds(err error) { s.found.Store(&probed{err: err}) }

// enter is a call that begins.
func (s *probedServer) enter(ctx context.Context, key string, limit, deadline time.Duration) (*entry, error) {
	t := &entry{breaker: s.breaker, caller: ctx, key: key, limit: limit}
	return t, t.enter(time.Now(), deadline)
}

// call is a call that ends so at once, if it is sent.
func (s *probedServer) call(ctx context.Context, ends error) (sent bool) {
	t, err := s.enter(ctx, "k", 100*time.Millisecond, 100*time.Millisecond)
	if err != nil {
		return false
	}
	t.ended(ends, ends, nil)
	t.leave()
	return true
}

// fails is how many calls are sent until none is.
func (s *probedServer) fails(ctx context.Context, ends error) (sent int) {
	for s.call(ctx, ends) {
		sent++
	}
	return sent
}

type serverError string

func (a serverError) Error() string { return string(a) }
func (serverError) RedisError()     {}

const errReadOnly = serverError("READONLY You can't write against a read only replica.")

// TestServerThatAnswersOnlyProbesKeepsTheBreakerOpen: the first probe may close a breaker at once, but not
// again and again, or each time would cost as many calls as open it.
func TestServerThatAnswersOnlyProbesKeepsTheBreakerOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProbedServer()
		begun, sent := time.Now(), 0
		for time.Since(begun) < 10*time.Second {
			sent += s.fails(t.Context(), io.ErrUnexpectedEOF)
			<-time.After(time.Millisecond)
			synctest.Wait()
		}
		if most := sparedMost + 2*breakerFailures + 20*breakerFailures; sent > most {
			t.Errorf("%d calls failed within 10 s, want %d at most", sent, most)
		}
	})
}

// TestReadsDoNotCloseWhatWritesOpened: a replica answers reads, such as the look-up of a ban, and refuses
// writes. One refusal opens the breaker, and only a probe, which may write, closes it.
//
// Promise (Outages): Successful reads, such as a ban's look-up, do not hide failing writes.
func TestReadsDoNotCloseWhatWritesOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProbedServer()
		s.finds(errReadOnly)
		if sent := s.fails(t.Context(), errReadOnly); sent != 1 {
			t.Errorf("%d writes were sent", sent)
		}
		for range 20 {
			<-time.After(breakerPause + 1)
			if s.call(t.Context(), nil) {
				t.Fatal("a read was sent, and has closed the breaker")
			}
		}
		s.finds(nil)
		<-time.After(breakerPause + 1)
		sent := s.call(t.Context(), nil)
		synctest.Wait()
		if !sent || len(s.told) != 2 {
			t.Errorf("sent: %t, though a probe was answered; heard %+v", sent, s.told)
		}
	})
}

// TestCallsWaitForAProbeWithinTheirTime: the call that starts a probe is sent when it is answered, so the
// first call after an outage succeeds. It waits for no longer than a check may take.
func TestCallsWaitForAProbeWithinTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProbedServer()
		s.finds(io.EOF)
		s.fails(t.Context(), errReadOnly)
		synctest.Wait()
		s.finds(nil)
		s.takes = 40 * time.Millisecond
		<-time.After(breakerPause + 1)
		begun := time.Now()
		if entered, err := s.enter(t.Context(), "k", 100*time.Millisecond, 100*time.Millisecond); err != nil {
			t.Error(err)
		} else if entered.limit != 60*time.Millisecond {
			t.Errorf("the call has %v left", entered.limit)
		} else {
			entered.leave()
		}
		if waited := time.Since(begun); waited != s.takes {
			t.Errorf("waited %v for a probe of %v", waited, s.takes)
		}

		s.takes = time.Second
		s.finds(errReadOnly)
		s.fails(t.Context(), errReadOnly)
		<-time.After(2 * time.Second) // after the next Pause
		begun = time.Now()
		_, err := s.enter(t.Context(), "k", time.Second, 100*time.Millisecond)
		if waited := time.Since(begun); !errors.Is(err, ErrBreakerOpen) || waited != 100*time.Millisecond {
			t.Errorf("%v after %v, want the deadline of a check", err, waited)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if s.call(ctx, nil) {
			t.Error("sent")
		}
		<-time.After(2 * time.Second)
	})
}

// TestConnectionsThatTheServerClosedStartAProbe: where one is closed, others may be. The first lost call
// finds out about all of them, and the calls after it do not count as a row of failures.
func TestConnectionsThatTheServerClosedStartAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProbedServer()
		s.takes = time.Millisecond // else it may end between two of the calls
		for range 10 {
			before := s.probes.Load()
			for range breakerFailures - 1 {
				if !s.call(t.Context(), io.EOF) {
					t.Fatal("the breaker is open")
				}
			}
			synctest.Wait()
			if n := s.probes.Load() - before; n != 1 {
				t.Fatalf("%d probes", n)
			}
			<-time.After(s.takes + breakerPause + 1)
		}
		before := s.probes.Load()
		for _, err := range []error{context.DeadlineExceeded, redis.ErrPoolTimeout, serverError("ERR no")} {
			s.call(t.Context(), err)
		}
		synctest.Wait()
		if n := s.probes.Load() - before; n != 0 || len(s.told) != 0 {
			t.Errorf("%d probes, heard %+v", n, s.told)
		}
	})
}

// TestConnectionsLostBesideAProbeAreOneFailure: of a pool whose connections a server had closed, five were
// lost before the probe that the first had started had looked at the others, and the breaker opened, although
// the server worked. A server that works only for probes still opens it.
func TestConnectionsLostBesideAProbeAreOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProbedServer()
		s.takes = 20 * time.Millisecond
		for range 3 {
			for range 30 {
				if !s.call(t.Context(), io.EOF) {
					t.Fatal("the breaker is open")
				}
			}
			<-time.After(earlyAgain*breakerPause + s.takes + 1)
		}
		s.call(t.Context(), io.EOF)
		if sent := s.fails(t.Context(), context.DeadlineExceeded); sent != breakerFailures-1 {
			t.Errorf("%d timeouts beside a probe opened the breaker, want %d", sent, breakerFailures-1)
		}
		<-time.After(time.Second) // the probe ends
	})
}

// TestStallClosesForAsLongAsItLasts: five calls that waited in vain for a server that stood still for 130 ms
// closed all guards for 623 ms. The probe that starts when the breaker opens is answered when the stall is
// over, and the breaker closes then. The second stall within ten pauses costs a whole Pause.
//
// Promise (Outages): A stall of five timeouts in a row (about 130 ms) closes guards while it lasts. A second
// stall within 5 s closes them for half a second more.
func TestStallClosesForAsLongAsItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newProbedServer()
		s.takes = 30 * time.Millisecond
		stall := func() time.Duration {
			begun := time.Now()
			var all sync.WaitGroup
			for range breakerFailures {
				entered, err := s.enter(t.Context(), "k", 100*time.Millisecond, 100*time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					<-time.After(100 * time.Millisecond)
					entered.ended(context.DeadlineExceeded, context.DeadlineExceeded, nil)
					entered.leave()
				})
			}
			all.Wait()
			for !s.call(t.Context(), nil) {
				<-time.After(time.Millisecond)
			}
			return time.Since(begun)
		}
		for range 3 {
			if took := stall(); took < 130*time.Millisecond || took > 132*time.Millisecond {
				t.Errorf("closed for %v by a stall of 130 ms", took)
			}
			<-time.After(earlyAgain * breakerPause)
		}
		stall()
		if took := stall(); took > 100*time.Millisecond+breakerPause+s.takes+time.Millisecond {
			t.Errorf("closed for %v by the second stall", took)
		}
	})
}
