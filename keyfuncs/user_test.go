package keyfuncs_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

type (
	userID   int32
	tinyID   uint8
	nickname string
	score    float64
	secret   string // whose String redacts
	bytesID  []byte
	uuid     [16]byte
	account  struct{ name string }
	broken   struct{ n int }
	object   struct{ id string } // whose String is for people and MarshalText for machines
	flag     bool
)

func (s secret) String() string               { return "***" }
func (u uuid) String() string                 { return "uuid-" + string(u[:2]) }
func (a *account) String() string             { return a.name } // panics on nil
func (b broken) MarshalText() ([]byte, error) { return nil, errors.New("fails") }
func (o object) MarshalText() ([]byte, error) { return []byte(o.id), nil }
func (o object) String() string               { return "Object(" + o.id + ")" }

type wrapped struct{ *url.URL } // its String is promoted, and panics when nothing is wrapped

func ptr[T any](v T) *T { return &v }

func TestUser(t *testing.T) {
	tests := []struct {
		name  string
		value any
		want  string
	}{
		{"string", "alice", "alice"},
		{"string with blanks stays", " alice ", " alice "},
		{"bytes", []byte("alice"), "alice"},
		{"int", 42, "42"},
		{"negative", -42, "-42"},
		{"int8", int8(42), "42"},
		{"int16", int16(42), "42"},
		{"int32", int32(42), "42"},
		{"int64", int64(math.MinInt64), "-9223372036854775808"},
		{"uint", uint(42), "42"},
		{"uint8", uint8(42), "42"},
		{"uint16", uint16(42), "42"},
		{"uint32", uint32(42), "42"},
		{"uint64", uint64(math.MaxUint64), "18446744073709551615"},
		{"float64, as a JWT has it", float64(42), "42"},
		{"largest float64", float64(1<<53 - 1), "9007199254740991"},
		{"smallest float64", -float64(1<<53 - 1), "-9007199254740991"},
		{"json.Number", json.Number("42"), "42"},
		{"json.Number over 2^53", json.Number("9007199254740993"), "9007199254740993"},
		{"json.Number over 2^63", json.Number("18446744073709551615"), "18446744073709551615"},
		{"json.Number with a fraction of nothing", json.Number("42.00"), "42"},
		{"negative json.Number", json.Number("-42"), "-42"},
		{"named integer", userID(42), "42"},
		{"named unsigned", tinyID(42), "42"},
		{"named string", nickname("alice"), "alice"},
		{"named float", score(42), "42"},
		{"named bytes", bytesID("alice"), "alice"},
		{"raw JSON", json.RawMessage("42"), "42"},
		{"an integer with String", 42 * time.Nanosecond, "42"},
		{"a string that redacts itself", secret("alice"), "alice"},
		{"pointer to a string that redacts itself", ptr(secret("alice")), "alice"},
		{"array with String", uuid{'a', 'b'}, "uuid-ab"},
		{"pointer to an array with String", &uuid{'a', 'b'}, "uuid-ab"},
		{"pointer with String", &account{"alice"}, "alice"},
		{"MarshalText before String", object{"7"}, "7"},
		{"big integer", big.NewInt(42), "42"},
		{"address", netip.MustParseAddr("192.0.2.1"), "192.0.2.1"},
		{"pointer to a string", ptr("alice"), "alice"},
		{"pointer to an int", ptr(42), "42"},
		{"pointer to a float", ptr(42.0), "42"},
		{"pointer to a json.Number", ptr(json.Number("42.0")), "42"},
		{"pointer to bytes", ptr([]byte("alice")), "alice"},

		{"nil", nil, missing},
		{"empty string", "", missing},
		{"empty named string", nickname(""), missing},
		{"no bytes", []byte(nil), missing},
		{"empty bytes", []byte{}, missing},
		{"no named bytes", bytesID(nil), missing},
		{"nil net.IP, whose String is <nil>", net.IP(nil), missing},
		{"0", 0, missing},
		{"int64 0", int64(0), missing},
		{"uint64 0", uint64(0), missing},
		{"named 0", userID(0), missing},
		{"float 0", 0.0, missing},
		{"float -0", math.Copysign(0, -1), missing},
		{"json.Number 0", json.Number("0"), missing},
		{"json.Number -0.0", json.Number("-0.0"), missing},
		{"empty json.Number", json.Number(""), missing},
		{"nil pointer with a String that panics", (*account)(nil), missing},
		{"nil pointer to a string", (*string)(nil), missing},
		{"nil pointer to anything", (*struct{})(nil), missing},
		{"pointer to 0", new(int), missing},
		{"zero UUID", uuid{}, missing},
		{"pointer to a zero UUID", &uuid{}, missing},
		{"pointer to a zero struct", &account{}, missing},
		{"promoted String of nothing", wrapped{}, missing},
		{"zero of a type with MarshalText", netip.Addr{}, missing},
		{"zero time", time.Time{}, missing},

		{"bool", true, malformed},
		{"false", false, malformed},
		{"named bool", flag(true), malformed},
		{"struct", struct{ ID int }{42}, malformed},
		{"pointer to a struct", &struct{ ID int }{42}, malformed},
		{"pointer to a pointer", ptr(ptr(42)), malformed},
		{"slice", []int{42}, malformed},
		{"nil slice of what is no user", []int(nil), malformed},
		{"map", map[string]any{"sub": "alice"}, malformed},
		{"func", func() {}, malformed},
		{"fraction", 1.5, malformed},
		{"NaN", math.NaN(), malformed},
		{"infinity", math.Inf(1), malformed},
		{"2^53", float64(1 << 53), malformed},
		{"-2^53", -float64(1 << 53), malformed},
		{"float32", float32(42), malformed},
		{"complex", complex(42, 0), malformed},
		{"json.Number with a fraction", json.Number("1.5"), malformed},
		{"json.Number with an exponent", json.Number("42e3"), malformed},
		{"json.Number out of range", json.Number("18446744073709551616"), malformed},
		{"json.Number that is none", json.Number("alice"), malformed},
		{"MarshalText that fails", broken{1}, malformed},
		{"error", errors.New("alice"), malformed},
	}
	fn := keyfuncs.User("uid")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := get("/")
			r.Facts = facts{values: map[string]any{"uid": tt.value}}
			got, err := fn(r)
			checkText(t, got, err, tt.want)

			plain := get("/")
			plain.Request = plain.WithContext(keyfuncs.WithValue(plain.Context(), "uid", tt.value))
			got, err = fn(plain)
			checkText(t, got, err, tt.want)
		})
	}
}

