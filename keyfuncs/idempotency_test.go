package keyfuncs_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestIdempotencyKey(t *testing.T) {
	const id = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	long := strings.Repeat("k", 255)
	tests := []struct {
		name   string
		values []string
		want   string
	}{
		{"quoted, as the draft has it", []string{`"` + id + `"`}, id},
		{"bare, as most clients send it", []string{id}, id},
		{"blanks around it", []string{"\t " + `"` + id + `" `}, id},
		{"blanks around the bare one", []string{" " + id + " "}, id},
		{"twice the same", []string{id, id}, id},
		{"blanks within", []string{`"order 7"`}, "order 7"},
		{"escaped quote", []string{`"a\"b"`}, `a"b`},
		{"escaped backslash", []string{`"a\\b"`}, `a\b`},
		{"escaped backslash at the end", []string{`"a\\"`}, `a\`},
		{"comma and semicolon", []string{`"a,b;c"`}, "a,b;c"},
		{"one quote", []string{`"\""`}, `"`},
		{"base64", []string{"aGVsbG8+/w=="}, "aGVsbG8+/w=="},
		{"single quotes are text", []string{"'a'"}, "'a'"},
		{"255 bytes", []string{long}, long},
		{"255 bytes, quoted", []string{`"` + long + `"`}, long},
		{"255 bytes, all escaped", []string{`"` + strings.Repeat(`\\`, 255) + `"`}, strings.Repeat(`\`, 255)},

		{"absent", nil, missing},
		{"empty", []string{""}, missing},
		{"blank", []string{"  "}, missing},
		{"empty in quotes", []string{`""`}, missing},

		{"256 bytes", []string{long + "k"}, malformed},
		{"256 bytes, quoted", []string{`"` + long + `k"`}, malformed},
		{"two keys", []string{id, "other"}, malformed},
		{"a key and an empty line", []string{id, ""}, malformed},
		{"two keys in one line", []string{`"a", "b"`}, malformed},
		{"two bare keys in one line", []string{"a,b"}, malformed},
		{"bare with a blank", []string{"order 7"}, malformed},
		{"bare with a tab", []string{"order\t7"}, malformed},
		{"bare with a quote", []string{`a"b`}, malformed},
		{"bare with a backslash", []string{`a\b`}, malformed},
		{"bare with parameters", []string{"a;b=1"}, malformed},
		{"bare beyond ASCII", []string{"ключ"}, malformed},
		{"bare with DEL", []string{"a\x7f"}, malformed},
		{"open quote", []string{`"a`}, malformed},
		{"only a quote", []string{`"`}, malformed},
		{"closing quote alone", []string{`a"`}, malformed},
		{"escape at the end", []string{`"a\`}, malformed},
		{"escaped closing quote", []string{`"a\"`}, malformed},
		{"escape of what needs none", []string{`"a\b"`}, malformed},
		{"parameters", []string{`"a";b=1`}, malformed},
		{"text behind", []string{`"a"b`}, malformed},
		{"quoted beyond ASCII", []string{`"ключ"`}, malformed},
		{"quoted with a tab", []string{"\"a\tb\""}, malformed},
		{"quoted with DEL", []string{"\"a\x7f\""}, malformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := get("/")
			r.Header["Idempotency-Key"] = tt.values
			got, err := keyfuncs.IdempotencyKey()(r)
			checkText(t, got, err, tt.want)
		})
	}
}

// FuzzIdempotencyKey checks that a key is printable ASCII of bounded length, and that a found key is found
// again when it is sent in the draft's form.
func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{`"a"`, "a", `"\"\\"`, `"`, `"a";b`, " a ", "\x7f", `"a\`, ""} {
		f.Add(seed)
	}
	fn := keyfuncs.IdempotencyKey()
	f.Fuzz(func(t *testing.T, value string) {
		r := get("/")
		r.Header["Idempotency-Key"] = []string{value}
		key, err := fn(r)
		if err != nil {
			check(t, key, err, "", err)
			return
		}
		if key == "" || len(key) > 255 ||
			strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("%q gives %q", value, key)
		}
		r.Header["Idempotency-Key"] = []string{`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`}
		again, err := fn(r)
		check(t, again, err, key, nil)
	})
}
