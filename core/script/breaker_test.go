package script_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

// scripted is a client whose server is a function of the test's. It counts the calls that reach it.
type scripted struct {
	calls  atomic.Int64
	mu     sync.Mutex
	server func(ctx context.Context, cmd redis.Cmder) error
}

func (c *scripted) Process(ctx context.Context, cmd redis.Cmder) error {
	c.calls.Add(1)
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	err := server(ctx, cmd)
	cmd.SetErr(err)
	return err
}

func (c *scripted) set(server func(ctx context.Context, cmd redis.Cmder) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server
}

// allows answers every script with "1 1 1", which a sliding window reads as: allowed, a unit left.
func allows(_ context.Context, cmd redis.Cmder) error {
	reply := cmd.(interface{ SetVal(any) })
	reply.SetVal("1 1 1")
	return nil
}

// hangs never answers.
func hangs(ctx context.Context, _ redis.Cmder) error {
	<-ctx.Done()
	return ctx.Err()
}

func fails(err error) func(context.Context, redis.Cmder) error {
	return func(context.Context, redis.Cmder) error { return err }
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// answered is an error reply of a server.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

// breakerScene is an engine with a scripted client, in a synctest bubble.
type breakerScene struct {
	*scripted
	guardtest.Recorder
	e *core.Engine
	g *limit.SlidingWindow
}

func newBreakerScene(t *testing.T, options ...core.Option) *breakerScene {
	s := &breakerScene{scripted: &scripted{server: allows}}
	s.e = core.New(s, append([]core.Option{core.WithObserver(&s.Recorder)}, options...)...)
	s.g = limit.NewSlidingWindowBy(s.e, "w", perHour) // fixed limits ask for former windows first
	quiet(t)
	return s
}

func perHour(context.Context, core.Attempt) ([]limit.Limit, error) {
	return []limit.Limit{limit.PerHour(5)}, nil
}

// Observe resolves the ambiguity between the embedded types.
func (s *breakerScene) Observe(ctx context.Context, e core.Event) { s.Recorder.Observe(ctx, e) }

// quiet redirects the log, because the test causes errors on purpose, and returns what was logged.
func quiet(t *testing.T) *guardtest.Output {
	var log guardtest.Output
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &log
}

func (s *breakerScene) check(t *testing.T) error {
	t.Helper()
	_, err := s.g.Check(t.Context(), core.Attempt{Actor: "ann"})
	return err
}

// trip makes calls fail until no call is sent any more.
func (s *breakerScene) trip(t *testing.T, server func(context.Context, redis.Cmder) error) {
	t.Helper()
	s.set(server)
	for range script.BreakerFailures {
		if err := s.check(t); err == nil || errors.Is(err, core.ErrBreakerOpen) {
			t.Fatalf("%v, want the error of the call", err)
		}
	}
	s.wantOpen(t, true)
}

// wantOpen fails the test unless the breaker is open, or closed, judged by whether calls are sent.
func (s *breakerScene) wantOpen(t *testing.T, open bool) {
	t.Helper()
	before := s.calls.Load()
	err := s.check(t)
	if sent := s.calls.Load() != before; sent == open || errors.Is(err, core.ErrBreakerOpen) != open {
		t.Fatalf("sent: %t, %v; want an open breaker: %t", sent, err, open)
	}
}

// changes returns the observed events of breakers.
func (s *breakerScene) changes() (all []core.Event) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, e := range s.Events {
		if e.Breaker != nil {
			all = append(all, e)
		}
	}
	return all
}

// Promise (Outages): An outage costs a few timeouts, then one probe per half second.
func TestOutageCostsAFewTimeouts(t *testing.T) {
	for name, server := range map[string]func(context.Context, redis.Cmder) error{"hanging": hangs,
		"stopped": fails(errRefused)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBreakerScene(t)
				s.trip(t, server)
				before, begun := s.calls.Load(), time.Now()
				for range 1000 {
					if err := s.check(t); !errors.Is(err, core.ErrBreakerOpen) {
						t.Fatal(err)
					}
				}
				if s.calls.Load() != before || !time.Now().Equal(begun) {
					t.Errorf("%d calls were sent, and %v was waited", s.calls.Load()-before, time.Since(begun))
				}
			})
		})
	}
}

