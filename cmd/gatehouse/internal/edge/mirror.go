package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// ban is a ban of one actor.
type ban struct {
	actor  string
	hashed bool      // the actor's text was too long for a key, and only its hash is known
	finish int64     // by the clock of the server, in microseconds since 1970
	ends   time.Time // the same, by the clock of this process
}

// mirror has the bans of one guard, as Redis knows them.
//
// No key lists the bans of a guard: each actor's key has one. SCAN finds them, once per connection. From then
// on Redis tells which of them change (CLIENT TRACKING with BCAST and a prefix, Redis 6.0), and each of these
// is read again. So the cost is that of the changes, whatever else the Redis holds.
type mirror struct {
	rdb     redis.UniversalClient
	prefix  string // of the keys, with the brace in front of the actor
	timeout time.Duration

	mu   sync.Mutex
	bans map[string]ban // by key
	snapshot
}

// snapshot is what a mirror knows at a moment.
type snapshot struct {
	all      []ban // that have not ended, those that end last in front
	version  int   // grows when bans change
	complete bool  // all bans are known, and all changes have been read
	err      error // why changes cannot be read now
}

func newMirror(rdb redis.UniversalClient, prefix string, timeout time.Duration) *mirror {
	return &mirror{rdb: rdb, prefix: prefix, timeout: timeout, bans: map[string]ban{}}
}

// current returns the bans that last beyond now.
func (m *mirror) current(now time.Time) snapshot {
	m.mu.Lock()
	s := m.snapshot
	for key, b := range m.bans {
		if b.ends.After(now) {
			s.all = append(s.all, b)
		} else {
			delete(m.bans, key)
		}
	}
	m.mu.Unlock()
	byEnd(s.all)
	return s
}

// state returns the snapshot without the bans.
func (m *mirror) state() snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot
}

// known returns the keys of the known bans.
func (m *mirror) known() (keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.bans {
		keys = append(keys, key)
	}
	return keys
}

// isBan reports whether a key is that of a ban, rather than one of strikes.
func (m *mirror) isBan(key string) bool {
	return strings.HasPrefix(key, m.prefix) && strings.HasSuffix(key, "}")
}

// masters returns the servers that have keys, by their address.
func (m *mirror) masters(ctx context.Context) (map[string]*redis.Client, error) {
	switch rdb := m.rdb.(type) {
	case *redis.Client:
		return map[string]*redis.Client{rdb.Options().Addr: rdb}, nil
	case *redis.ClusterClient:
		ctx, cancel := context.WithTimeout(ctx, m.timeout)
		defer cancel()
		var mu sync.Mutex
		all := map[string]*redis.Client{}
		err := rdb.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all[c.Options().Addr] = c
			return nil
		})
		if err == nil && len(all) == 0 {
			err = errors.New("the cluster has no masters")
		}
		return all, err
	}
	return nil, fmt.Errorf("a %T is not supported", m.rdb)
}

// scanned is how many keys Redis looks at in one call of SCAN.
const scanned = 1000

// scan calls found with the keys of the bans on one server, page by page, some of them maybe twice.
func (m *mirror) scan(ctx context.Context, c *redis.Client, found func(keys []string) error) error {
	for cursor := uint64(0); ; {
		call, cancel := context.WithTimeout(ctx, m.timeout)
		keys, next, err := c.Scan(call, cursor, m.prefix+"*}", scanned).Result()
		cancel()
		if err == nil && len(keys) > 0 {
			err = found(slices.DeleteFunc(keys, func(key string) bool { return !m.isBan(key) }))
		}
		if err != nil || next == 0 {
			return err
		}
		cursor = next
	}
}

// once reads all bans, and does not follow them.
func (m *mirror) once(ctx context.Context) error {
	masters, err := m.masters(ctx)
	if err != nil {
		return err
	}
	var moving []string
	for _, c := range masters {
		err := m.scan(ctx, c, func(keys []string) error {
			more, err := m.read(ctx, keys)
			moving = append(moving, more...)
			return err
		})
		if err != nil {
			return err
		}
	}
	for begun := time.Now(); len(moving) > 0; {
		if time.Since(begun) > m.timeout {
			return fmt.Errorf("%s: their slot moves", cli.Count(len(moving), "key"))
		}
		if !wait(ctx, again) {
			return ctx.Err()
		}
		if moving, err = m.read(ctx, moving); err != nil {
			return err
		}
	}
	return nil
}

// again is how long to wait before a failed call is repeated.
const again = 250 * time.Millisecond

// wait waits, and reports whether the context has not ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// read reads the records of keys. It returns the keys whose slot moves, so that no server has answered.
func (m *mirror) read(ctx context.Context, keys []string) (moving []string, err error) {
	byMaster := map[*redis.Client][]string{}
	for _, key := range keys {
		c, err := m.masterOf(ctx, key)
		if err != nil {
			return nil, err
		}
		byMaster[c] = append(byMaster[c], key)
	}
	for c, keys := range byMaster {
		for some := range slices.Chunk(keys, scanned) {
			more, err := m.readFrom(ctx, c, some)
			if err != nil {
				return nil, err
			}
			moving = append(moving, more...)
		}
	}
	return moving, nil
}

func (m *mirror) masterOf(ctx context.Context, key string) (*redis.Client, error) {
	if cluster, ok := m.rdb.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	c, ok := m.rdb.(*redis.Client)
	if !ok {
		return nil, fmt.Errorf("a %T is not supported", m.rdb)
	}
	return c, nil
}

func (m *mirror) readFrom(ctx context.Context, c *redis.Client, keys []string) (moving []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	pipe := c.Pipeline()
	clock := pipe.Time(ctx)
	records := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		records[i] = pipe.Get(ctx, key)
	}
	sent := time.Now()
	_, _ = pipe.Exec(ctx) // each command has its own error
	now, err := clock.Result()
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		record, err := records[i].Result()
		_, moved := redis.IsMovedError(err)
		_, asks := redis.IsAskError(err)
		switch {
		case moved || asks:
			moving = append(moving, key)
		case err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE"):
			return nil, err
		default:
			m.keep(key, record, sent, now.UnixMicro())
		}
	}
	return moving, nil
}

// keep keeps what the record of a key says, read at a moment of this process and of the server. The record is
// that of lua/bans/ban.lua: begin, finish and level.
func (m *mirror) keep(key, record string, sent time.Time, now int64) {
	begin, finish := int64(0), int64(0)
	if fields := strings.Fields(record); len(fields) == 3 {
		begin, _ = strconv.ParseInt(fields[0], 10, 64)
		finish, _ = strconv.ParseInt(fields[1], 10, 64)
	}
	left := finish - now
	if begin > now { // the clock of the server was set back: the script would begin the ban again
		left = finish - begin
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before, was := m.bans[key]
	if left <= 0 {
		delete(m.bans, key)
		if was {
			m.version++
		}
		return
	}
	tag := strings.TrimSuffix(strings.TrimPrefix(key, m.prefix), "}")
	m.bans[key] = ban{actor: script.Decode(tag), hashed: strings.HasPrefix(tag, "#"), finish: finish,
		ends: sent.Add(time.Duration(left) * time.Microsecond)}
	if !was || before.finish != finish {
		m.version++
	}
}
