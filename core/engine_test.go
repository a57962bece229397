package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// Promise: A set-up mistake panics with the remedy.
func TestSetUpMistakesPanicWithTheRemedy(t *testing.T) {
	engine := func() *core.Engine { return core.New(guardtest.NoClient{}) }
	for text, mistake := range map[string]func(){
		"pass the application's":    func() { core.New(nil) },
		"the prefix is empty":       func() { core.WithPrefix("") },
		"has '{' in it":             func() { core.WithPrefix("a{b}") },
		"a minute at most":          func() { core.WithDeadline(time.Hour) },
		"more than 0":               func() { core.WithDeadline(0) },
		"does not cover a retry":    func() { core.WithRetryHorizon(time.Millisecond) },
		"leave the option out":      func() { core.WithObserver(nil) },
		"or use WithoutBreaker":     func() { core.WithBreaker(-1, 0) },
		"pause to a minute at most": func() { core.WithBreaker(0, time.Hour) },
		"none that is nil":          func() { core.Observers(core.LogErrors(), nil) },
		"to have slog.Default":      func() { core.WithLogger(nil) },
		"at least one observer":     func() { core.Observers() },
		"a second at most":          func() { core.WithRefusalMemory(time.Second + 1) },
		"0 to ask Redis always":     func() { core.WithRefusalMemory(-1) },
		"guard's name is empty":     func() { votes.New(engine(), "", votes.Options{}) },
		"longer than 64":            func() { votes.New(engine(), strings.Repeat("x", 65), votes.Options{}) },
		"lets nobody in":            func() { limit.NewSlidingWindow(engine(), "w", limit.PerMinute(0)) },
		"at most 10000":             func() { limit.NewSlidingWindow(engine(), "w", limit.PerDay(10_001)) },
		"keep the smaller": func() {
			limit.NewSlidingWindow(engine(), "w", limit.PerDay(1),
				limit.Per(2, 24*time.Hour))
		},
		"whole milliseconds": func() {
			limit.NewSlidingWindow(engine(), "w",
				limit.Per(1, time.Microsecond))
		},
		"8784h0m0s": func() {
			limit.NewSlidingWindow(engine(), "w", limit.PerDay(1),
				limit.Per(1, 367*24*time.Hour))
		},
		"guard \"w\"": func() {
			limit.NewSlidingWindow(engine(), "w", limit.PerSecond(1),
				limit.Per(-1, time.Hour))
		},
		"in text 10001/24h/1000": func() { limit.NewSlidingWindow(engine(), "w", limit.PerDay(10_001)) },
		"9007199254740991": func() {
			limit.NewFixedWindow(engine(), "w",
				limit.PerDay(core.MaxAmount+1))
		},
		"at most 10000000,": func() {
			limit.NewTokenBucket(engine(), "w", limit.PerSecond(1),
				limit.PerDay(10_000_001))
		},
		"no function for its limits": func() { limit.NewTokenBucketBy(engine(), "w", nil) },
		"1 to 1000": func() {
			votes.New(engine(), "v",
				votes.Options{Poll: votes.Poll{PerVoter: -1}})
		},
		"is never open": func() {
			votes.New(engine(), "v", votes.Options{Poll: votes.Poll{Opens: time.Unix(2, 0), Closes: time.Unix(1, 0)}})
		},
		"give 1 to 1000 (guard \"b\")": func() { bans.New(engine(), "b", bans.Options{Refusals: 1001}) },
		"a ban after -1 refusals":      func() { bans.New(engine(), "b", bans.Options{Refusals: -1}) },
		"a Period of -1s":              func() { bans.New(engine(), "b", bans.Options{Period: -time.Second}) },
		"a First of 1µs":               func() { bans.New(engine(), "b", bans.Options{First: time.Microsecond}) },
		"a Longest of 8808h0m0s": func() {
			bans.New(engine(), "b",
				bans.Options{Longest: 367 * 24 * time.Hour})
		},
		"a Decay of 1.0005s": func() {
			bans.New(engine(), "b",
				bans.Options{Decay: time.Second + 500*time.Microsecond})
		},
		"make First shorter": func() {
			bans.New(engine(), "b",
				bans.Options{First: time.Hour, Longest: time.Minute})
		},
		"voters could vote again":                   func() { votes.New(engine(), "v", votes.Options{Keep: time.Millisecond}) },
		"set Keep to a second or more (guard \"s\"": func() { seckill.New(engine(), "s", seckill.Options{Keep: -1}) },
		"no time to refund the rest": func() {
			redpacket.New(engine(), "r",
				redpacket.Options{Keep: time.Millisecond})
		},
		"script's name is empty": func() { script.New("", "return 1", script.AtMostOnce) },
		"has no source":          func() { script.New("x", " \n", script.AtMostOnce) },
		"Items is 0: set 1 to 10000": func() {
			quota.New(engine(), "q",
				quota.Options{Period: period.Daily(time.UTC)})
		},
		"quota: Items is 10001": func() {
			quota.New(engine(), "q",
				quota.Options{Items: 10_001, Period: period.Daily(time.UTC)})
		},
		"quota: Period is missing": func() { quota.New(engine(), "q", quota.Options{Items: 1}) },
		"return a period that contains it": func() {
			quota.New(engine(), "q", quota.Options{Items: 1,
				Period: func(t time.Time) (begins, ends time.Time) { return t, t }})
		},
		"pass time.UTC":    func() { period.Daily(nil) },
		"begin on a day":   func() { period.Weekly(time.UTC, 7) },
		"1s to 8784h0m0s":  func() { period.Every(time.Millisecond) },
		"Every(8784h0m1s)": func() { period.Every(kit.MaxTTL + time.Second) },
		"Every(1.0005s)":   func() { period.Every(1000500 * time.Microsecond) },
		"two guards are named \"a\"": func() {
			e := engine()
			limit.NewSlidingWindow(e, "a", limit.PerMinute(1))
			votes.New(e, "a", votes.Options{})
		},
	} {
		t.Run(text, func(t *testing.T) { guardtest.WantPanic(t, text, mistake) })
	}
}