func TestOneCallAtATimeSeesWhetherRedisIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBreakerScene(t)
		s.trip(t, fails(errRefused))
		crowd := func() (sent int64, notSent int) {
			before := s.calls.Load()
			var all sync.WaitGroup
			var refused atomic.Int64
			for i := range 100 {
				all.Go(func() {
					_, err := s.g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i)}) // those of one would be joined
					if errors.Is(err, core.ErrBreakerOpen) {
						refused.Add(1)
					}
				})
			}
			all.Wait()
			return s.calls.Load() - before, int(refused.Load())
		}

		s.set(hangs)
		for range 3 {
			<-time.After(script.BreakerPause + 1)
			if sent, notSent := crowd(); sent != 1 || notSent != 99 {
				t.Errorf("still down: %d sent, %d refused", sent, notSent)
			}
			s.wantOpen(t, true)
		}
		s.set(func(ctx context.Context, cmd redis.Cmder) error {
			<-time.After(time.Millisecond)
			return allows(ctx, cmd)
		})
		<-time.After(script.BreakerPause + 1)
		if sent, notSent := crowd(); sent != 1 || notSent != 99 {
			t.Errorf("back: %d sent, %d refused", sent, notSent)
		}
		if sent, notSent := crowd(); sent != 100 || notSent != 0 {
			t.Errorf("closed: %d sent, %d refused", sent, notSent)
		}
	})
}

// TestRecoveryTakesLessThanTwoSeconds: Redis comes back at the worst moment: a call with ten times the
// deadline of a check has just been sent to the dead server.
//
// Promise (Outages): Redis is used again within 2 s of being back, whatever the client's pool holds.
func TestRecoveryTakesLessThanTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBreakerScene(t)
		d := guardtest.Check(t, s.g, core.Attempt{Actor: "ann"})
		s.trip(t, hangs)
		<-time.After(script.BreakerPause + 1)
		begun := time.Now()
		if err := s.g.Settle(t.Context(), d, core.Rollback); err == nil {
			t.Fatal("the refund was made")
		}
		// Settle has no end of its caller's, so it shares a timer with checks: up to a 16th earlier.
		deadline := s.e.Deadline()
		if waited := time.Since(begun); waited > deadline || waited < deadline-deadline/16 {
			t.Errorf("waited %v, want the %v of a check", waited, deadline)
		}
		s.set(allows)
		for s.check(t) != nil {
			<-time.After(time.Millisecond)
		}
		if took := time.Since(begun); took > 2*time.Second-time.Second { // go-redis may need a second to dial again
			t.Errorf("recovered after %v", took)
		}
	})
}

// TestWhatOpensABreaker has what is no answer: TestWhatAnswersMean has the answers.
func TestWhatOpensABreaker(t *testing.T) {
	for _, c := range []struct {
		err   error
		after int // failures in a row that open it; 0: none do
		kind  string
	}{
		{errRefused, script.BreakerFailures, "connection"},
		{fmt.Errorf("dial: %w", syscall.ECONNRESET), script.BreakerFailures, "connection"},
		{io.EOF, script.BreakerFailures, "connection"},
		{io.ErrUnexpectedEOF, script.BreakerFailures, "connection"},
		{redis.ErrPoolTimeout, script.BreakerFailures, "timeout"},
		{context.DeadlineExceeded, script.BreakerFailures, "timeout"},
		{errors.New("a dialer of the application's"), script.BreakerFailures, "other"},
		{redis.ErrClosed, 0, "connection"},
		{errors.New("redis: can't marshal chan int (implement encoding.BinaryMarshaler)"), 0, "other"},
		{context.Canceled, 0, "canceled"},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBreakerScene(t)
				s.set(fails(c.err))
				for i := range 10 * script.BreakerFailures {
					err := s.check(t)
					if err == nil {
						t.Fatal("no error")
					}
					if open := errors.Is(err, core.ErrBreakerOpen); open != (c.after > 0 && i >= c.after) {
						t.Fatalf("call %d: %v", i, err)
					}
				}
				if got := s.Events[0].ErrorKind(); got != c.kind {
					t.Errorf("kind %q, want %q", got, c.kind)
				}
				if last := s.Events[len(s.Events)-1].ErrorKind(); c.after > 0 && last != "breaker_open" {
					t.Errorf("kind %q", last)
				}
			})
		})
	}
}

