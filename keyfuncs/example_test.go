package keyfuncs_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func ExampleIP() {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:443" // the proxy, which appends the address that it was called from
	r.Header.Set("X-Forwarded-For", "1.2.3.4, 203.0.113.7")
	req := &keyfuncs.Request{Request: r}

	fmt.Println(keyfuncs.IP()(req))
	fmt.Println(keyfuncs.IP(keyfuncs.TrustProxies("10.0.0.0/8"))(req))

	r.RemoteAddr = "[2001:db8:1:2:3:4:5:6]:50000"
	fmt.Println(keyfuncs.IP()(req))
	fmt.Println(keyfuncs.IP(keyfuncs.IPv6Prefix(48))(req))
	// Output:
	// 10.0.0.1 <nil>
	// 203.0.113.7 <nil>
	// 2001:db8:1:2::/64 <nil>
	// 2001:db8:1::/48 <nil>
}

// A CDN writes the client's address into its own header. A client that bypasses the CDN can write it too,
// without effect.
func ExampleReadHeader() {
	who := keyfuncs.IP(
		keyfuncs.TrustProxies("198.18.0.0/24"), // the CDN publishes its addresses
		keyfuncs.ReadHeader("CF-Connecting-IP"),
	)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("CF-Connecting-IP", "203.0.113.7")
	req := &keyfuncs.Request{Request: r}

	r.RemoteAddr = "198.18.0.5:443"
	fmt.Println(who(req))
	r.RemoteAddr = "192.0.2.66:50000"
	fmt.Println(who(req))
	// Output:
	// 203.0.113.7 <nil>
	// 192.0.2.66 <nil>
}

// Two rules: a limit for each network of one link, and a higher one for each site, which may have 65536 such
// networks. An IPv4 address is the same client for both, so the lower limit applies to it.
func ExampleIPv6Prefix() {
	link := keyfuncs.IP()
	site := keyfuncs.IP(keyfuncs.IPv6Prefix(48))

	for _, peer := range []string{"[2001:db8:1:a::7]:50000", "[2001:db8:1:b::7]:50000", "203.0.113.7:50000"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = peer
		a, _ := link(&keyfuncs.Request{Request: r})
		b, _ := site(&keyfuncs.Request{Request: r})
		fmt.Println(a, b)
	}
	// Output:
	// 2001:db8:1:a::/64 2001:db8:1::/48
	// 2001:db8:1:b::/64 2001:db8:1::/48
	// 203.0.113.7 203.0.113.7
}

func ExampleUser() {
	who := keyfuncs.User("uid")

	// On gin and echo, User finds what c.Set("uid", 42) stored. On net/http and chi, middleware does this:
	authenticated := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			next(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", 42)))
		}
	}
	handler := func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(who(&keyfuncs.Request{Request: r}))
	}

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Uid", "1") // no header makes anybody another user
	authenticated(handler)(nil, r)
	handler(nil, r)
	// Output:
	// 42 <nil>
	//  keyfuncs: User("uid"): nothing found
}

func ExampleFirstOf() {
	who := keyfuncs.FirstOf(keyfuncs.User("uid"), keyfuncs.IP())

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "203.0.113.7:50000"
	fmt.Println(who(&keyfuncs.Request{Request: r}))

	// Whoever may choose a name cannot choose to be that address.
	r = r.WithContext(keyfuncs.WithValue(r.Context(), "uid", "203.0.113.7"))
	fmt.Println(who(&keyfuncs.Request{Request: r}))
	// Output:
	// 1=203.0.113.7 <nil>
	// 0=203.0.113.7 <nil>
}

func ExampleJoin() {
	what := keyfuncs.Join(keyfuncs.Route(), keyfuncs.Param("poll"))

	mux := http.NewServeMux()
	mux.HandleFunc("POST /polls/{poll}/votes", func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(what(&keyfuncs.Request{Request: r}))
	})
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/polls/7/votes", nil))
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/polls/7|8/votes", nil))
	// Output:
	// /polls/{poll}/votes|7 <nil>
	// /polls/{poll}/votes|7\|8 <nil>
}

// Your own Func does what no function here does, and combines with the others.
func ExampleFunc() {
	var tenant keyfuncs.Func = func(r *keyfuncs.Request) (string, error) {
		if t := r.Header.Get("X-Tenant"); t == "north" || t == "south" {
			return t, nil
		}
		return "", fmt.Errorf("tenant: %w", keyfuncs.ErrMissing)
	}
	who := keyfuncs.Join(tenant, keyfuncs.IP())

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "203.0.113.7:50000"
	_, err := who(&keyfuncs.Request{Request: r})
	fmt.Println(errors.Is(err, keyfuncs.ErrMissing))

	r.Header.Set("X-Tenant", "north")
	fmt.Println(who(&keyfuncs.Request{Request: r}))
	// Output:
	// true
	// north|203.0.113.7 <nil>
}