// Promise: No constructor talks to Redis.
func TestConstructorsDoNotTalkToRedis(t *testing.T) {
	e := core.New(guardtest.NoClient{})
	for name, k := range limitKinds {
		k.make(e, name, limit.PerSecond(1), limit.PerHour(10))
		k.by(e, name+"By", func(context.Context, core.Attempt) ([]limit.Limit,
			error) {
			panic("there is no attempt yet")
		})
	}
	bans.New(e, "b", bans.Options{})
	votes.New(e, "v", votes.Options{})
	seckill.New(e, "s", seckill.Options{})
	redpacket.New(e, "r", redpacket.Options{})
	quota.New(e, "q", quota.Options{Items: 1, Period: period.Daily(time.UTC)})
	idempotency.New(e, "i", idempotency.Options{})
}

// Promise: Guards of different names share nothing.
func TestGuardsWithDifferentNamesShareNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		for _, g := range []core.Guard{limit.NewSlidingWindow(e, "a", limit.PerHour(1)),
			limit.NewSlidingWindow(e, "b", limit.PerHour(1)), limit.NewSlidingWindow(e, "c", limit.PerHour(2))} {
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "x"}), core.ReasonOK)
		}
	})
}

// every makes one call of each kind to every guard and fails on any error.
func every(t *testing.T, e *core.Engine) func(actor string) {
	t.Helper()
	window, ballots, sale := limit.NewSlidingWindow(e, "w", limit.PerHour(5)),
		votes.New(e, "v", votes.Options{}), seckill.New(e, "s", seckill.Options{})
	fixed, bucket := limit.NewFixedWindow(e, "f", limit.PerHour(5)),
		limit.NewTokenBucket(e, "b", limit.PerHour(5))
	shut := bans.New(e, "bans", bans.Options{Refusals: 1})
	packets := redpacket.New(e, "r", redpacket.Options{})
	quota := quota.New(e, "q", quota.Options{Items: 5, Period: period.Daily(time.UTC)})
	once := idempotency.New(e, "i", idempotency.Options{})
	openSale(t, sale, "tv", seckill.Sale{Stock: 1000})
	createPacket(t, packets, "tv",
		redpacket.Packet{Total: 1000, Shares: 10, Expires: time.Now().Add(time.Minute)})
	return func(actor string) {
		t.Helper()
		for _, g := range []core.Guard{window, fixed, bucket, ballots, sale, packets} {
			d := guardtest.Check(t, g, core.Attempt{Actor: actor, Resource: "tv"})
			guardtest.WantReason(t, d, core.ReasonOK)
			guardtest.Settle(t, g, d, guardtest.Ending(actor != "fails"))
		}
		for _, g := range []rateLimit{window, fixed, bucket} {
			peek(t, g, core.Attempt{Actor: actor, Resource: "tv"})
			refund(t, g, guardtest.Check(t, g, core.Attempt{Actor: actor, Resource: "tv"}))
			if err := g.Reset(t.Context(), core.Attempt{Actor: actor, Resource: "tv"}); err != nil {
				t.Fatal(err)
			}
		}
		guardtest.WantReason(t, guardtest.Check(t, shut, core.Attempt{Actor: actor}), core.ReasonOK)
		strikeOut(t, shut, core.Attempt{Actor: actor})
		ban(t, shut, core.Attempt{Actor: actor}, time.Hour)
		if got := banStatus(t, shut, core.Attempt{Actor: actor}); got.Left < time.Minute {
			t.Fatalf("banned for an hour: %+v", got)
		}
		unban(t, shut, core.Attempt{Actor: actor})
		if _, err := sale.Status(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		tally(t, ballots, "tv")
		if _, err := sale.Sweep(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		if _, err := packets.Refund(t.Context(), "tv"); !errors.Is(err, redpacket.ErrPacketOpen) {
			t.Fatal(err)
		}
		if _, err := packets.Verify(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		d := guardtest.Check(t, quota, core.Attempt{Actor: actor, Item: "a7"})
		guardtest.WantReason(t, d, core.ReasonOK)
		guardtest.Settle(t, quota, d, guardtest.Ending(actor != "fails"))
		if _, _, err := quota.Used(t.Context(), core.Attempt{Actor: actor}); err != nil {
			t.Fatal(err)
		}
		if err := quota.Reset(t.Context(), core.Attempt{Actor: actor}); err != nil {
			t.Fatal(err)
		}
		operation := core.Attempt{Actor: actor, ID: "o1"}
		d = guardtest.Check(t, once, operation)
		guardtest.WantReason(t, d, core.ReasonOK)
		guardtest.Settle(t, once, d, guardtest.Ending(actor != "fails"))
		if err := once.Reset(t.Context(), operation); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryKindOfClient(t *testing.T) {
	single := redistest.Single(t)
	for name, client := range map[string]func(t *testing.T) script.Client{
		"deadline obeyed": func(t *testing.T) script.Client {
			options := single.Options()
			options.ContextTimeoutEnabled = true
			return closing(t, redis.NewClient(options.Simple()))
		},
		"ring": func(t *testing.T) script.Client {
			return closing(t, redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": single.Options().Addrs[0]}}))
		},
		"auto-pipelining": func(t *testing.T) script.Client {
			ap, err := single.NewClient(t).AutoPipeline()
			if err != nil {
				t.Fatal(err)
			}
			return closing(t, ap)
		},
		"asynchronous auto-pipelining": func(t *testing.T) script.Client {
			ap, err := single.NewClient(t).AsyncAutoPipeline()
			if err != nil {
				t.Fatal(err)
			}
			return closing(t, ap)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := core.New(client(t), core.WithPrefix(redistest.Single(t).Prefix), core.WithDeadline(time.Minute))
			if err := e.Preload(t.Context()); err != nil {
				t.Fatal(err)
			}
			attempt := every(t, e)
			attempt("ann")
			attempt("fails")
		})
	}
}

type closer interface {
	script.Client
	Close() error
}

func closing(t *testing.T, c closer) script.Client {
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestScriptFlushIsInvisible(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		flush := func() {
			if err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
				return c.ScriptFlush(ctx).Err()
			}); err != nil {
				t.Fatal(err)
			}
		}
		e := guardtest.NewEngineOver(b, flushing{b.Client, flush})
		attempt := every(t, e)
		attempt("ann")
		attempt("fails")
	})
}

// flushing is a client whose server loses its scripts before every EVALSHA.
type flushing struct {
	script.Client
	flush func()
}

func (c flushing) Process(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Name() == "evalsha" {
		c.flush()
	}
	return c.Client.Process(ctx, cmd)
}

func TestPreloadReachesEveryMaster(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		votes.New(e, "v", votes.Options{})
		onMasters := func(f func(ctx context.Context, c *redis.Client) error) {
			t.Helper()
			if err := b.ForEachMaster(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		onMasters(func(ctx context.Context, c *redis.Client) error { return c.ScriptFlush(ctx).Err() })
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		onMasters(func(ctx context.Context, c *redis.Client) error {
			found, err := c.ScriptExists(ctx, voteScript.SHA(), voteUndoScript.SHA()).Result()
			if err == nil && (!found[0] || !found[1]) {
				t.Errorf("%s has loaded %v of the scripts", c.Options().Addr, found)
			}
			return err
		})
	})
}

func TestPreloadSaysWhatIsWrong(t *testing.T) {
	e := core.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}))
	votes.New(e, "v", votes.Options{})
	err := e.Preload(t.Context()) // of any of the guard's scripts: their order is random
	if err == nil || !strings.Contains(err.Error(), "core: preload script ") ||
		!strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("Preload: %v", err)
	}
}

