package script_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// Promise: No user text collides with another, or leaves its hash tag.
func TestEncodeNeverCollides(t *testing.T) {
	seen := map[string]string{}
	for _, text := range guardtest.Hostile {
		e := script.Encode(text)
		if other, found := seen[e]; found {
			t.Errorf("%.40q and %.40q are both %q", text, other, e)
		}
		seen[e] = text
	}
	rapid.Check(t, func(rt *rapid.T) {
		a, b := rapid.SliceOf(rapid.Byte()).Draw(rt, "a"), rapid.SliceOf(rapid.Byte()).Draw(rt, "b")
		if string(a) != string(b) && script.Encode(string(a)) == script.Encode(string(b)) {
			rt.Fatalf("%q and %q are both %q", a, b, script.Encode(string(a)))
		}
	})
}

func FuzzEncode(f *testing.F) {
	for _, text := range guardtest.Hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := script.Encode(text)
		if len(e) > script.MaxPlain {
			t.Errorf("%q is %d bytes long", e, len(e))
		}
		if i := strings.IndexFunc(e,
			func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("{}|=*?[]\"'\\", c) }); i >= 0 {
			t.Errorf("%q has %q in it", e, e[i])
		}
		if !strings.HasPrefix(e, "#") && script.Decode(e) != text {
			t.Errorf("%q is decoded as %q", text, script.Decode(e))
		}
		if (e == "") != (text == "") {
			t.Errorf("%q becomes %q", text, e)
		}
		script.Decode(text) // Decode must accept any text that is in Redis
	})
}

// FuzzKeys: different attempts have different keys, whichever guard makes them. Each key has exactly one tag,
// the right one.
func FuzzKeys(f *testing.F) {
	for i, text := range guardtest.Hostile {
		f.Add(text, guardtest.Hostile[(i+1)%len(guardtest.Hostile)])
	}
	f.Add("a", "a|b")
	f.Add("a|b", "b")
	f.Fuzz(func(t *testing.T, a, b string) {
		e := core.New(guardtest.NoClient{})
		gate, sent := newKeyRecorder()
		limits := []core.Guard{
			limit.NewSlidingWindow(gate, "w", limit.PerHour(1), limit.PerDay(1),
				limit.Per(1, 60*time.Hour).WithResolution(24)),
			limit.NewSlidingWindow(gate, "x", limit.PerHour(1)),
			limit.NewFixedWindow(gate, "f", limit.PerHour(1)),
			limit.NewTokenBucket(gate, "t", limit.PerHour(1)),
		}
		sale := seckill.New(gate, "s", seckill.Options{})
		meant := map[string]string{}
		note := func(what, tag string, keys ...string) {
			t.Helper()
			for i, key := range keys {
				before, rest, _ := strings.Cut(key, "{")
				found, after, _ := strings.Cut(rest, "}")
				if found != tag || strings.ContainsAny(before+found+after, "{}") {
					t.Errorf("%q: want one tag, %q", key, tag)
				}
				what := fmt.Sprintf("key %d of %s", i, what)
				if other, taken := meant[key]; taken && other != what {
					t.Errorf("%q is %s and %s", key, what, other)
				}
				meant[key] = what
			}
			if err := script.CheckTag(keys); err != nil {
				t.Errorf("%q: %v", keys, err)
			}
		}
		for _, one := range []string{a, b} {
			if one == "" { // no guard accepts it as an actor, a poll or an item
				continue
			}
			if e := script.EncodeUpTo(script.MaxRecord, one); !strings.HasPrefix(e, "#") && script.Decode(e) != one {
				t.Errorf("%q is decoded as %q", one, script.Decode(e))
			}
			for _, two := range []string{a, b, ""} {
				attempt := core.Attempt{Actor: one, Resource: two}
				for _, l := range limits {
					want := script.Encode(one)
					if two != "" {
						want = script.Encode(two) + "|" + script.Encode(one)
					}
					note(fmt.Sprintf("limit %s of %q at %q", l.Name(), one, two), want, sent(t, l, attempt)...)
				}
				note(fmt.Sprintf("sale of %q", one), script.Encode(one),
					sent(t, sale, core.Attempt{Actor: "a", Resource: one, ID: two})...)
				note(fmt.Sprintf("own of %q", one), script.Encode(one), e.Key("own", one))
				note(fmt.Sprintf("own of %q, %q", one, two), script.Encode(one), e.Key("own", one, two))
				note(fmt.Sprintf("own of %q, %q, %q", one, two, a), script.Encode(one), e.Key("own", one, two, a))
			}
		}
	})
}

