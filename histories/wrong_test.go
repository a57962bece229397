package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestProcessesThatShareNothingAreFound makes every guard wrong: one of the processes counts for itself, as
// if it had read and written a stale state. The checker finds it in each guard.
func TestProcessesThatShareNothingAreFound(t *testing.T) {
	wantFound(t, subjects(), func(process int, prefix string, _ redis.UniversalClient) string {
		if process == 1 {
			return prefix + "alone"
		}
		return prefix
	})
}

// TestRetriesThatCountTwiceAreFound sends one call in four twice, the second time under another operation ID,
// as a guard would that forgets IDs. Votes are left out: their limit per voter catches such a retry.
func TestRetriesThatCountTwiceAreFound(t *testing.T) {
	var counting []subject
	for _, s := range subjects() {
		if !strings.HasPrefix(s.name, "votes") && !strings.HasPrefix(s.name, "idempotency") {
			counting = append(counting, s)
		}
	}
	wantFound(t, counting, func(_ int, prefix string, rdb redis.UniversalClient) string {
		rdb.AddHook(twice{})
		return prefix
	})
}

// wantFound wants a history of each guard that the checker rejects.
func wantFound(t *testing.T, all []subject, wrong func(int, string, redis.UniversalClient) string) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := redistest.Single(t)
	for i, s := range all {
		t.Run(s.name, func(t *testing.T) {
			w := &world{wrong: wrong}
			w.start(t, b.Prefix+fmt.Sprint(i), b.Options(), deadline)
			begin, call := s.open(t, w)
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for n := range 100 {
				h, err := s.run(w, fmt.Sprint("history-", n), rng.Uint64(), begin, call)
				if err != nil {
					t.Fatal(err)
				}
				if h.verdict() == porcupine.Illegal {
					t.Logf("found in history %d", n)
					return
				}
			}
			t.Error("the checker has found nothing in 100 histories")
		})
	}
}

// twice sends scripts a second time.
type twice struct{}

func (twice) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && rand.IntN(4) == 0 {
			var args []any
			for _, arg := range cmd.Args() {
				if text, ok := arg.(string); ok {
					arg = strings.ReplaceAll(text, "op%20", "again%20")
				}
				args = append(args, arg)
			}
			_ = next(ctx, redis.NewCmd(ctx, args...)) // only its effect matters
		}
		return next(ctx, cmd)
	}
}

func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
