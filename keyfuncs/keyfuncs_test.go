package keyfuncs_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// facts stands in for gin and echo.
type facts struct {
	route  string
	params map[string]string
	values map[string]any
}

func (f facts) Route() string { return f.route }

func (f facts) Param(name string) (string, bool) {
	v, ok := f.params[name]
	return v, ok
}

func (f facts) Value(name string) (any, bool) {
	v, ok := f.values[name]
	return v, ok
}

// get makes a request with header lines such as "X-Api-Key: secret".
func get(target string, lines ...string) *keyfuncs.Request {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		r.Header.Add(name, strings.TrimPrefix(value, " "))
	}
	return &keyfuncs.Request{Request: r}
}

// check compares a result with the expected one: a text, or an error that wraps wantErr and comes without a
// text.
func check(t *testing.T, got string, err error, want string, wantErr error) {
	t.Helper()
	if !errors.Is(err, wantErr) {
		t.Fatalf("error %v, want %v", err, wantErr)
	}
	if got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	if err == nil {
		return
	}
	kinds := 0
	for _, kind := range []error{keyfuncs.ErrMissing, keyfuncs.ErrMalformed, keyfuncs.ErrRequired,
		keyfuncs.ErrTooLarge} {
		if errors.Is(err, kind) {
			kinds++
		}
	}
	if kinds != 1 {
		t.Errorf("%v is %d of ErrMissing, ErrMalformed, ErrRequired and ErrTooLarge", err, kinds)
	}
	if !strings.HasPrefix(err.Error(), "keyfuncs: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error reads %q", err)
	}
}

// checkPanic compares a set-up mistake's panic with the words that it must contain.
func checkPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		text, _ := recover().(string)
		if !strings.HasPrefix(text, "keyfuncs: ") || !strings.Contains(text, want) {
			t.Errorf("panic %q, want one that says %q", text, want)
		}
	}()
	f()
}

func nothing(*keyfuncs.Request) (string, error) { return "", nil }