func TestKey(t *testing.T) {
	e := core.New(guardtest.NoClient{}, core.WithPrefix("app"))
	for _, c := range []struct {
		tag    string
		fields []string
		want   string
	}{
		{"ann", nil, "app:own:cart:{ann}"},
		{"ann", []string{""}, "app:own:cart:{ann}:"},
		{"a}b{c", []string{"x:y", "z|{"}, "app:own:cart:{a%7Db%7Bc}:x:y|z%7C%7B"},
	} {
		if got := e.Key("cart", c.tag, c.fields...); got != c.want {
			t.Errorf("Key(%q, %q) = %q, want %q", c.tag, c.fields, got, c.want)
		}
	}
	guardtest.WantPanic(t, "a tag", func() { e.Key("cart", "") })
	guardtest.WantPanic(t, "letters", func() { e.Key("car t", "x") })
}

func TestCheckTag(t *testing.T) {
	for _, c := range []struct {
		keys []string
		ok   bool
	}{
		{nil, true},
		{[]string{"a{x}b"}, true},
		{[]string{"a{x}b", "{x}"}, true},
		{[]string{"a{x}b", "{y}"}, false},
		{[]string{"a"}, false},
		{[]string{"a{}b"}, false},
		{[]string{"a{x"}, false},
		{[]string{"a}x{"}, false},
	} {
		if err := script.CheckTag(c.keys); (err == nil) != c.ok {
			t.Errorf("CheckTag(%q) = %v", c.keys, err)
		}
	}
}

// TestKeysOfACallShareASlot checks the slots of keys with hostile text. Other tests run all calls on a real
// cluster.
func TestKeysOfACallShareASlot(t *testing.T) {
	gate, sent := newKeyRecorder()
	sale, shut := seckill.New(gate, "s", seckill.Options{}), bans.New(gate, "b", bans.Options{})
	packets := redpacket.New(gate, "r", redpacket.Options{})
	for _, text := range guardtest.Hostile {
		a := core.Attempt{Actor: text, Resource: text, ID: text}
		for _, g := range []core.Guard{sale, shut, packets} {
			keys := sent(t, g, a)
			if err := script.CheckTag(keys); err != nil {
				t.Errorf("%.40q: %q", text, keys)
			}
			for _, key := range keys {
				if redistest.Slot(key) != redistest.Slot(keys[0]) {
					t.Errorf("%q and %q are in different slots", key, keys[0])
				}
			}
		}
	}
}

// newKeyRecorder makes an engine that runs no scripts, and a function that returns the keys that a guard's
// check sends.
func newKeyRecorder() (*core.Engine, func(t *testing.T, g core.Guard, a core.Attempt) []string) {
	var mu sync.Mutex
	var keys []string // of the first script since keys was nil that is about an actor
	rdb := processFunc(func(_ context.Context, cmd redis.Cmder) error {
		mu.Lock()
		defer mu.Unlock()
		if args := cmd.Args(); keys == nil && !strings.HasSuffix(args[3].(string), ":{|}:windows") {
			for _, key := range args[3 : 3+args[2].(int)] {
				keys = append(keys, key.(string))
			}
		}
		err := redis.ErrClosed // as if the call was never sent
		cmd.SetErr(err)
		return err
	})
	gate := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithoutBreaker(),
		core.WithDeadline(time.Minute))
	return gate, func(t *testing.T, g core.Guard, a core.Attempt) []string {
		t.Helper()
		redistest.Eventually(t, time.Minute, func() bool { return gate.Pending() == 0 }, "undos to end")
		mu.Lock()
		keys = nil
		mu.Unlock()
		_, err := g.Check(t.Context(), a)
		mu.Lock()
		defer mu.Unlock()
		if err == nil || len(keys) == 0 {
			t.Fatalf("Check(%+v): %v, with the keys %q", a, err, keys)
		}
		return keys
	}
}

// processFunc is a function as a client.
type processFunc func(ctx context.Context, cmd redis.Cmder) error

func (f processFunc) Process(ctx context.Context, cmd redis.Cmder) error { return f(ctx, cmd) }