func TestFailuresAreCountedOneAfterTheOther(t *testing.T) {
	s := newBreakerScene(t)
	for range 10 {
		s.set(fails(errRefused))
		for range script.BreakerFailures - 1 {
			if err := s.check(t); errors.Is(err, core.ErrBreakerOpen) {
				t.Fatal(err)
			}
		}
		s.set(fails(answered("ERR a mistake in a script"))) // an answer, not a failure
		if err := s.check(t); errors.Is(err, core.ErrBreakerOpen) {
			t.Fatal(err)
		}
	}
}

func TestCallersThatGiveUpOpenNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBreakerScene(t)
		s.set(hangs)
		given := func(how func(context.Context) (context.Context, context.CancelFunc), open bool) {
			t.Helper()
			for range 2 * script.BreakerFailures {
				ctx, cancel := how(t.Context())
				_, err := s.g.Check(ctx, core.Attempt{Actor: "ann"})
				if err == nil || errors.Is(err, core.ErrBreakerOpen) && !open {
					t.Fatal(err)
				}
				cancel()
			}
			s.set(allows)
			s.wantOpen(t, open)
			s.set(hangs)
		}
		given(func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(60*time.Millisecond, cancel)
			return ctx, cancel
		}, false)
		s.e.SetObeysDeadline(true) // then the error is the client's and may be any error
		s.set(func(ctx context.Context, _ redis.Cmder) error {
			<-ctx.Done()
			return os.ErrDeadlineExceeded
		})
		given(func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(60*time.Millisecond, cancel)
			return ctx, cancel
		}, false)
		s.e.SetObeysDeadline(false)
		given(func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 49*time.Millisecond)
		}, false)
		given(func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond) // half the deadline of a check is enough
		}, true)
	})
}

// TestLimitsByAttemptOpenTheBreaker: the whole check has one deadline, which ends before that of the call.
func TestLimitsByAttemptOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBreakerScene(t)
		g := limit.NewSlidingWindowBy(s.e, "by", func(context.Context, core.Attempt) ([]limit.Limit, error) {
			<-time.After(time.Millisecond)
			return []limit.Limit{limit.PerHour(5)}, nil
		})
		s.set(hangs)
		for range script.BreakerFailures {
			if _, err := g.Check(t.Context(), core.Attempt{Actor: "ann"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		s.wantOpen(t, true)
	})
}

// TestAPanicOfAHookIsAnError: it ended the process where a client that ignores its context was called in a
// goroutine. No breaker stays stuck.
//
// Promise (Outages): A hook of the client that panics is an error of Redis: it ends neither the process nor the
// request.
func TestAPanicOfAHookIsAnError(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newBreakerScene(t)
			s.e.SetObeysDeadline(obeys)
			s.trip(t, fails(errRefused))
			s.set(func(context.Context, redis.Cmder) error { panic("a hook") })
			<-time.After(script.BreakerPause + 1)
			if err := s.check(t); err == nil || !strings.Contains(err.Error(), "a hook") {
				t.Errorf("%v: want the panic", err)
			}
			<-time.After(script.BreakerPause + 1)
			s.set(fails(errRefused))
			_ = s.check(t)
			s.wantOpen(t, true)
			s.set(allows)
			<-time.After(script.BreakerPause + 1)
			s.wantOpen(t, false)
		})
	}
}

func TestBreakerReportsItsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBreakerScene(t)
		log := quiet(t)
		s.trip(t, fails(errRefused))
		<-time.After(script.BreakerPause + 1)
		_ = s.check(t) // sent, and fails
		s.wantOpen(t, true)
		<-time.After(script.BreakerPause + 1)
		s.set(allows)
		s.wantOpen(t, false)

		changes := s.changes()
		if len(changes) != 2 {
			t.Fatalf("%+v, want an opening and a closing", changes)
		}
		opened, closed := changes[0], changes[1]
		if opened.Op != "breaker" || !opened.Breaker.Open || !errors.Is(opened.Err, syscall.ECONNREFUSED) ||
			opened.Breaker.NotSent != 0 {
			t.Errorf("opened: %+v %+v", opened, opened.Breaker)
		}
		if closed.Breaker.Open || closed.Err != nil || closed.Breaker.NotSent != 2 ||
			closed.Took < 2*script.BreakerPause || closed.Decided() {
			t.Errorf("closed: %+v %+v", closed, closed.Breaker)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines, want one per change:\n%s", n, log)
		}
	})
}

// TestObserverMayCallAGuard: the guard may use the breaker that the event is about.
func TestObserverMayCallAGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBreakerScene(t)
		var nested atomic.Int64
		core.WithObserver(observerFunc(func(ctx context.Context, e core.Event) {
			if e.Breaker != nil {
				_, _ = s.g.Check(ctx, core.Attempt{Actor: "bob"})
				nested.Add(1)
			}
		}))(s.e)
		s.trip(t, fails(errRefused))
		s.set(allows)
		<-time.After(script.BreakerPause + 1)
		s.wantOpen(t, false)
		if nested.Load() != 2 {
			t.Errorf("observed %d changes", nested.Load())
		}
	})
}

type observerFunc func(context.Context, core.Event)

func (f observerFunc) Observe(ctx context.Context, e core.Event) { f(ctx, e) }

// twoMasters is a scripted client of a cluster of two masters. A key's server is its guard's name.
type twoMasters struct {
	*scripted
	masters map[string]*redis.Client
	lookup  error
}

func (c *twoMasters) MasterForKey(_ context.Context, key string) (*redis.Client, error) {
	for name, master := range c.masters {
		if strings.Contains(key, ":"+name+":") {
			return master, c.lookup
		}
	}
	return nil, errors.New("no such node")
}

// neverDials is a client of which only the address is used. By default go-redis would resolve the name, and
// the net package would keep state inside the test's bubble.
func neverDials(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errRefused },
	})
}

// Promise (Outages): Each master of a cluster has its own breaker.
func TestEachMasterHasABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := quiet(t)
		c := &twoMasters{scripted: &scripted{}, masters: map[string]*redis.Client{}}
		var h guardtest.Recorder
		e := core.New(c, core.WithObserver(&h))
		guards := map[string]*limit.SlidingWindow{}
		for _, name := range []string{"dead", "well"} {
			c.masters[name] = neverDials(name + ":6379")
			defer c.masters[name].Close()
			guards[name] = limit.NewSlidingWindowBy(e, name, perHour) // fixed limits ask for former windows first
		}
		onDead := func(ctx context.Context, cmd redis.Cmder) error {
			if strings.Contains(fmt.Sprint(cmd.Args()...), ":dead:") {
				return errRefused
			}
			return allows(ctx, cmd)
		}
		c.set(onDead)
		for i := range 100 {
			if _, err := guards["dead"].Check(t.Context(), core.Attempt{Actor: "ann"}); errors.Is(err,
				core.ErrBreakerOpen) != (i >= script.BreakerFailures) {
				t.Fatalf("the dead master, call %d: %v", i, err)
			}
			guardtest.WantReason(t, guardtest.Check(t, guards["well"], core.Attempt{Actor: "ann"}), core.ReasonOK)
		}
		if !strings.Contains(log.String(), "node=dead:6379") || strings.Contains(log.String(), "well") {
			t.Errorf("the log does not name the server:\n%s", log)
		}

		// Another master takes over. No call goes to the dead one any more, so its breaker must not stay
		// open.
		c.masters["dead"] = neverDials("heir:6379")
		defer c.masters["dead"].Close()
		c.set(allows)
		guardtest.WantReason(t, guardtest.Check(t, guards["dead"], core.Attempt{Actor: "ann"}), core.ReasonOK)
		<-time.After(script.BreakerForget + time.Second)
		guardtest.Check(t, guards["well"], core.Attempt{Actor: "ann"})
		last := h.Events[len(h.Events)-2] // before the check that noticed the change
		if len(e.OpenBreakers()) != 0 || last.Breaker == nil || last.Breaker.Open ||
			last.Breaker.Node != "dead:6379" {
			t.Errorf("%d breakers are open, last event %+v", len(e.OpenBreakers()), last)
		}

		// A client that does not know its masters has one outage, not one per key.
		c.lookup = errRefused
		before := c.calls.Load()
		for i := range 100 {
			_, err := guards["well"].Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i)})
			if err == nil || errors.Is(err, core.ErrBreakerOpen) != (i >= script.BreakerFailures) {
				t.Fatalf("no masters, call %d: %v", i, err)
			}
		}
		if c.calls.Load() != before {
			t.Error("calls were sent although there is no master")
		}
	})
}

