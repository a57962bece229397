package core_test

import (
	"context"
	"encoding/binary"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

// oneReply is a client that answers the first command with one reply. Further commands fail, so that no
// caller retries for long.
type oneReply struct {
	mu    sync.Mutex
	value any
	told  bool
}

func (c *oneReply) Process(_ context.Context, cmd redis.Cmder) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told {
		cmd.SetErr(errors.New("asked again"))
		return cmd.Err()
	}
	c.told = true
	switch cmd := cmd.(type) {
	case interface {
		redis.Cmder
		SetVal(value any)
	}: // *redis.Cmd, and one that is sent once
		if err, ok := c.value.(error); ok {
			cmd.SetErr(err)
		} else {
			cmd.SetVal(c.value)
		}
	case *redis.SliceCmd: // go-redis reads an array and rejects everything else
		values, ok := c.value.([]any)
		if cmd.SetVal(values); !ok {
			cmd.SetErr(errors.New("not an array"))
		}
	case *redis.MapStringStringCmd: // pairs of strings, likewise
		values, ok := c.value.([]any)
		ok = ok && len(values)%2 == 0
		pairs := map[string]string{}
		for i := 0; i+1 < len(values); i += 2 {
			field, isText := values[i].(string)
			value, isTextToo := values[i+1].(string)
			pairs[field], ok = value, ok && isText && isTextToo
		}
		if cmd.SetVal(pairs); !ok {
			cmd.SetErr(errors.New("not pairs of strings"))
		}
	}
	return cmd.Err()
}

// anyReply makes a reply, as go-redis decodes it, from arbitrary bytes.
func anyReply(data []byte) (value any, rest []byte) {
	if len(data) == 0 {
		return nil, nil
	}
	kind, data := data[0], data[1:]
	take := func(n int) []byte {
		n = min(n, len(data))
		taken := data[:n]
		data = data[n:]
		return taken
	}
	switch kind % 12 {
	case 0:
		var wide [8]byte
		copy(wide[:], take(8))
		return int64(binary.LittleEndian.Uint64(wide[:])), data
	case 1, 2:
		return int64(kind / 12), data
	case 3, 4:
		return string(take(int(kind / 12))), data
	case 5:
		return []string{"ok", "limited", "held", "sold", "1", ""}[kind/12%6], data
	case 6, 7, 8:
		values := make([]any, kind/12%12)
		for i := range values {
			values[i], data = anyReply(data)
		}
		return values, data
	case 9:
		return kind >= 120, data
	case 10:
		return float64(kind), data
	}
	if kind >= 120 {
		return errors.New("ERR " + string(data)), nil
	}
	return map[any]any{"a": nil}, data
}

// shape describes a reply: one letter per value.
func shape(value any) string {
	switch value := value.(type) {
	case int64:
		return "n"
	case string:
		return "t"
	case []any:
		inner := ""
		for _, v := range value {
			inner += shape(v)
		}
		return "(" + inner + ")"
	}
	return "?"
}

// FuzzReply: no reply of a script or command makes a reader panic. A reply of the wrong shape is an error and
// allows nothing.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		"", "\x0d", "\x2a\x0d\x0d\x0d", "\x36\x0d\x0d\x0d\x0d", "\x36\x0d\x0d\x0d\x7d", "\x42\x05\x01\x0d\x0d\x41",
		"\x5a\x05\x01\x1d\x0d\x0d\x0d\x0d",
		"\x4e\x05\x01\x41\x0d\x0d\x0d", "\x36\x35\x35\x35\x35", "\x1e\x35\x35", "\xfb", "\x06",
		"\x2a\x0d\x00\xff\xff\xff\xff\xff\xff\xff\xff\x0d",
		"\x42\x05\x01\x0d\x0d\x06", "\x42\x05\x01\x0d\x0d\x12\x41",
		"\x2a\x01\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value, _ := anyReply(data)
		guard := func() *core.Engine {
			return core.New(&oneReply{value: value},
				core.WithObserver(guardtest.Ignore{}))
		}
		got := shape(value)
		first := func() any {
			if values, ok := value.([]any); ok && len(values) > 0 {
				return values[0]
			}
			return value
		}()
		// decided checks a reader of decisions: a reply that begins with yes allows.
		decided := func(what string, d core.Decision, err error, yes any, shapes ...string) {
			t.Helper()
			fits := false
			for _, s := range shapes {
				fits = fits || got == s
			}
			if d.Allowed && (err != nil || !fits || first != yes) || err == nil && !fits {
				t.Errorf("%s: %#v allows: %v, %v", what, value, d.Allowed, err)
			}
			if d.RetryAfter < 0 || d.ResetAfter < 0 || err == nil && d.Remaining < 0 &&
				strings.HasPrefix(what, "limit") {
				t.Errorf("%s: %#v becomes %+v", what, value, d)
			}
		}
		read := func(what string, err error, fits bool) {
			t.Helper()
			if err == nil && !fits {
				t.Errorf("%s: %#v is not an error", what, value)
			}
		}
		ctx := t.Context()

		for _, k := range limitKinds {
			for _, limits := range [][]limit.Limit{{limit.PerHour(5)}, {limit.PerHour(5), limit.PerDay(9)}} {
				attempt := core.Attempt{Actor: "a", ID: "o"}
				d, err := k.make(guard(), "w", limits[0], limits[1:]...).Check(ctx, attempt)
				decided("limit", d, err, int64(1), "(nnn)", "(nnnn)")
				d, err = k.make(guard(), "w", limits[0], limits[1:]...).Peek(ctx, attempt)
				decided("limit, peek", d, err, int64(1), "(nnn)", "(nnnn)")
			}
		}

		ballot := core.Attempt{Actor: "a", Resource: "p", Item: "red", ID: "o"}
		d, err := votes.New(guard(), "v", votes.Options{}).Check(ctx, ballot)
		texts := regexp.MustCompile(`^\(tnnn\(t*\)\)$`)
		if d.Allowed && (err != nil || !texts.MatchString(got) || first != "ok" && first != "changed") ||
			err == nil && !texts.MatchString(got) {
			t.Errorf("vote: %#v allows: %v, %v", value, d.Allowed, err)
		}
		_, err = votes.New(guard(), "v", votes.Options{}).Tally(ctx, "p")
		read("tally", err, regexp.MustCompile(`^\((tt)*\)$`).MatchString(got))

		sale := func() *seckill.Guard { return seckill.New(guard(), "s", seckill.Options{}) }
		order := core.Attempt{Actor: "a", Resource: "tv", ID: "o"}
		d, err = sale().Check(ctx, order)
		decided("reserve", d, err, "ok", "(tntnnnn)")
		d, err = sale().Confirm(ctx, order)
		decided("confirm", d, err, "ok", "(tntnnn)")
		d, err = sale().Cancel(ctx, order)
		decided("cancel", d, err, "ok", "(tntnnn)")
		opened, err := sale().Open(ctx, "tv", seckill.Sale{Stock: 1})
		read("open", err, got == "n")
		if opened && value != int64(1) {
			t.Errorf("open: %#v has opened a sale", value)
		}
		_, err = sale().Sweep(ctx, "tv")
		read("sweep", err, regexp.MustCompile(`^\(tn`).MatchString(got))
		_, err = sale().Status(ctx, "tv")
		read("status", err, regexp.MustCompile(`^\((tt)+\)$`).MatchString(got))
	})
}
