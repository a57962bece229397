package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
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
// as a guard would that forgets IDs. Votes and red packets are left out: a voter has few votes and a user one
// share, which catches such a retry.
func TestRetriesThatCountTwiceAreFound(t *testing.T) {
	var counting []subject
	for _, s := range subjects() {
		if !strings.HasPrefix(s.name, "votes") && s.name != "idempotency" && s.name != "red packet" {
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
		if s.acked { // it needs a replica
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			w := &world{wrong: wrong}
			w.start(t, b.Prefix+fmt.Sprint(i), b.Options(), deadline)
			found(t, w, rand.New(rand.NewPCG(seed, uint64(i))), s, 100)
		})
	}
}

// found wants the checker to reject one of so many histories of a guard.
func found(t *testing.T, w *world, rng *rand.Rand, s subject, histories int) {
	t.Helper()
	begin, call := s.open(t, w)
	for n := range histories {
		h, err := s.run(w, fmt.Sprint("history-", n), rng.Uint64(), begin, call)
		if err != nil && w.breaks {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !eagerly(s.model, h.ops, 20*ms) && h.plain(500*ms) == porcupine.Illegal {
			t.Logf("found in history %d", n)
			return
		}
	}
	t.Errorf("the checker has found nothing in %d histories", histories)
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

// mutation is a guard that breaks one promise, because one of its scripts has another text.
type mutation struct {
	name, subject string
	world         func(t *testing.T) *world
	script        string
	from, to      string
}

var mutations = []mutation{
	{"votes come back below a change", "votes: change", shared(redistest.Single), lua.Source("votes/undo"),
		"if string.sub(one, 1, 3) ~= string.sub(none, 1, 3) then", "if false then"},
	{"a vote that is kept is not", "votes: two each", shared(redistest.Single), lua.Source("votes/keep"),
		"redis.call('HSET', operations,", "redis.call('HMGET', operations,"},
	{"replays of votes look like first answers", "votes: two each", losing, lua.Source("votes/vote"),
		"stored .. ' +' .. call", "stored .. ' ' .. call"},
	{"replays of a sale look like first answers", "sale", losing, lua.Source("seckill/reserve"),
		"record .. ' ' .. call", "record .. ' +' .. call"},
	{"late votes count", "votes: two each", late(3), lua.Source("votes/undo"), "if late then", "if false then"},
	{"late votes beside another count", "votes: two each", late(3), lua.Source("votes/undo"),
		"elseif updated ~= stored and form ~= '|' then", "elseif false then"},
	{"late items count", "quota", late(3), lua.Source("quota/undo"),
		"if not told then\n  if within ~= '0' then", "if not told then\n  if false then"},
	{"late permits are held", "semaphore", late(3), lua.Source("semaphore/release"), "if within ~= '0' then",
		"if false then"},
	{"a permit too many is held", "semaphore", shared(redistest.Single), lua.Source("semaphore/acquire"),
		"elseif held + cost > max or", "elseif held + cost > max + 1 or"},
	{"two hold a lock", "lock", shared(redistest.Single), lua.Source("semaphore/acquire"),
		"elseif held + cost > max or", "elseif false or"},
	{"a fence comes again", "lock", shared(redistest.Single), lua.Source("semaphore/acquire"),
		"math.max(fence + 1, micro)", "micro"},
	{"late locks are held", "lock", late(3), lua.Source("semaphore/release"), "if within ~= '0' then", "if false then"},
	{"a task is claimed twice", "delay", shared(redistest.Single), lua.Source("delay/claim"),
		"redis.call('ZREM', due, id)", "redis.call('ZREM', dead, id)"},
	{"the word of another claim counts", "delay", shared(redistest.Single), lua.Source("delay/ack"), "holds ~= fence or ", ""},
	{"a task has a try too many", "delay", shared(redistest.Single), lua.Source("delay/nack"), "try >= tries then",
		"try > tries then"},
	{"a task that is cancelled runs", "delay", shared(redistest.Single), lua.Source("delay/remove"),
		"redis.call('ZREM', due, id)", "redis.call('ZREM', dead, id)"},
	{"a task that is done runs again", "delay", shared(redistest.Single), lua.Source("delay/schedule"),
		"if state and not (", "if state == 'p' and not ("},
	{"a claim that is sent again gets nothing", "delay", losing, lua.Source("delay/claim"), "if told[1] then", "if false then"},
	{"a claim that failed keeps its tasks", "delay", losing, lua.Source("delay/release"),
		"redis.call('ZREM', running, id)", "try = try + 1"},
	{"who is not called enters", "waiting room", shared(redistest.Single), lua.Source("waitingroom/enter"),
		"if byte == 255 and state == 'open' and free >= 0", "if byte ~= own + 127 and state == 'open'"},
	{"a number enters twice", "waiting room", shared(redistest.Single), lua.Source("waitingroom/enter"),
		"elseif byte == own + 127 or byte == own and had <= now then\n  answer = {'over', now}\nelse",
		"else\n  byte = byte == own + 127 and 255 or byte"},
	{"the second is called first", "waiting room", shared(redistest.Single), lua.Source("waitingroom/tick"),
		"return place >= 0 and place or nil",
		"return place >= 0 and place + redis.call('GETBIT', here, place + 1) or nil"},
	{"who left is inside", "waiting room", shared(redistest.Single), lua.Source("waitingroom/leave"),
		"redis.call('ZREM', inside, member)", "redis.call('ZREM', called, member)"},
	{"an entry that is sent again is another one", "waiting room", losing, lua.Source("waitingroom/enter"),
		"elseif ends then", "elseif false then"},
	{"items that many share go back", "quota", shared(redistest.Single), lua.Source("quota/quota"),
		"told .. ' *'", "told"},
	{"late reservations hold units", "sale", late(3), lua.Source("seckill/cancel"),
		"if not any then", "if false then"},
	{"late reservations of a cancelled ID hold units", "sale", late(3), lua.Source("seckill/cancel"),
		"marks = marks .. ' -' .. call", "marks = marks"},
	{"another buyer has a cancelled ID", "sale", shared(redistest.Single), lua.Source("seckill/reserve"),
		"if who ~= buyer or", "if (who ~= buyer and state ~= 'cancelled') or"},
	{"another buyer confirms", "sale", shared(redistest.Single), lua.Source("seckill/confirm"),
		"if named ~= buyer then", "if false then"},
	{"a cancelled reservation is sold", "sale", shared(redistest.Single), lua.Source("seckill/confirm"),
		"elseif state == 'cancelled' then", "elseif false then"},
	{"the limit of a buyer is forgotten", "sale of buckets", shared(redistest.Single), lua.Source("seckill/reserve"),
		"+ quantity > per_buyer then", "+ quantity > per_buyer + 1 then"},
	{"loans arrive twice", "sale of buckets", shared(redistest.Single), lua.Source("buckets/accept"),
		"if tonumber(number) <= tonumber(s[6] or 0) then", "if false then"},
	{"a refunded packet is open again", "red packet", jumping, lua.Source("redpacket/grab"),
		"if refunded or now >= expires then", "if now >= expires then"},
	{"a packet is refunded early", "red packet", jumping, lua.Source("redpacket/refund"),
		"if now < expires then", "if false then"},
	{"units of the future leave late", "sliding window", jumping, lua.Source("limit/sliding_window"),
		"redis.call('LINDEX', log, '-1') + base > at", "false"},
	{"a window of the future stays there", "fixed window", jumping, lua.Source("limit/fixed_window"),
		"if over - window > now then", "if false then"},
	{"a bucket of the future stays there", "token bucket", jumping, lua.Source("limit/token_bucket"),
		"if late > 0 then", "if false then"},
	{"a debt is charged twice", "sliding window", losing, lua.Source("limit/sliding_settle"),
		"if string.find(names, name .. ' ', 1, true) then", "if false then"},
	{"a debt is forgotten", "fixed window", shared(redistest.Single), lua.Source("limit/fixed_window_settle"),
		"+ changed, 9007199254740991)", "+ 0, 9007199254740991)"},
	{"a debt ends with the bucket", "token bucket", shared(redistest.Single), lua.Source("limit/token_bucket_settle"),
		"(now + window + LONGEST)", "(now + window)"},
	{"a ban of the future stays there", "bans", jumping, lua.Source("bans/ban"), "if begin > now then", "if false then"},
	{"strikes of the future ban", "bans", jumping, lua.Source("bans/ban"), "last and last + 0 > now", "false"},
	{"strikes of a former period ban", "bans", jumping, lua.Source("bans/ban"), "or now - oldest >= period * 1000 then", "then"},
	{"bans do not grow", "bans", jumping, lua.Source("bans/ban"), "first * 2 ^ level", "first"},
	{"bans do not decay", "bans", jumping, lua.Source("bans/ban"),
		"level = math.max(level - math.floor((now - finish) / (decay * 1000)), 0)", "level = level"},
	{"a sale that is over goes on", "sale", jumping, lua.Source("seckill/reserve"),
		"elseif closes > 0 and now >= closes then", "elseif false then"},
	{"what a user is refused counts", "budget", shared(redistest.Single), lua.Source("budget/check"),
		"if reply[1] ~= 'ok' or cost == 0 then", "if reply[1] ~= 'ok' and reply[6] ~= 0 or cost == 0 then"},
	{"a period has a unit more", "budget of periods", shared(redistest.Single), lua.Source("budget/check"),
		"p.used + need > hard and", "p.used + need > hard + 1 and"},
	{"an override is ignored", "budget", shared(redistest.Single), lua.Source("control/set"),
		"redis.call('HSET', root, ARGV[1], ends .. ' ' .. id .. ' ' .. ARGV[2],", "redis.call('HSET', root,"},
	{"an override never ends", "budget", jumping, lua.Source("budget/check"), "(ends == 0 or ends > today)", "true"},
	{"units go back twice", "budget", losing, lua.Source("budget/refund"), "state == '=' or ", ""},
	{"units go back at the organisation only", "budget", shared(redistest.Single), lua.Source("budget/refund"),
		"for i = 1, (#KEYS - 3) / 2 do", "for i = 1, 1 do"},
	{"late units count", "budget of periods", late(3), lua.Source("budget/check"), "if known == '-' or ", "if "},
	{"a clock that is set back gives a second period", "budget of periods", jumping, lua.Source("budget/check"),
		"now = math.max(now, l.was.begins * 1000)", "now = now"},
	{"units of the future do not count", "budget", jumping, lua.Source("budget/check"),
		"now = math.max(now, l.late)", "now = now"},
	{"what is restored again counts twice", "budget of periods", shared(redistest.Single), lua.Source("budget/restore"),
		"used - had", "used - 0"},
	{"a poll has begun before it opens", "votes: change", jumping, lua.Source("votes/vote"),
		"if now < opens then", "if false then"},
}

// losing is a world in which three replies in ten of a changed script are lost.
func losing(t *testing.T) *world {
	w := shared(redistest.Single)(t)
	w.breaks = true
	w.faults.SwallowEvery("eval", 0.3, rand.New(rand.NewPCG(rand.Uint64(), 0)))
	return w
}

// TestBrokenPromisesAreFound breaks one promise after the other.
func TestBrokenPromisesAreFound(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			if strings.Count(m.script, m.from) != 1 {
				t.Fatalf("the script has %q %d times", m.from, strings.Count(m.script, m.from))
			}
			hook := changed{sha(m.script), strings.Replace(m.script, m.from, m.to, 1)}
			w := m.world(t)
			for _, e := range w.clients {
				e.AddHook(hook)
			}
			w.callers = 4 // so that the checker is fast
			guard := slices.IndexFunc(subjects(), func(s subject) bool { return s.name == m.subject })
			found(t, w, rand.New(rand.NewPCG(seed, uint64(i))), subjects()[guard], 4000)
		})
	}
}

// changed runs another script in place of the one with a SHA-1.
type changed struct{ sha, script string }

func (c changed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c changed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); args[0] == "evalsha" && args[1] == c.sha {
			args[0], args[1] = "eval", c.script
		}
		return next(ctx, cmd)
	}
}

func (c changed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
