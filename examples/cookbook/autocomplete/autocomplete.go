// Package autocomplete finds the names in a room that lie between two prefixes. It is a recipe of the
// cookbook: see README.md in the folder above.
package autocomplete

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

const (
	// MaxName is how many bytes a name has at most, and a prefix.
	MaxName = 256
	// MaxAnswer is how many names one call returns at most.
	MaxAnswer = 100
)

var (
	//go:embed join.lua
	joinSource string
	//go:embed leave.lua
	leaveSource string

	joinScript  = script.New("autocomplete_join", joinSource, script.Idempotent)
	leaveScript = script.New("autocomplete_leave", leaveSource, script.Idempotent)

	// ErrFull says that the room has as many names as a room may have.
	ErrFull = kit.NewError("autocomplete: the room is full", core.ErrNotNow)
)

// Rooms has the names of all rooms, each room in a slot of its own. Names and prefixes are any bytes, and are
// compared byte by byte: for names in UTF-8 that is the order of their code points, and "Ann" and "ann" are
// two names. It is safe for concurrent use.
type Rooms struct {
	gate *core.Engine
	most int
	keep time.Duration
}

// New returns rooms of at most the given number of names. A room is kept for the duration keep after the
// latest join. New panics if the engine has no Redis, if most is less than 1, or if keep is not from 1 s to
// kit.MaxTTL.
func New(gate *core.Engine, most int, keep time.Duration) *Rooms {
	kit.NeedRedis(gate, "autocomplete", "rooms")
	if most < 1 || keep < time.Second || keep > kit.MaxTTL {
		panic(fmt.Sprintf("autocomplete: %d names for %v: give 1 or more, for 1 s to %v", most, keep, kit.MaxTTL))
	}
	return &Rooms{gate, most, keep}
}

func (r *Rooms) names(room string) string { return r.gate.Key("autocomplete", room, "names") }

// Join puts a name into a room. It may be repeated: a name is in a room once. The error is ErrFull, wraps
// core.ErrInvalid, or comes from Redis.
func (r *Rooms) Join(ctx context.Context, room, name string) error {
	if err := valid(room, name); err != nil {
		return err
	}
	reply, err := r.gate.Run(ctx, joinScript, []string{r.names(room)}, name, r.most, r.keep.Milliseconds())
	if err != nil {
		return err
	}
	if reply == "full" {
		return ErrFull
	}
	return nil
}

// Leave takes a name out of a room. It is no error if the name is not there.
func (r *Rooms) Leave(ctx context.Context, room, name string) error {
	if err := valid(room, name); err != nil {
		return err
	}
	_, err := r.gate.Run(ctx, leaveScript, []string{r.names(room)}, name)
	return err
}

func valid(room, name string) error {
	if room == "" || name == "" || len(name) > MaxName {
		return fmt.Errorf("autocomplete: %w: need a room and a name of %d bytes at most", core.ErrInvalid, MaxName)
	}
	return nil
}

// Complete returns the first n names that begin with the prefix: see Between.
func (r *Rooms) Complete(
	ctx context.Context, room, prefix string, n int,
) (names []string, more bool, err error) {
	return r.Between(ctx, room, prefix, prefix, n)
}

// Between returns the names from the first that is not before from, to the last that begins with to, in their
// order: between "ab" and "b" are "ab", "az" and "bz", but not "aa" or "c". An empty from is before all
// names; all names begin with an empty to. Between returns the first n names, but MaxAnswer at most; more
// reports whether there are others.
//
// It writes nothing. One command reads the range, so it needs no script.
func (r *Rooms) Between(
	ctx context.Context, room, from, to string, n int,
) (names []string, more bool, err error) {
	if room == "" || len(from) > MaxName || len(to) > MaxName {
		return nil, false, fmt.Errorf("autocomplete: %w: need a room, and prefixes of %d bytes at most",
			core.ErrInvalid, MaxName)
	}
	n = min(max(n, 1), MaxAnswer)
	names, err = script.Query(ctx, r.gate.Runner, redis.NewStringSliceCmd(ctx,
		"zrangebylex", r.names(room), "["+from, behind(to), "limit", 0, n+1))
	if len(names) > n {
		return names[:n], true, err
	}
	return names, false, err
}

// behind returns the end of a range in Redis's notation, so that the range ends with the last text that
// begins with the prefix: it excludes the first text behind these. For "ab" that is "ac"; for "a\xff" it is
// "b", because no byte is greater than 0xff. Nothing is behind "" or "\xff".
func behind(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return "(" + prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return "+"
}