func TestMisuse(t *testing.T) {
	tests := []struct {
		name string
		want string
		make func()
	}{
		{"user without name", `User("uid")`, func() { keyfuncs.User("") }},
		{"param without name", `Param("poll")`, func() { keyfuncs.Param("") }},
		{"param of nothing but punctuation", `Param("poll")`, func() { keyfuncs.Param("{...}") }},
		{"param with a colon", `as Param("poll")`, func() { keyfuncs.Param(":poll") }},
		{"param with braces", `as Param("poll")`, func() { keyfuncs.Param("{poll}") }},
		{"param with dots", `as Param("path")`, func() { keyfuncs.Param("{path...}") }},
		{"param with a star", `as Param("path")`, func() { keyfuncs.Param("*path") }},
		{"query without name", `Query("page")`, func() { keyfuncs.Query("") }},
		{"header without name", `Header("X-Api-Key")`, func() { keyfuncs.Header("") }},
		{"header with a blank", `Header("X-Api-Key")`, func() { keyfuncs.Header("X Api Key") }},
		{"header with a colon", `Header("X-Api-Key")`, func() { keyfuncs.Header("X-Api-Key:") }},
		{"the host header", "use Host()", func() { keyfuncs.Header("host") }},
		{"cookie without name", `Cookie("session")`, func() { keyfuncs.Cookie("") }},
		{"cookie with an equals sign", `Cookie("session")`, func() { keyfuncs.Cookie("a=b") }},
		{"const without text", `Const("everybody")`, func() { keyfuncs.Const("") }},
		{"join of nothing", "at least one function", func() { keyfuncs.Join() }},
		{"join of nil", "function 1 is nil", func() { keyfuncs.Join(nothing, nil) }},
		{"first of nothing", "at least one function", func() { keyfuncs.FirstOf() }},
		{"first of nil", "function 0 is nil", func() { keyfuncs.FirstOf(nil) }},
		{"nothing required", "function 0 is nil", func() { keyfuncs.Require(nil) }},
		{"hash of nil", "function 0 is nil", func() { keyfuncs.Hash(nil) }},
		{"nil option", "leave it out", func() { keyfuncs.IP(nil) }},
		{"no proxies", `such as "10.0.0.0/8"`, func() { keyfuncs.TrustProxies() }},
		{"empty proxy", `such as "10.0.0.0/8"`, func() { keyfuncs.TrustProxies("") }},
		{"proxy by name", `TrustProxies("localhost")`, func() { keyfuncs.TrustProxies("10.0.0.0/8", "localhost") }},
		{"proxy with blanks", `TrustProxies(" 10.0.0.1")`, func() { keyfuncs.TrustProxies(" 10.0.0.1") }},
		{"prefix too long", `TrustProxies("10.0.0.0/33")`, func() { keyfuncs.TrustProxies("10.0.0.0/33") }},
		{"proxy with a port", `such as "192.0.2.1"`, func() { keyfuncs.TrustProxies("192.0.2.1:80") }},
		{"proxy with a zone", `such as "192.0.2.1"`, func() { keyfuncs.TrustProxies("fe80::1%eth0") }},
		{"prefix with a zone", `such as "192.0.2.1"`, func() { keyfuncs.TrustProxies("fe80::1%eth0/64") }},
		{"all of IPv4", "your own proxies", func() { keyfuncs.TrustProxies("0.0.0.0/0") }},
		{"all of IPv6", "your own proxies", func() { keyfuncs.TrustProxies("::/0") }},
		{"all of IPv4, mapped", "your own proxies", func() { keyfuncs.TrustProxies("::ffff:0:0/96") }},
		{"more than all of IPv4", "write it as IPv4", func() { keyfuncs.TrustProxies("::ffff:0.0.0.0/95") }},
		{"a proxy that may be the client, of nobody", "TrustProxies",
			func() { keyfuncs.IP(keyfuncs.ProxyMayBeClient()) }},
		{"a proxy that may be the client, with the header of one", "leave it out", func() {
			keyfuncs.IP(keyfuncs.TrustProxies("10.0.0.1"), keyfuncs.ProxyMayBeClient(),
				keyfuncs.ReadHeader("X-Real-IP"))
		}},
		{"Forwarded from nobody", "TrustProxies", func() { keyfuncs.IP(keyfuncs.ReadForwarded()) }},
		{"a header from nobody", `IP(ReadHeader("X-Real-IP")) would never`,
			func() { keyfuncs.IP(keyfuncs.ReadHeader("X-Real-IP")) }},
		{"a header without name", `ReadHeader("CF-Connecting-IP")`, func() { keyfuncs.ReadHeader("") }},
		{"a header with a blank to read", `ReadHeader("CF-Connecting-IP")`,
			func() { keyfuncs.ReadHeader("X-Real-IP ") }},
		{"the host header to read", "removes that field", func() { keyfuncs.ReadHeader("host") }},
		{"X-Forwarded-For as one value", "leave the option out", func() { keyfuncs.ReadHeader("x-forwarded-for") }},
		{"Forwarded as one value", "use ReadForwarded()", func() { keyfuncs.ReadHeader("forwarded") }},
		{"two headers to read", `ReadHeader("X-Real-IP") and ReadHeader("CF-Connecting-IP")`, func() {
			keyfuncs.IP(keyfuncs.TrustProxies("10.0.0.1"), keyfuncs.ReadHeader("X-Real-IP"),
				keyfuncs.ReadHeader("CF-Connecting-IP"))
		}},
		{"a header and Forwarded to read", `ReadForwarded() and ReadHeader("X-Real-IP")`, func() {
			keyfuncs.IP(keyfuncs.TrustProxies("10.0.0.1"), keyfuncs.ReadForwarded(), keyfuncs.ReadHeader("X-Real-IP"))
		}},
		{"no IPv6 bits", "from 1 to 128", func() { keyfuncs.IPv6Prefix(0) }},
		{"too many IPv6 bits", "from 1 to 128", func() { keyfuncs.IPv6Prefix(129) }},
		{"no IPv4 bits", "from 1 to 32", func() { keyfuncs.IPv4Prefix(0) }},
		{"too many IPv4 bits", "from 1 to 32", func() { keyfuncs.IPv4Prefix(33) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkPanic(t, tt.want, tt.make) })
	}
}

