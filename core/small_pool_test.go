package core_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestASmallPoolIsEnoughForSharedCalls: with a PoolSize of 4, 128 callers each of a limit, a poll and a sale
// are all answered, over no more connections than that. From 9.23 on, go-redis has as many more for pipelines as
// PipelinePoolSize says.
func TestASmallPoolIsEnoughForSharedCalls(t *testing.T) {
	t.Parallel()
	const callers, pool = 128, 4
	each := 5
	if redistest.All() {
		each = 20
	}
	s := redistest.StartServer(t)
	options := s.Options()
	options.PoolSize, options.ReadTimeout = pool, time.Minute
	most := pool
	if beside := reflect.ValueOf(options).Elem().FieldByName("PipelinePoolSize"); beside.IsValid() {
		beside.SetInt(pool)
		most += pool
	}
	rdb := redis.NewUniversalClient(options)
	defer func() { _ = rdb.Close() }()
	gate := core.New(rdb, core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{}))
	sale := seckill.New(gate, "sale", seckill.Options{})
	if _, err := sale.Open(t.Context(), "tv", seckill.Sale{Stock: int64(callers * each)}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	errs := make(chan error, 3*callers)
	for n, g := range []core.Guard{limit.NewSlidingWindow(gate, "api", limit.PerHour(int64(each))),
		votes.New(gate, "poll", votes.Options{}), sale} {
		for caller := range callers {
			all.Go(func() {
				for call := range each {
					a := core.Attempt{Actor: fmt.Sprint("ann", caller)}
					if n > 0 {
						a = core.Attempt{Actor: fmt.Sprint("ann", caller, "-", call), Resource: "tv", Item: "red"}
					}
					if d, err := g.Check(t.Context(), a); err != nil || !d.Allowed {
						errs <- fmt.Errorf("%s: %+v, %w", g.Name(), d, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	close(errs)
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Error(err)
	}
	if n := strings.Count(s.Client(t).ClientList(t.Context()).Val(), "cmd=evalsha"); n < 1 || n > most {
		t.Errorf("%d connections with calls, want %d at most", n, most)
	}
}