func TestObserverReceivesEveryEvent(t *testing.T) {
	b := redistest.Mini(t)
	var h guardtest.Recorder
	e := guardtest.NewEngine(b, core.WithObserver(&h))
	every(t, e)("fails")
	b.Mini.SetError("ERR the dog ate it") // says nothing about other calls
	if _, err := limit.NewSlidingWindow(e, "w2", limit.PerHour(1)).Check(t.Context(),
		core.Attempt{Actor: "x"}); err == nil {
		t.Fatal("no error")
	}
	b.Mini.SetError("")
	var ops []string
	for _, event := range h.Events {
		ops = append(ops, event.Guard+" "+event.Op)
	}
	want := "s open, r create, w check, w settle, f check, f settle, b check, b settle, v check, v settle, s " +
		"check, s cancel, r check, " +
		"w peek, w check, w refund, w reset, f peek, f check, f refund, f reset, b peek, b check, b refund, b " +
		"reset, " +
		"bans check, bans strike, bans strike, bans ban, bans status, bans unban, s status, v tally, s sweep, r " +
		"refund, r verify, " +
		"q check, q settle, q used, q reset, i check, i settle, i reset, w2 check"
	if got := strings.Join(ops, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	last := h.Events[len(h.Events)-1]
	if last.Err == nil || !strings.Contains(last.Err.Error(), `core: check "w2": script sliding_window: `) ||
		last.Took <= 0 {
		t.Errorf("%+v", last)
	}
}

func TestErrorsAreLoggedOnceASecond(t *testing.T) { synctest.Test(t, errorsAreLoggedOnceASecond) }

func errorsAreLoggedOnceASecond(t *testing.T) {
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	o := core.LogErrors()
	for range 100 {
		o.Observe(t.Context(), core.Event{Guard: "w", Op: "check", Err: errors.New("down")})
	}
	o.Observe(t.Context(), core.Event{Guard: "w", Op: "check"})
	// for the caller, not for the log
	for _, err := range []error{core.ErrInvalid, seckill.ErrTooFewLeft, seckill.ErrNoSale} {
		o.Observe(t.Context(), core.Event{Guard: "s", Op: "restock", Err: fmt.Errorf("core: restock: %w", err)})
	}
	<-time.After(time.Second) // of the bubble's clock
	o.Observe(t.Context(), core.Event{Guard: "w", Op: "check", Err: errors.New("down")})
	if n := strings.Count(log.String(), "level=WARN"); n != 2 ||
		!strings.Contains(log.String(), "errors_not_logged=99") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}