func TestUserSources(t *testing.T) {
	fn := keyfuncs.User("uid")
	withContext := get("/", "Uid: forged", "X-User: forged", "Cookie: uid=forged")
	ctx := keyfuncs.WithValue(withContext.Context(), "other", "bob")
	//nolint:staticcheck // a plain string is what other packages might use, and must not be taken for ours
	ctx = context.WithValue(ctx, "uid", "mallory")
	withContext.Request = withContext.WithContext(ctx)

	got, err := fn(withContext)
	check(t, got, err, "", keyfuncs.ErrMissing) // not the header, cookie, another name or another key type

	withContext.Request = withContext.WithContext(keyfuncs.WithValue(ctx, "uid", "alice"))
	got, err = fn(withContext)
	check(t, got, err, "alice", nil)

	withContext.Facts = facts{} // a framework that knows nothing
	got, err = fn(withContext)
	check(t, got, err, "alice", nil)

	withContext.Facts = facts{values: map[string]any{"uid": "carol"}}
	got, err = fn(withContext)
	check(t, got, err, "carol", nil)

	// the framework's word counts, also when it is empty
	withContext.Facts = facts{values: map[string]any{"uid": ""}}
	got, err = fn(withContext)
	check(t, got, err, "", keyfuncs.ErrMissing)
}
