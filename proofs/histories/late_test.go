package histories

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
)

// late returns a world in which one claim in so many arrives after its undo: its caller gave up, and the
// network delivers it when the undo has been answered.
func late(oneIn int) func(t *testing.T) *world {
	return func(t *testing.T) *world {
		w := shared(redistest.Single)(t)
		w.late = true
		for _, rdb := range w.clients {
			rdb.AddHook(&lateHook{oneIn: oneIn, held: map[string][]any{}})
		}
		return w
	}
}

var errLate = errors.New("i/o timeout")

// claims are the scripts whose calls may be late, by the place of the call in their arguments, and undos
// those that take them back.
var (
	claims = map[string]int{sha(lua.Source("votes/vote")): 6, sha(lua.Source("quota/quota")): 7,
		sha(lua.Source("seckill/reserve")): 5, sha(lua.Source("semaphore/acquire")): 2,
		budgetCheck: 1}
	undos = map[string]int{sha(lua.Source("votes/undo")): 1, sha(lua.Source("quota/undo")): 2,
		sha(lua.Source("seckill/cancel")): 1, sha(lua.Source("semaphore/release")): 0,
		sha(lua.Source("budget/refund")): 1}
)

var budgetCheck = sha(lua.Source("budget/check"))

func sha(script string) string { return redis.NewScript(script).Hash() }

// lateHook holds claims back until it sees their undo.
type lateHook struct {
	oneIn int

	mu   sync.Mutex
	held map[string][]any // by the call
}

func (h *lateHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *lateHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if call, ok := callIn(args, claims); ok && h.holds(call, args) {
			cmd.SetErr(errLate)
			return errLate
		}
		call, ok := callIn(args, undos)
		err := next(ctx, cmd)
		if !ok || err != nil {
			return err
		}
		h.mu.Lock()
		args, ok = h.held[call]
		delete(h.held, call)
		h.mu.Unlock()
		if ok {
			_ = next(ctx, redis.NewCmd(ctx, args...)) // nobody waits for its answer
		}
		return nil
	}
}

// holds reports whether a call is late. What the client sends again for it is, too.
func (h *lateHook) holds(call string, args []any) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[call] == nil && rand.IntN(h.oneIn) > 0 {
		return false
	}
	h.held[call] = slices.Clone(args)
	return true
}

func (h *lateHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// isTakenBack reports whether a check of a budget is taken back when its reply is lost: no look, nor what is
// spent already, and only where a period counts.
func isTakenBack(args []any, place int) bool {
	root, _ := args[3].(string)
	return args[place-1] != int64(0) && args[place+1] == "0" && strings.Contains(root, "budget-of-periods")
}

// callIn returns the call that a command has among the arguments of its script.
func callIn(args []any, scripts map[string]int) (call string, ok bool) {
	if len(args) < 3 || args[0] != "evalsha" {
		return "", false
	}
	script, _ := args[1].(string)
	place, ok := scripts[script]
	keys, _ := args[2].(int)
	if place += 3 + keys; !ok || place >= len(args) {
		return "", false
	}
	call, ok = args[place].(string)
	return call, ok && call != "" && (script != budgetCheck || isTakenBack(args, place))
}