func TestBreakerOptions(t *testing.T) {
	for name, c := range map[string]struct {
		option core.Option
		sent   int64
	}{
		"default":    {core.WithBreaker(0, 0), script.BreakerFailures},
		"failures":   {core.WithBreaker(1, time.Hour/60), 1},
		"no breaker": {core.WithoutBreaker(), 100},
	} {
		t.Run(name, func(t *testing.T) {
			s := newBreakerScene(t, c.option)
			s.set(fails(errRefused))
			for range 100 {
				_ = s.check(t)
			}
			if s.calls.Load() != c.sent {
				t.Errorf("%d calls were sent, want %d", s.calls.Load(), c.sent)
			}
		})
	}
}

// TestUndoIsTriedUntilRedisIsBack: a vote whose reply was lost may have been counted.
func TestUndoIsTriedUntilRedisIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBreakerScene(t)
		ballots := votes.New(s.e, "v", votes.Options{})
		vote := func() error {
			_, err := ballots.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "p"})
			return err
		}
		s.set(hangs)
		for range script.BreakerFailures {
			_ = vote()
		}
		if err := vote(); !errors.Is(err, core.ErrBreakerOpen) {
			t.Fatal(err)
		}
		if got := s.e.Pending(); got != script.BreakerFailures {
			t.Errorf("%d undos are pending, want one per vote that was sent", got)
		}
		<-time.After(10 * time.Second)
		var undone atomic.Int64
		s.set(func(ctx context.Context, cmd redis.Cmder) error {
			if fmt.Sprint(cmd.Args()[1]) == voteUndoScript.SHA() {
				undone.Add(1)
			}
			return allows(ctx, cmd)
		})
		<-time.After(4 * time.Second)
		if undone.Load() != script.BreakerFailures || s.e.Pending() != 0 {
			t.Errorf("%d votes were undone, want %d; %d undos are pending", undone.Load(), script.BreakerFailures,
				s.e.Pending())
		}
	})
}

// BenchmarkBreaker measures a check whose client answers at once, and a check that is not sent.
func BenchmarkBreaker(b *testing.B) {
	for name, options := range map[string][]core.Option{"closed": nil, "none": {core.WithoutBreaker()},
		"open": {core.WithBreaker(1, time.Minute)}} {
		b.Run(name, func(b *testing.B) {
			before := slog.Default()
			slog.SetDefault(slog.New(slog.DiscardHandler))
			defer slog.SetDefault(before)
			c := &scripted{server: allows}
			e := core.New(c, append(options, core.WithObserver(guardtest.Ignore{}))...)
			e.SetObeysDeadline(true)
			g := limit.NewSlidingWindow(e, "w", limit.PerHour(5))
			if name == "open" {
				c.set(fails(errRefused))
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = g.Check(b.Context(), core.Attempt{Actor: "ann"})
			}
		})
	}
}