// The texts appear in logs, so the test compares them word by word.
func TestErrorTexts(t *testing.T) {
	proxied := keyfuncs.IP(keyfuncs.TrustProxies("192.0.2.1"))
	cdn := keyfuncs.IP(keyfuncs.TrustProxies("192.0.2.1"), keyfuncs.ReadHeader("CF-Connecting-IP"))
	tests := []struct {
		fn   keyfuncs.Func
		r    *keyfuncs.Request
		want string
	}{
		{keyfuncs.Param("poll"), get("/"), `keyfuncs: Param("poll"): nothing found`},
		{keyfuncs.User("uid"), get("/"), `keyfuncs: User("uid"): nothing found`},
		{keyfuncs.Route(), get("/"), `keyfuncs: Route(): nothing found`},
		{keyfuncs.Query("page"), get("/?page=1&page=2"), `keyfuncs: Query("page"): several different values`},
		{keyfuncs.Join(nothing), get("/"), `keyfuncs: Join: function 0: nothing found`},
		{
			keyfuncs.FirstOf(keyfuncs.User("uid"), keyfuncs.Cookie("sid")), get("/"),
			`keyfuncs: FirstOf: User("uid"): nothing found; Cookie("sid"): nothing found`,
		},
		{keyfuncs.Require(keyfuncs.IdempotencyKey()), get("/"),
			`keyfuncs: Require: IdempotencyKey(): nothing found`},
		{keyfuncs.Require(keyfuncs.Require(keyfuncs.Route())), get("/"),
			`keyfuncs: Require: Route(): nothing found`},
		{keyfuncs.Require(nothing), get("/"), `keyfuncs: Require: function 0: nothing found`},
		{
			proxied, get("/", "X-Forwarded-For: unknown"),
			`keyfuncs: IP(): X-Forwarded-For names no address in "unknown"`,
		},
		{
			proxied, get("/", "X-Forwarded-For: "+strings.Repeat("\n", 1000)),
			`keyfuncs: IP(): X-Forwarded-For names no address in "` + strings.Repeat(`\n`, 64) + `" (cut)`,
		},
		{cdn, get("/"), `keyfuncs: IP(): the trusted peer sends 0 lines of Cf-Connecting-Ip, want 1`},
		{cdn, get("/", "CF-Connecting-IP: 203.0.113.7", "CF-Connecting-IP: 203.0.113.7"),
			`keyfuncs: IP(): the trusted peer sends 2 lines of Cf-Connecting-Ip, want 1`},
		{cdn, get("/", "CF-Connecting-IP: 203.0.113.7\t:80"),
			`keyfuncs: IP(): Cf-Connecting-Ip names no address in "203.0.113.7\t:80"`},
	}
	for _, tt := range tests {
		if _, err := tt.fn(tt.r); err == nil || err.Error() != tt.want {
			t.Errorf("error %v, want %s", err, tt.want)
		}
	}
}

func TestErrorsKeepSecrets(t *testing.T) {
	const secret = "hunter2"
	login := *get("/")
	login.Facts = facts{values: map[string]any{"uid": struct{ s string }{secret}}}
	tests := map[string]struct {
		fn keyfuncs.Func
		r  *keyfuncs.Request
	}{
		"header":    {keyfuncs.Header("X-Api-Key"), get("/", "X-Api-Key: "+secret, "X-Api-Key: b")},
		"cookie":    {keyfuncs.Cookie("sid"), get("/", "Cookie: sid="+secret+"; sid=b")},
		"query":     {keyfuncs.Query("token"), get("/?token=" + secret + "&token=b")},
		"bad query": {keyfuncs.Query("token"), get("/?token=" + secret + "%zz")},
		"basic":     {keyfuncs.BasicAuth(), get("/", "Authorization: Basic "+secret)},
		"two logins": {keyfuncs.BasicAuth(),
			get("/", "Authorization: Basic "+secret, "Authorization: Basic b")},
		"user":        {keyfuncs.User("uid"), &login},
		"idempotency": {keyfuncs.IdempotencyKey(), get("/", "Idempotency-Key: \""+secret)},
		"hash of header": {keyfuncs.Hash(keyfuncs.Header("X-Api-Key")),
			get("/", "X-Api-Key: "+secret, "X-Api-Key: b")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tt.fn(tt.r)
			check(t, got, err, "", keyfuncs.ErrMalformed)
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%v gives the secret away", err)
			}
		})
	}
}
