package leases

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core/script"
)

// State is what [Keeper.Peek] tells of a pool.
type State struct {
	Holders []Held // in the order in which their leases end; inside the process, by name
	Waiting int64  // with those of processes that died a moment ago
	Fence   int64  // the last one; inside the process the holder's, if any; 0: none is known
}

// Held is what somebody holds of a pool.
type Held struct {
	Actor   string
	Permits int64
	Ends    time.Duration // until the lease is over; zero inside the process
}

// Peek returns who holds permits of a pool, and how many wait for some. It writes nothing.
func (k *Keeper) Peek(ctx context.Context, tag string) (State, error) {
	if !k.base.Engine().HasRedis() {
		return k.local(tag), nil
	}
	value, err := k.base.Engine().RunWithin(ctx, k.base.Engine().SettleTimeout(), peekScript,
		[]string{k.key(tag), k.base.Key(tag, "line")}, k.now())
	if err != nil {
		return State{}, err
	}
	r := script.ReadReply(value, 4, 4)
	now, s, permits := r.Number(), State{Waiting: r.Number(), Fence: r.Number()}, r.Texts()
	if r.Err != nil {
		return State{}, r.Err
	}
	for i := 0; i+1 < len(permits); i += 2 {
		ends, err := strconv.ParseFloat(permits[i+1], 64)
		name := strings.Split(permits[i], "|")
		cost, malformed := strconv.ParseInt(name[0], 10, 64)
		if err != nil || malformed != nil || len(name) != 4 {
			return State{}, fmt.Errorf("unexpected permits %.100q until %.100q", permits[i], permits[i+1])
		}
		s.Holders = append(s.Holders, Held{Actor: script.Decode(name[3]), Permits: cost,
			Ends: script.DurationOf(int64(ends)-now, time.Millisecond)})
	}
	return s, nil
}

// local is Peek inside the process.
func (k *Keeper) local(tag string) (s State) {
	p := &k.pools
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.byTag[tag]; one != nil {
		s.Waiting = int64(len(one.line))
		for h := range one.holders {
			s.Holders = append(s.Holders, Held{Actor: h.Attempt.Actor, Permits: h.Attempt.Cost})
			s.Fence = h.Fence
		}
	}
	slices.SortFunc(s.Holders, func(a, b Held) int { return cmp.Compare(a.Actor, b.Actor) })
	return s
}

// Evict takes away the permits of an actor, or of all without one, and returns how many they were.
func (k *Keeper) Evict(ctx context.Context, tag, actor string) (permits int64, err error) {
	if !k.base.Engine().HasRedis() {
		return k.evictLocal(tag, actor), nil
	}
	if actor != "" {
		actor = script.Encode(actor)
	}
	value, err := k.base.Engine().RunWithin(ctx, k.base.Engine().SettleTimeout(), evictScript,
		[]string{k.key(tag)}, k.keep(), actor)
	if err != nil {
		return 0, err
	}
	return script.ReadNumber(value)
}

// evictLocal is Evict inside the process.
func (k *Keeper) evictLocal(tag, actor string) (permits int64) {
	var evicted []*Holder
	k.pools.mu.Lock()
	if one := k.pools.byTag[tag]; one != nil {
		for h := range one.holders {
			if actor == "" || h.Attempt.Actor == actor {
				evicted = append(evicted, h)
			}
		}
	}
	k.pools.mu.Unlock()
	for _, h := range evicted {
		permits += h.Attempt.Cost
		k.pools.lose(h)
	}
	return permits
}
