package keyfuncs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func fails(err error) keyfuncs.Func {
	return func(*keyfuncs.Request) (string, error) { return "", err }
}

func consts(parts []string) []keyfuncs.Func {
	fns := make([]keyfuncs.Func, len(parts))
	for i, p := range parts {
		fns[i] = keyfuncs.Const(p)
	}
	return fns
}

// join is Join over fixed parts.
func join(t interface{ Fatal(args ...any) }, parts []string) string {
	text, err := keyfuncs.Join(consts(parts)...)(nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// split reverses Join, which proves that no other parts give the same text.
func split(text string) []string {
	parts, escaped := []string{""}, false
	for _, b := range []byte(text) {
		switch {
		case b == '\\' && !escaped:
			escaped = true
			continue
		case b == '|' && !escaped:
			parts = append(parts, "")
		default:
			parts[len(parts)-1] += string([]byte{b})
		}
		escaped = false
	}
	return parts
}

func TestConst(t *testing.T) {
	got, err := keyfuncs.Const("everybody")(get("/"))
	check(t, got, err, "everybody", nil)
}

func TestJoin(t *testing.T) {
	tests := []struct {
		parts []string
		want  string
	}{
		{[]string{"a"}, "a"},
		{[]string{"a", "b"}, "a|b"},
		{[]string{"203.0.113.7", "/polls/:poll", "7"}, "203.0.113.7|/polls/:poll|7"},
		{[]string{"a|b"}, `a\|b`},
		{[]string{"a|b", "c"}, `a\|b|c`},
		{[]string{"a", "b|c"}, `a|b\|c`},
		{[]string{`a\`, "b"}, `a\\|b`},
		{[]string{`a\|b`}, `a\\\|b`},
		{[]string{"|", "|"}, `\||\|`},
	}
	for _, tt := range tests {
		if got := join(t, tt.parts); got != tt.want {
			t.Errorf("%q gives %s, want %s", tt.parts, got, tt.want)
		}
	}

	t.Run("nested", func(t *testing.T) {
		a, b, c := keyfuncs.Const("a"), keyfuncs.Const("b"), keyfuncs.Const("c")
		seen := map[string]bool{}
		for _, fn := range []keyfuncs.Func{
			keyfuncs.Join(a, b, c), keyfuncs.Join(keyfuncs.Join(a, b), c), keyfuncs.Join(a, keyfuncs.Join(b, c)),
		} {
			got, err := fn(get("/"))
			if err != nil || seen[got] {
				t.Errorf("%q again, %v", got, err)
			}
			seen[got] = true
		}
	})

	t.Run("errors", func(t *testing.T) {
		a, own := keyfuncs.Const("a"), errors.New("own")
		for _, tt := range []struct {
			fn   keyfuncs.Func
			want error
		}{
			{keyfuncs.Join(a, keyfuncs.User("uid")), keyfuncs.ErrMissing},
			{keyfuncs.Join(keyfuncs.User("uid"), a), keyfuncs.ErrMissing},
			{keyfuncs.Join(fails(keyfuncs.ErrMalformed), keyfuncs.User("uid")), keyfuncs.ErrMalformed},
			{keyfuncs.Join(a, nothing), keyfuncs.ErrMissing},
		} {
			got, err := tt.fn(get("/"))
			check(t, got, err, "", tt.want)
		}
		if _, err := keyfuncs.Join(a, fails(own))(get("/")); !errors.Is(err, own) {
			t.Error(err)
		}
	})

	t.Run("later changes to the arguments change nothing", func(t *testing.T) {
		fns := consts([]string{"a", "b"})
		fn := keyfuncs.Join(fns...)
		fns[0] = nil
		got, err := fn(get("/"))
		check(t, got, err, "a|b", nil)
	})
}

func TestJoinIsUnambiguous(t *testing.T) {
	part := rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune(`a\|`)), 1, 6, -1),
		rapid.StringN(1, 10, -1),
	)
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.SliceOfN(part, 1, 5).Draw(t, "one")
		other := rapid.SliceOfN(part, 1, 5).Draw(t, "other")
		if got := join(t, one); !slices.Equal(split(got), one) {
			t.Fatalf("%q gives %s, which is also %q", one, got, split(got))
		}
		if same := slices.Equal(one, other); (join(t, one) == join(t, other)) != same {
			t.Fatalf("%q and %q", one, other)
		}
	})
}

func FuzzJoin(f *testing.F) {
	f.Add("a", "b", "c")
	f.Add(`a\`, `|b`, `\|`)
	f.Add("|", `\`, "\xff")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		parts := []string{a, b, c}
		if a == "" || b == "" || c == "" {
			fn := func(s string) keyfuncs.Func {
				return func(*keyfuncs.Request) (string, error) { return s, nil }
			}
			got, err := keyfuncs.Join(fn(a), fn(b), fn(c))(nil)
			check(t, got, err, "", keyfuncs.ErrMissing)
			return
		}
		if got := join(t, parts); !slices.Equal(split(got), parts) {
			t.Fatalf("%q gives %s", parts, got)
		}
	})
}

func TestFirstOf(t *testing.T) {
	uid, ip, own := keyfuncs.User("uid"), keyfuncs.IP(), errors.New("own")
	login := get("/")
	login.RemoteAddr = "203.0.113.7:1"
	login.Facts = facts{values: map[string]any{"uid": "alice"}}
	stranger := get("/")
	stranger.RemoteAddr = "203.0.113.7:1"
	imitator := get("/")
	imitator.RemoteAddr = "192.0.2.1:1"
	imitator.Facts = facts{values: map[string]any{"uid": "203.0.113.7"}}

	bad := fails(keyfuncs.ErrMalformed)
	ten := append(slices.Repeat([]keyfuncs.Func{uid}, 10), ip)
	nested := keyfuncs.FirstOf(keyfuncs.FirstOf(uid, uid), keyfuncs.FirstOf(uid, ip))
	tests := []struct {
		name string
		fn   keyfuncs.Func
		r    *keyfuncs.Request
		want string
		err  error
	}{
		{"first", keyfuncs.FirstOf(uid, ip), login, "0=alice", nil},
		{"second", keyfuncs.FirstOf(uid, ip), stranger, "1=203.0.113.7", nil},
		{"a user called like an address", keyfuncs.FirstOf(uid, ip), imitator, "0=203.0.113.7", nil},
		{"a function of one's own that finds nothing", keyfuncs.FirstOf(nothing, ip), stranger, "1=203.0.113.7",
			nil},
		{"two digits", keyfuncs.FirstOf(ten...), stranger, "10=203.0.113.7", nil},
		{"nested", nested, stranger, "1=1=203.0.113.7", nil},
		{"none", keyfuncs.FirstOf(uid, keyfuncs.Cookie("sid")), stranger, "", keyfuncs.ErrMissing},
		{"none, nested", keyfuncs.FirstOf(keyfuncs.FirstOf(uid), nothing), stranger, "", keyfuncs.ErrMissing},
		{"garbage does not fall through", keyfuncs.FirstOf(bad, ip), stranger, "", keyfuncs.ErrMalformed},
		{"garbage behind a missing one", keyfuncs.FirstOf(uid, bad, ip), stranger, "", keyfuncs.ErrMalformed},
		{"a join with a part missing", keyfuncs.FirstOf(keyfuncs.Join(ip, uid), ip), stranger, "1=203.0.113.7",
			nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.fn(tt.r)
			check(t, got, err, tt.want, tt.err)
		})
	}

	for _, err := range []error{own, errors.Join(keyfuncs.ErrMissing, keyfuncs.ErrMalformed)} {
		if got, gotErr := keyfuncs.FirstOf(fails(err), ip)(stranger); got != "" || !errors.Is(gotErr, err) {
			t.Errorf("%v falls through to %q, %v", err, got, gotErr)
		}
	}

	lines := fmt.Errorf("%w:\nin two lines", keyfuncs.ErrMissing)
	got, err := keyfuncs.FirstOf(fails(lines), uid)(stranger)
	check(t, got, err, "", keyfuncs.ErrMissing)
	if !errors.Is(err, lines) {
		t.Errorf("%v does not wrap the error of the first function", err)
	}
}

func TestRequire(t *testing.T) {
	key := keyfuncs.Require(keyfuncs.IdempotencyKey())
	ip := keyfuncs.IP()
	own := errors.New("own")
	none, sent, bad := get("/"), get("/", `Idempotency-Key: "k1"`), get("/", `Idempotency-Key: "k1`)
	tests := []struct {
		name string
		fn   keyfuncs.Func
		r    *keyfuncs.Request
		want string
		err  error
	}{
		{"there", key, sent, "k1", nil},
		{"not there", key, none, "", keyfuncs.ErrRequired},
		{"malformed", key, bad, "", keyfuncs.ErrMalformed},
		{"a function of one's own that finds nothing", keyfuncs.Require(nothing), none, "", keyfuncs.ErrRequired},
		{"nothing of several", keyfuncs.Require(keyfuncs.FirstOf(keyfuncs.User("uid"), keyfuncs.Cookie("sid"))),
			none, "", keyfuncs.ErrRequired},
		{"it does not fall through", keyfuncs.FirstOf(key, ip), none, "", keyfuncs.ErrRequired},
		{"it stops behind a missing one", keyfuncs.FirstOf(keyfuncs.User("uid"), key, ip), none, "",
			keyfuncs.ErrRequired},
		{"in a join", keyfuncs.Join(keyfuncs.Method(), key), none, "", keyfuncs.ErrRequired},
		{"in a hash", keyfuncs.Hash(key), none, "", keyfuncs.ErrRequired},
		{"twice", keyfuncs.Require(key), none, "", keyfuncs.ErrRequired},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.fn(tt.r)
			check(t, got, err, tt.want, tt.err)
		})
	}
	if _, err := keyfuncs.Require(fails(own))(none); !errors.Is(err, own) ||
		errors.Is(err, keyfuncs.ErrRequired) {
		t.Errorf("an error of the function's own becomes %v", err)
	}
	both := errors.Join(keyfuncs.ErrMissing, keyfuncs.ErrMalformed)
	if _, err := keyfuncs.Require(fails(both))(none); !errors.Is(err, keyfuncs.ErrMalformed) ||
		errors.Is(err, keyfuncs.ErrRequired) {
		t.Errorf("what is malformed as well becomes %v", err)
	}
	if _, err := keyfuncs.NewList(key, "k1").Contains(none); !errors.Is(err, keyfuncs.ErrRequired) {
		t.Errorf("a list says %v to a request without its key", err)
	}
}

func TestHash(t *testing.T) {
	fn := keyfuncs.Hash(keyfuncs.Header("X-Api-Key"))
	got, err := fn(get("/", "X-Api-Key: abc"))
	check(t, got, err, "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0", nil) // FIPS 180-4, the digest of "abc"
	other, err := fn(get("/", "X-Api-Key: abd"))
	if err != nil || other == got || len(other) != 43 || strings.ContainsAny(other, "+/=") {
		t.Errorf("%q, %v", other, err)
	}
	got, err = fn(get("/"))
	check(t, got, err, "", keyfuncs.ErrMissing)
	got, err = keyfuncs.Hash(nothing)(get("/"))
	check(t, got, err, "", keyfuncs.ErrMissing)
}
