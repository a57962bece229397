// Package deque has lists that consist of many short lists, with push and pop at both ends, and a pop that
// waits. It is a recipe of the cookbook: see README.md in the folder above.
package deque

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

const (
	// MaxValue is how many bytes a value has at most.
	MaxValue = 64 << 10
	// Replay is how long the answer to an operation is kept. Within this time, a retry with the same ID changes
	// nothing and gets the same answer.
	Replay = 10 * time.Minute
)

// End is an end of a list.
type End string

// The ends of a list.
const (
	Left  End = "left"
	Right End = "right"
)

var (
	//go:embed push.lua
	pushSource string
	//go:embed pop.lua
	popSource string

	pushScript = script.New("deque_push", pushSource, script.Idempotent)
	popScript  = script.New("deque_pop", popSource, script.Idempotent)

	// ErrEmpty says that the list has no values.
	ErrEmpty = kit.NewError("deque: the list is empty", core.ErrNotFound)
	// ErrFull says that the list has as many values as it may have.
	ErrFull = kit.NewError("deque: the list is full", core.ErrNotNow)
	// ErrConflict says that the operation ID belongs to another operation on the list.
	ErrConflict = kit.NewError("deque: the operation ID belongs to another operation", core.ErrNotNow)
)

// Options are the bounds of lists.
type Options struct {
	// PerShard is how many values a shard has at most. Zero means 128.
	PerShard int
	// Shards is how many shards a list has at most. Zero means 1000.
	Shards int
	// Keep is how long a shard is kept after its latest change. Values that nobody takes are lost then. Zero
	// means 24 hours.
	Keep time.Duration
}

// Lists has lists, each in one slot. It is safe for concurrent use.
type Lists struct {
	gate   *core.Engine
	client listener
	o      Options

	mu    sync.Mutex
	bells map[string]*bell // those that this process listens to, by key
}

// listener is a client with commands that block: *redis.Client, *redis.ClusterClient and *redis.Ring.
type listener interface {
	BLMove(ctx context.Context, source, destination, from, to string, timeout time.Duration) *redis.StringCmd
}

// New returns lists with the given bounds. Each list that a process waits for takes a connection of the
// client's pool. New panics if the engine has no Redis or a client without BLMove, if a bound is negative, or
// if Keep is not from 1 s to kit.MaxTTL.
func New(gate *core.Engine, o Options) *Lists {
	kit.NeedRedis(gate, "deque", "lists")
	client, ok := gate.Client().(listener)
	if !ok {
		panic(fmt.Sprintf("deque: a %T cannot wait: make the engine with a client of go-redis", gate.Client()))
	}
	for _, d := range []struct {
		value  *int
		preset int
	}{{&o.PerShard, 128}, {&o.Shards, 1000}} {
		if *d.value == 0 {
			*d.value = d.preset
		}
	}
	if o.Keep == 0 {
		o.Keep = 24 * time.Hour
	}
	if o.PerShard < 0 || o.Shards < 0 || o.Keep < time.Second || o.Keep > kit.MaxTTL {
		panic(fmt.Sprintf("deque: %+v: give positive bounds, and keep values for 1 s to %v", o, kit.MaxTTL))
	}
	return &Lists{gate: gate, client: client, o: o, bells: map[string]*bell{}}
}

// keys returns the keys of one call about the shard with the given number, which all have the list as their
// tag.
func (l *Lists) keys(list, id string, shards ...int64) []string {
	keys := []string{l.gate.Key("deque", list, "ends"), l.bell(list), l.gate.Key("deque", list, "op", id)}
	for _, number := range shards {
		keys = append(keys, l.gate.Key("deque", list, "shard", strconv.FormatInt(number, 10)))
	}
	return keys
}

func (l *Lists) bell(list string) string { return l.gate.Key("deque", list, "bell") }

// Push adds a value at one end of a list, under an operation ID that the client chose. The error is ErrFull,
// ErrConflict, wraps core.ErrInvalid, or comes from Redis; then call again with the same ID.
func (l *Lists) Push(ctx context.Context, list string, end End, id, value string) error {
	if err := valid(list, end, id); err != nil {
		return err
	}
	if len(value) > MaxValue {
		return fmt.Errorf("deque: %w: a value of %d bytes: %d at most", core.ErrInvalid, len(value), MaxValue)
	}
	what, outwards := "push "+string(end)+" "+script.Encode(value), int64(1)
	if end == Left {
		outwards = -1
	}
	// The keys of a script must be known before it runs, but which shard is at the end is known only in Redis.
	// So a call declares the shard that it expects there, and the script does nothing but say so if it is
	// another.
	for at := int64(0); ; {
		reply, err := l.gate.Run(ctx, pushScript, l.keys(list, id, at, at+outwards), string(end), at, value, what,
			l.o.PerShard, l.o.Shards, l.o.Keep.Milliseconds(), Replay.Milliseconds())
		if err != nil {
			return err
		}
		r := script.ReadReply(reply, 2, 2)
		reason := r.Text()
		at = r.Number()
		switch {
		case r.Err != nil:
			return r.Err
		case reason == "moved": // somebody else has gone on, so this is no endless loop
		case reason == "full":
			return ErrFull
		case reason == "conflict":
			return ErrConflict
		default:
			return nil
		}
	}
}

// Pop takes the value at one end of a list, under an operation ID that the client chose. The error is
// ErrEmpty, ErrConflict, wraps core.ErrInvalid, or comes from Redis: then the value may have been taken, and
// a call with the same ID returns it.
func (l *Lists) Pop(ctx context.Context, list string, end End, id string) (string, error) {
	if err := valid(list, end, id); err != nil {
		return "", err
	}
	for at := int64(0); ; { // as in Push
		reply, err := l.gate.Run(ctx, popScript, l.keys(list, id, at), string(end), at,
			l.o.Keep.Milliseconds(), Replay.Milliseconds())
		if err != nil {
			return "", err
		}
		r := script.ReadReply(reply, 3, 3)
		reason, value := r.Text(), r.Text()
		at = r.Number()
		switch {
		case r.Err != nil:
			return "", r.Err
		case reason == "moved":
		case reason == "empty":
			return "", ErrEmpty
		case reason == "conflict":
			return "", ErrConflict
		default:
			return value, nil
		}
	}
}

func valid(list string, end End, id string) error {
	if list == "" || id == "" || end != Left && end != Right {
		return fmt.Errorf("deque: %w: need a list, an end and an operation ID", core.ErrInvalid)
	}
	return nil
}
