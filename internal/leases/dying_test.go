package leases_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// mortal is a process that can die: all its connections end, and it gets no others before it is revived.
type mortal struct {
	redis *miniredis.Miniredis
	rdb   *redis.Client
	gate  *core.Engine
	guard core.Guard
	held  atomic.Int64 // claims that it holds
	got   atomic.Int64 // claims that it has got

	mu    sync.Mutex
	dead  bool
	links []net.Conn
}

func newMortal(m *miniredis.Miniredis, kind string) *mortal {
	p := &mortal{redis: m}
	p.rdb = redis.NewClient(&redis.Options{Addr: "redis", Dialer: p.dial, ContextTimeoutEnabled: true,
		MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
	p.gate = core.New(p.rdb, core.WithClock(time.Now), // the bubble's
		core.WithLogger(slog.New(slog.DiscardHandler)))
	if kind == "lock" {
		p.guard = lock.New(p.gate, "crowded", lock.Options{Wait: time.Minute})
	} else {
		p.guard = semaphore.New(p.gate, "crowded", semaphore.Options{Max: 1, Wait: time.Minute})
	}
	return p
}

func (p *mortal) dial(context.Context, string, string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, errors.New("the process is dead")
	}
	link, err := p.redis.Dial()
	if err == nil {
		p.links = append(p.links, link)
	}
	return link, err
}

func (p *mortal) set(dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = dead
	for _, link := range p.links {
		_ = link.Close() // it may have ended
	}
	p.links = nil
}

// stand lets so many attempts take the claim, hold it for 15 ms and give it back, until the context ends.
func (p *mortal) stand(ctx context.Context, all *sync.WaitGroup, actor string, many int) {
	for i := range many {
		all.Go(func() {
			for ctx.Err() == nil {
				d, err := p.guard.Check(ctx, core.Attempt{Actor: fmt.Sprint(actor, i), Resource: "p"})
				if err != nil || !d.Allowed {
					<-time.After(time.Millisecond)
					continue
				}
				p.held.Add(1)
				p.got.Add(1)
				<-time.After(5 * work)
				_ = p.guard.Settle(context.WithoutCancel(ctx), d, core.Commit) // else its lease ends
				p.held.Add(-1)
			}
		})
	}
}

// TestProcessesThatDieStarveNobody: processes whose attempts stand in line die once a second each, while they
// hold nothing, and are started again. Those that live get half of what they get alone, beside six of them.
func TestProcessesThatDieStarveNobody(t *testing.T) {
	kinds := []string{"lock", "semaphore"}
	if !redistest.All() {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			alone, counts := beside(t, kind, 0), []int{1, 2, 4, 6}
			if kind == "lock" { // its line is the same
				counts = counts[3:]
			}
			for _, dying := range counts {
				got := beside(t, kind, dying)
				t.Logf("%d grants beside %d processes that die once a second, %d alone: %.2f", got, dying, alone,
					float64(got)/float64(alone))
				if 2*got < alone {
					t.Errorf("%d grants beside %d processes that die: want half of %d", got, dying, alone)
				}
			}
		})
	}
}

// beside returns how many claims two processes get beside so many that die.
func beside(t *testing.T, kind string, dying int) (got int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		defer m.Close()
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		live := []*mortal{newMortal(m, kind), newMortal(m, kind)}
		for _, p := range live {
			p.stand(ctx, &all, "user", crowd)
		}
		started := append([]*mortal(nil), live...)
		start := func() *mortal {
			p := newMortal(m, kind)
			p.stand(ctx, &all, "mortal", few)
			started = append(started, p)
			return p
		}
		const lives = 2
		processes, due := make([]*mortal, dying), make([]time.Time, dying)
		begun := time.Now()
		for i := range processes {
			processes[i], due[i] = start(), begun.Add(life*time.Duration(i+1)/time.Duration(dying))
		}
		for time.Since(begun) < lives*life {
			<-time.After(5 * time.Millisecond)
			for i, p := range processes {
				if time.Now().Before(due[i]) {
					continue
				}
				if synctest.Wait(); p.held.Load() == 0 {
					p.set(true)
					processes[i], due[i] = start(), due[i].Add(life)
				}
			}
		}
		got = live[0].got.Load() + live[1].got.Load()
		end()
		for _, p := range started {
			p.set(false)
		}
		all.Wait()
		for _, p := range started {
			if err := p.gate.Drain(context.Background()); err != nil {
				t.Error(err)
			}
			_ = p.rdb.Close()
		}
		<-time.After(time.Minute) // they listen for a while
	})
	return got
}
