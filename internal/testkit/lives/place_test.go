package lives

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// epoch is when each life begins: after any day on which this runs, so that no PEXPIREAT is in the past.
var epoch = time.Date(2096, 3, 20, 12, 0, 0, 0, time.UTC)

// A place is where a worker's lives take place: a database, a clock, and the calls that were sent.
type place struct {
	Clock *guardtest.Clock

	t    testing.TB
	rdb  *redis.Client // of guards: their calls are recorded
	raw  *redis.Client
	abs  string // see life.absolute
	mu   sync.Mutex
	sent []sent

	begun time.Time // when this life began, by the clock of the machine
}

// sent is a script's call, and when it was sent.
type sent struct {
	args []any
	at   time.Time
}

// newPlace makes a place for a life in the database.
func newPlace(t testing.TB, server *redistest.Server, database int, l *life) *place {
	t.Helper()
	opt := server.Options().Simple()
	opt.DB = database
	p := &place{Clock: guardtest.NewClock(), t: t, abs: l.absolute, rdb: redis.NewClient(opt),
		raw: redis.NewClient(opt)}
	p.rdb.AddHook(p)
	t.Cleanup(func() { _, _ = p.rdb.Close(), p.raw.Close() })
	p.reset()
	return p
}

// Engine makes the engine of one more process. It remembers no refusals, unless an option says otherwise.
func (p *place) Engine(options ...core.Option) *core.Engine {
	return core.New(p.rdb, append([]core.Option{core.WithDeadline(10 * time.Second),
		core.WithObserver(guardtest.Ignore{}), core.WithRefusalMemory(0),
		core.WithClock(p.Clock.Now)}, options...)...)
}

// MemoryEngine makes an engine without Redis.
func (p *place) MemoryEngine(options ...core.Option) *core.Engine {
	return core.NewMemory(append([]core.Option{core.WithObserver(guardtest.Ignore{}), core.WithRefusalMemory(0),
		core.WithClock(p.Clock.Now)}, options...)...)
}

// Now returns the clock's time.
func (p *place) Now() time.Time { return p.Clock.Now() }

// ages moves the TTL of each key by ARGV[1] milliseconds. Keys with ARGV[2] in them expire at a moment of the clock,
// which shows ARGV[3].
var ages = redis.NewScript(`
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if ARGV[2] ~= '' and string.find(key, ARGV[2], 1, true) and redis.call('PEXPIRETIME', key) > 3e12 then
    if redis.call('PEXPIRETIME', key) <= ARGV[3] + 0 then redis.call('DEL', key) end
  elseif left >= 0 then
    if left <= ARGV[1] + 0 then redis.call('DEL', key) else redis.call('PEXPIRE', key, left - ARGV[1]) end
  end
end`)

// ends returns the keys without a TTL, and empties the database.
var ends = redis.NewScript(`
local bare = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', key) == -1 then bare[#bare + 1] = key end
end
redis.call('FLUSHDB', 'SYNC')
return bare`)

// Pass moves the clock, also back, and what is left of each key's time.
func (p *place) Pass(d time.Duration) {
	p.Clock.Advance(d)
	err := ages.Run(context.Background(), p.raw, nil, d.Milliseconds(), p.abs, p.Now().UnixMilli()).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		p.t.Errorf("time passes: %v", err)
	}
}

// PassUntil moves the clock to a moment, also back.
func (p *place) PassUntil(at time.Time) { p.Pass(at.Sub(p.Now())) }

// Flush empties the Redis, as FLUSHALL or a restart without persistence does.
func (p *place) Flush() {
	if err := p.raw.FlushDB(context.Background()).Err(); err != nil {
		p.t.Errorf("flush: %v", err)
	}
}

// A snapshot is what the Redis had at a moment.
type snapshot struct {
	at   time.Time
	keys map[string]string
	ends map[string]time.Duration // since 1970, by the clock of the Redis
	real time.Time
}

// Save copies what the Redis has.
func (p *place) Save() snapshot {
	ctx := context.Background()
	s := snapshot{p.Now(), map[string]string{}, map[string]time.Duration{}, time.Now()}
	keys, err := p.raw.Keys(ctx, "*").Result()
	for _, key := range keys {
		dump, wrong := p.raw.Dump(ctx, key).Result()
		if errors.Is(wrong, redis.Nil) { // has expired
			continue
		}
		expires, late := p.raw.PExpireTime(ctx, key).Result()
		err = errors.Join(err, wrong, late)
		s.keys[key], s.ends[key] = dump, expires
	}
	if err != nil {
		p.t.Errorf("save: %v", err)
	}
	return s
}

// Load brings the Redis back to a snapshot, as a failover to a replica that was behind does.
func (p *place) Load(s snapshot) {
	p.Flush()
	for key, dump := range s.keys {
		left := s.ends[key] - time.Duration(s.real.UnixNano()) - p.Now().Sub(s.at)
		if p.abs != "" && strings.Contains(key, p.abs) {
			left = s.ends[key] - time.Duration(p.Now().UnixNano())
		}
		if left > 0 {
			if err := p.raw.Restore(context.Background(), key, left, dump).Err(); err != nil {
				p.t.Errorf("load: %v", err)
			}
		}
	}
}

// Sent returns how many script calls this life has sent so far.
func (p *place) Sent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sent)
}

// Again sends a script call of this life once more, as a network may do: Again(p.Sent()-1) the last one. Its
// argument now becomes the time of now.
func (p *place) Again(call int) error {
	_, err := p.AgainFor(call)
	return err
}

// AgainFor is Again, and returns the reply.
func (p *place) AgainFor(call int) (any, error) {
	p.mu.Lock()
	c := p.sent[call]
	p.mu.Unlock()
	args, now := slices.Clone(c.args), p.Now()
	for i, arg := range args {
		switch fmt.Sprint(arg) {
		case strconv.FormatInt(c.at.UnixMicro(), 10):
			args[i] = now.UnixMicro()
		case strconv.FormatInt(c.at.UnixMilli(), 10):
			args[i] = now.UnixMilli()
		}
	}
	reply, err := p.raw.Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	return reply, nil
}

// reset begins a life: nothing in the Redis, nothing sent, the clock at the epoch. It returns the keys that
// the life before left without a TTL.
func (p *place) reset() (bare []string) {
	p.Clock.Advance(epoch.Sub(p.Now()))
	bare, err := ends.Run(context.Background(), p.raw, nil).StringSlice()
	if err != nil {
		p.t.Errorf("reset: %v", err)
	}
	p.mu.Lock()
	p.sent, p.begun = nil, time.Now()
	p.mu.Unlock()
	return bare
}

// note records a script's call.
func (p *place) note(cmd redis.Cmder) {
	if name := cmd.Name(); name == "evalsha" || name == "eval" {
		p.mu.Lock()
		p.sent = append(p.sent, sent{slices.Clone(cmd.Args()), p.Now()})
		p.mu.Unlock()
	}
}

// DialHook implements redis.Hook.
func (p *place) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (p *place) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { p.note(cmd); return next(ctx, cmd) }
}

// ProcessPipelineHook implements redis.Hook.
func (p *place) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			p.note(cmd)
		}
		return next(ctx, cmds)
	}
}
