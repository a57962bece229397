package keyfuncs_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

const (
	missing   = "missing"   // in the tables: ErrMissing is wanted in place of a text
	malformed = "malformed" // likewise ErrMalformed
)

func checkText(t *testing.T, got string, err error, want string) {
	t.Helper()
	switch want {
	case missing:
		check(t, got, err, "", keyfuncs.ErrMissing)
	case malformed:
		check(t, got, err, "", keyfuncs.ErrMalformed)
	default:
		check(t, got, err, want, nil)
	}
}

// from makes a request from a peer with any number of X-Forwarded-For and Forwarded lines.
func from(peer string, xff, fwd []string) *keyfuncs.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	if xff != nil {
		r.Header["X-Forwarded-For"] = xff
	}
	if fwd != nil {
		r.Header["Forwarded"] = fwd
	}
	return &keyfuncs.Request{Request: r}
}

func lines(l ...string) []string { return l }

func TestIPOfPeer(t *testing.T) {
	tests := []struct{ name, peer, want string }{
		{"IPv4", "203.0.113.7:50000", "203.0.113.7"},
		{"IPv4 without port", "203.0.113.7", "203.0.113.7"},
		{"IPv6", "[2001:db8:1:2:3:4:5:6]:50000", "2001:db8:1:2::/64"},
		{"IPv6 without port", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"IPv6 in brackets without port", "[2001:db8::1]", "2001:db8::/64"},
		{"IPv6 with a zone", "[fe80::1%eth0]:50000", "fe80::/64"},
		{"IPv6 with a zone without port", "fe80::1%eth0", "fe80::/64"},
		{"loopback", "[::1]:50000", "::/64"},
		{"mapped", "[::ffff:203.0.113.7]:50000", "203.0.113.7"},
		{"mapped in hex", "[::ffff:cb00:7107]:50000", "203.0.113.7"},
		{"mapped and long", "[0:0:0:0:0:ffff:cb00:7107]:50000", "203.0.113.7"},
		{"mapped with a zone", "[::ffff:203.0.113.7%eth0]:50000", "203.0.113.7"},
		{"compatible is not mapped", "[::203.0.113.7]:50000", "::/64"},
		{"Unix socket", "@", missing},
		{"Unix socket without name", "", missing},
		{"Unix socket with a path", "/run/app.sock", missing},
		{"Unix socket with an abstract name", "@app", missing},
		{"a name", "localhost:80", malformed},
		{"a pipe", "pipe", malformed},
		{"leading zero", "203.0.113.07:80", malformed},
		{"too few bytes", "203.0.113:80", malformed},
		{"no port behind the colon", "203.0.113.7:", malformed},
		{"only a port", ":80", malformed},
		{"open bracket", "[2001:db8::1", malformed},
		{"text behind the bracket", "[2001:db8::1]80", malformed},
		{"IPv4 in brackets", "[203.0.113.7]:80", malformed},
		{"two ports", "203.0.113.7:80:80", malformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := keyfuncs.IP()(from(tt.peer, nil, nil))
			checkText(t, got, err, tt.want)
		})
	}
}

// The client is 203.0.113.7 (or 2001:db8:c::7), the proxies are 10.0.0.1 and 10.0.0.2, and an attacker forges
// addresses of 198.51.100.0/24.
func TestIPBehindProxies(t *testing.T) {
	trust := keyfuncs.TrustProxies("10.0.0.0/8", "2001:db8:f::/48", "192.0.2.1")
	trusting, strict := keyfuncs.IP(trust, keyfuncs.ProxyMayBeClient()), keyfuncs.IP(trust)
	const proxy = "10.0.0.1:443"
	tests := []struct {
		name string
		peer string
		xff  []string
		want string
	}{
		{"one proxy", proxy, lines("203.0.113.7"), "203.0.113.7"},
		{"single trusted address", "192.0.2.1:443", lines("203.0.113.7"), "203.0.113.7"},
		{"beside the single trusted address", "192.0.2.2:443", lines("198.51.100.1"), "192.0.2.2"},
		{"two proxies", proxy, lines("203.0.113.7, 10.0.0.2"), "203.0.113.7"},
		{"three lines", proxy, lines("203.0.113.7", "10.0.0.3", "10.0.0.2"), "203.0.113.7"},
		{"IPv6 proxy", "[2001:db8:f::1]:443", lines("203.0.113.7"), "203.0.113.7"},
		{"IPv6 client", proxy, lines("2001:db8:c::7"), "2001:db8:c::/64"},
		{"IPv6 client, mixed chain", proxy, lines("2001:db8:c::7, 2001:db8:f::2, 10.0.0.2"), "2001:db8:c::/64"},
		{"IPv4 with port", proxy, lines("203.0.113.7:50000"), "203.0.113.7"},
		{"IPv6 with port", proxy, lines("[2001:db8:c::7]:50000"), "2001:db8:c::/64"},
		{"IPv6 in brackets", proxy, lines("[2001:db8:c::7]"), "2001:db8:c::/64"},
		{"trusted with port", proxy, lines("203.0.113.7, 10.0.0.2:8080"), "203.0.113.7"},
		{"blanks", proxy, lines(" \t203.0.113.7 ,\t10.0.0.2 "), "203.0.113.7"},
		{"no blanks", proxy, lines("203.0.113.7,10.0.0.2"), "203.0.113.7"},

		{"untrusted peer, forged header", "203.0.113.7:50000", lines("198.51.100.1"), "203.0.113.7"},
		{"untrusted peer, forged trusted address", "203.0.113.7:50000", lines("198.51.100.1, 10.0.0.2"),
			"203.0.113.7"},
		{"untrusted peer, forged loopback", "203.0.113.7:50000", lines("127.0.0.1"), "203.0.113.7"},
		{"untrusted peer, garbage", "203.0.113.7:50000", lines("garbage"), "203.0.113.7"},
		{"untrusted IPv6 peer", "[2001:db8:c::7]:50000", lines("198.51.100.1"), "2001:db8:c::/64"},
		{"peer just outside the prefix", "11.0.0.1:443", lines("198.51.100.1"), "11.0.0.1"},

		{"forged before the client", proxy, lines("198.51.100.1, 203.0.113.7"), "203.0.113.7"},
		{"many forged before the client", proxy, lines("198.51.100.1, 198.51.100.2, 203.0.113.7, 10.0.0.2"),
			"203.0.113.7"},
		{"forged trusted before the client", proxy, lines("10.0.0.9, 203.0.113.7"), "203.0.113.7"},
		{"forged line of its own", proxy, lines("198.51.100.1", "203.0.113.7"), "203.0.113.7"},
		{"forged line with a chain", proxy, lines("198.51.100.1, 10.0.0.2", "203.0.113.7, 10.0.0.2"),
			"203.0.113.7"},
		{"garbage before the client", proxy, lines("garbage, 203.0.113.7"), "203.0.113.7"},
		{"quotes before the client", proxy, lines(`"198.51.100.1, 203.0.113.7`), "203.0.113.7"},
		{"garbage line before the client", proxy, lines("\x00\xff\"[", "203.0.113.7"), "203.0.113.7"},
		{"client twice", proxy, lines("203.0.113.7, 203.0.113.7"), "203.0.113.7"},

		{"no header: a health check", proxy, nil, "10.0.0.1"},
		{"empty header", proxy, lines(""), "10.0.0.1"},
		{"only commas", proxy, lines(" , ,,", ","), "10.0.0.1"},
		{"empty elements are not there", proxy, lines("203.0.113.7,, ,10.0.0.2,"), "203.0.113.7"},
		{"all trusted: the leftmost", proxy, lines("10.0.0.9, 10.0.0.8"), "10.0.0.9"},
		{"all trusted in lines: the leftmost", proxy, lines("10.0.0.9", "10.0.0.8"), "10.0.0.9"},
		{"the peer again", proxy, lines("10.0.0.1"), "10.0.0.1"},

		{"garbage where the client should be", proxy, lines("garbage"), malformed},
		{"garbage behind a trusted address", proxy, lines("203.0.113.7, garbage, 10.0.0.2"), malformed},
		{"garbage in a line between", proxy, lines("203.0.113.7", "garbage", "10.0.0.2"), malformed},
		{"unknown", proxy, lines("unknown"), malformed},
		{"obfuscated", proxy, lines("_hidden"), malformed},
		{"a host name", proxy, lines("localhost"), malformed},
		{"a prefix", proxy, lines("203.0.113.0/24"), malformed},
		{"leading zeros", proxy, lines("203.000.113.007"), malformed},
		{"an octal proxy", proxy, lines("198.51.100.1, 012.0.0.1"), malformed},
		{"a number", proxy, lines("3405803783"), malformed},
		{"a hexadecimal number", proxy, lines("0xcb007107"), malformed},
		{"three parts", proxy, lines("203.0.7"), malformed},
		{"a port too long", proxy, lines("203.0.113.7:500000"), malformed},
		{"a port that is none", proxy, lines("203.0.113.7:http"), malformed},
		{"a bracket too many", proxy, lines("[2001:db8:c::7]]:80"), malformed},
		{"IPv4 with a zone", proxy, lines("203.0.113.7%eth0"), malformed},
		{"separated by blanks", proxy, lines("203.0.113.7 10.0.0.2"), malformed},
		{"separated by semicolons", proxy, lines("203.0.113.7;10.0.0.2"), malformed},
		{"quoted", proxy, lines(`"203.0.113.7"`), malformed},
		{"other digits", proxy, lines("２03.0.113.7"), malformed},
		{"a line break", proxy, lines("203.0.113.7\r\n10.0.0.2"), malformed},

		{"mapped peer", "[::ffff:10.0.0.1]:443", lines("203.0.113.7"), "203.0.113.7"},
		{"mapped peer in hex", "[::ffff:a00:1]:443", lines("203.0.113.7"), "203.0.113.7"},
		{"mapped untrusted peer", "[::ffff:203.0.113.7]:443", lines("198.51.100.1"), "203.0.113.7"},
		{"mapped client", proxy, lines("::ffff:203.0.113.7"), "203.0.113.7"},
		{"mapped client in hex with port", proxy, lines("[::FFFF:CB00:7107]:50000"), "203.0.113.7"},
		{"mapped proxy in the chain", proxy, lines("203.0.113.7, ::ffff:10.0.0.2"), "203.0.113.7"},
		{"mapped with a zone", proxy, lines("203.0.113.7, ::ffff:10.0.0.2%x"), "203.0.113.7"},
		{"compatible is not mapped", proxy, lines("198.51.100.1, ::10.0.0.2"), "::/64"},
		{"zone on the client", proxy, lines("fe80::7%eth0"), "fe80::/64"},
		{"zone on a proxy in the chain", proxy, lines("203.0.113.7, 2001:db8:f::2%eth0"), "203.0.113.7"},
		{"zone on the peer", "[2001:db8:f::1%eth0]:443", lines("203.0.113.7"), "203.0.113.7"},
		{"long spelling of a proxy", proxy, lines("203.0.113.7, 2001:0DB8:000F:0:0:0:0:2"), "203.0.113.7"},

		{"garbage peer", "garbage", lines("203.0.113.7"), malformed},
		{"Unix socket is not trusted by itself", "@", lines("203.0.113.7"), missing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := trusting(from(tt.peer, tt.xff, lines("for=198.51.100.66"))) // the header that is not read
			checkText(t, got, err, tt.want)
			got, err = strict(from(tt.peer, tt.xff, lines("for=198.51.100.66")))
			checkText(t, got, err, notAProxy(tt.want))

			// The untrusting function never sees a header.
			bare, bareErr := keyfuncs.IP()(from(tt.peer, nil, nil))
			got, err = keyfuncs.IP()(from(tt.peer, tt.xff, lines("for=198.51.100.66")))
			if got != bare || (err == nil) != (bareErr == nil) {
				t.Errorf("without trusted proxies the headers change %q, %v to %q, %v", bare, bareErr, got, err)
			}
		})
	}
}

func TestIPTrustedPrefixes(t *testing.T) {
	tests := []struct {
		name, prefix, peer string
		trusted            bool
	}{
		{"bits of the host are ignored", "10.1.2.3/8", "10.9.9.9:1", true},
		{"mapped prefix", "::ffff:10.0.0.0/104", "10.9.9.9:1", true},
		{"mapped prefix, mapped peer", "::ffff:10.0.0.0/104", "[::ffff:10.9.9.9]:1", true},
		{"mapped prefix ends", "::ffff:10.0.0.0/104", "11.0.0.1:1", false},
		{"mapped address", "::ffff:10.0.0.1", "10.0.0.1:1", true},
		{"mapped address is one", "::ffff:10.0.0.1", "10.0.0.2:1", false},
		{"IPv6 address", "2001:db8::1", "[2001:db8::1]:1", true},
		{"IPv6 address is one", "2001:db8::1", "[2001:db8::2]:1", false},
		{"half of IPv6 is no IPv4", "::/1", "10.0.0.1:1", false},
		{"half of IPv6 is no mapped IPv4", "::/1", "[::ffff:10.0.0.1]:1", false},
		{"/32", "10.0.0.1/32", "10.0.0.1:1", true},
		{"/128", "2001:db8::1/128", "[2001:db8::2]:1", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := keyfuncs.IP(keyfuncs.TrustProxies(tt.prefix))(from(tt.peer, lines("203.0.113.7"), nil))
			if err != nil || (got == "203.0.113.7") != tt.trusted {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}

	t.Run("options add up and stay apart", func(t *testing.T) {
		first, second := keyfuncs.TrustProxies("10.0.0.1"), keyfuncs.TrustProxies("10.0.0.2")
		both, one := keyfuncs.IP(first, second), keyfuncs.IP(first)
		r := from("10.0.0.1:1", lines("203.0.113.7, 10.0.0.2"), nil)
		got, err := both(r)
		check(t, got, err, "203.0.113.7", nil)
		got, err = one(r)
		check(t, got, err, "10.0.0.2", nil)
	})
}

// notAProxy is what IP finds without ProxyMayBeClient, of what it finds with it.
func notAProxy(text string) string {
	if strings.HasPrefix(text, "10.0.0.") {
		return malformed
	}
	return text
}

func TestIPOnUnixSocket(t *testing.T) {
	fn := keyfuncs.IP(keyfuncs.TrustUnixSocket(), keyfuncs.ProxyMayBeClient())
	strict := keyfuncs.IP(keyfuncs.TrustUnixSocket())
	for _, peer := range []string{"", "@", "@app", "/run/app.sock", "./app.sock"} {
		tests := []struct {
			xff  []string
			want string
		}{
			{lines("203.0.113.7"), "203.0.113.7"},
			{lines("198.51.100.1, 203.0.113.7"), "203.0.113.7"},
			{lines("garbage"), malformed},
			{lines(","), missing}, // without ProxyMayBeClient malformed
			{nil, missing},
		}
		for _, tt := range tests {
			got, err := fn(from(peer, tt.xff, nil))
			checkText(t, got, err, tt.want)
			if tt.want == missing {
				tt.want = malformed
			}
			got, err = strict(from(peer, tt.xff, nil))
			checkText(t, got, err, tt.want)
		}
	}
	got, err := fn(from("203.0.113.7:1", lines("198.51.100.1"), nil)) // TCP peers are still strangers
	check(t, got, err, "203.0.113.7", nil)

	chain := keyfuncs.IP(keyfuncs.TrustUnixSocket(), keyfuncs.TrustProxies("10.0.0.0/8"))
	got, err = chain(from("@", lines("203.0.113.7, 10.0.0.2"), nil))
	check(t, got, err, "203.0.113.7", nil)
}

func TestIPGrouping(t *testing.T) {
	const v6, v4 = "[2001:db8:1:2fff:3:4:5:6]:1", "203.0.113.7:1"
	tests := []struct {
		opt        keyfuncs.IPOption
		peer, want string
	}{
		{keyfuncs.IPv6Prefix(128), v6, "2001:db8:1:2fff:3:4:5:6"},
		{keyfuncs.IPv6Prefix(127), v6, "2001:db8:1:2fff:3:4:5:6/127"},
		{keyfuncs.IPv6Prefix(56), v6, "2001:db8:1:2f00::/56"},
		{keyfuncs.IPv6Prefix(1), v6, "::/1"},
		{keyfuncs.IPv6Prefix(1), v4, v4[:len(v4)-2]},
		{keyfuncs.IPv6Prefix(1), "[::ffff:203.0.113.7]:1", "203.0.113.7"},
		{keyfuncs.IPv4Prefix(24), v4, "203.0.113.0/24"},
		{keyfuncs.IPv4Prefix(1), v4, "128.0.0.0/1"},
		{keyfuncs.IPv4Prefix(32), v4, "203.0.113.7"},
		{keyfuncs.IPv4Prefix(24), v6, "2001:db8:1:2fff::/64"},
	}
	for _, tt := range tests {
		got, err := keyfuncs.IP(tt.opt)(from(tt.peer, nil, nil))
		check(t, got, err, tt.want, nil)
	}
}

// A chain that is all trusted is walked to its end; the walk must not cost memory for each element.
func TestIPAllocatesNothingPerElement(t *testing.T) {
	for name, tt := range map[string]struct {
		fn      keyfuncs.Func
		element string
	}{
		"X-Forwarded-For": {keyfuncs.IP(keyfuncs.TrustProxies("10.0.0.0/8")), "10.0.0.2"},
		"Forwarded": {
			keyfuncs.IP(keyfuncs.TrustProxies("10.0.0.0/8"), keyfuncs.ReadForwarded()), `for="10.0.0.2:80";host="a,b"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			allocs := func(elements int) float64 {
				chain := lines(strings.Repeat(tt.element+", ", elements) + "203.0.113.7")
				if name == "Forwarded" {
					chain = lines(strings.Repeat(tt.element+", ", elements) + "for=10.0.0.3")
				}
				r := from("10.0.0.1:1", chain, chain)
				return testing.AllocsPerRun(20, func() { _, _ = tt.fn(r) })
			}
			if few, many := allocs(2), allocs(2000); many > few {
				t.Errorf("%v allocations for 2 elements, %v for 2000", few, many)
			}
		})
	}
}

// FuzzIP checks that no request makes IP panic, that IP finds an address or a network in its one spelling,
// and that the text of an untrusted peer depends on the peer alone.
func FuzzIP(f *testing.F) {
	for _, peer := range []string{
		"203.0.113.7:1", "10.0.0.1:1", "[2001:db8::1%eth0]:1", "@", "", "[::ffff:10.0.0.1]:1", "[64:ff9b::a00:1]:0",
		"/run/app.sock",
	} {
		f.Add(peer, "203.0.113.7", "", `for=203.0.113.7`, "203.0.113.7")
		f.Add(peer, "198.51.100.1, 10.0.0.2:80", "[2001:db8::1]:443", `for="[2001:db8::1]:443";by=_x, for=10.0.0.1`,
			"64:ff9b::1.2.3.4")
		f.Add(peer, "unknown", "::ffff:10.0.0.2%x,", `for="a\"b`, " ::ffff:10.0.0.2%x\t")
		f.Add(peer, ",,", "\x00", `,"`, "203.0.113.7, 10.0.0.1")
	}
	trust := keyfuncs.TrustProxies("10.0.0.0/8", "2001:db8::/32")
	functions := []struct {
		fn      keyfuncs.Func
		proxies bool // trusts some
		errs    bool // may be an error without headers, and none with them
	}{
		{keyfuncs.IP(trust), true, true},
		{keyfuncs.IP(trust, keyfuncs.ProxyMayBeClient()), true, false},
		{keyfuncs.IP(trust, keyfuncs.ProxyMayBeClient(), keyfuncs.ReadForwarded(), keyfuncs.IPv6Prefix(128)), true,
			false},
		{keyfuncs.IP(trust, keyfuncs.ReadHeader("CF-Connecting-IP")), true, true},
		{keyfuncs.IP(trust, keyfuncs.ReadHeader("X-Real-IP"), keyfuncs.IPv6Prefix(48), keyfuncs.IPv4Prefix(9)),
			true, true},
		{keyfuncs.IP(trust, keyfuncs.TrustUnixSocket(), keyfuncs.IPv4Prefix(24)), true, true},
		{keyfuncs.IP(keyfuncs.TrustUnixSocket(), keyfuncs.ReadHeader("CF-Connecting-IP")), false, true},
		{keyfuncs.IP(keyfuncs.IPv6Prefix(48)), false, false},
	}
	f.Fuzz(func(t *testing.T, peer, xff1, xff2, fwd, one string) {
		for i, function := range functions {
			r := from(peer, lines(xff1, xff2), lines(fwd))
			r.Header["Cf-Connecting-Ip"] = lines(one)
			r.Header["X-Real-Ip"] = lines(one, xff1)[:1+len(fwd)%2]
			got, err := function.fn(r)
			if err != nil {
				check(t, got, err, "", err)
			} else if !isAddress(got) {
				t.Fatalf("function %d: %q is no address", i, got)
			}
			bare, bareErr := function.fn(from(peer, nil, nil))
			switch {
			case bareErr != nil:
				if err == nil && !function.errs {
					t.Fatalf("function %d: headers make %q out of the peer %q", i, got, peer)
				}
			case function.proxies && isTrusted(peer): // headers count
			case got != bare || err != nil:
				t.Fatalf("function %d: headers change the untrusted peer %q from %q to %q, %v", i, peer, bare, got, err)
			}
		}
	})
}

func isAddress(s string) bool {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p == p.Masked() && p.String() == s && !p.Addr().Is4In6()
	}
	a, err := netip.ParseAddr(s)
	return err == nil && a.String() == s && a.Zone() == "" && !a.Is4In6()
}

// isTrusted reports whether IP must trust a peer, by a different method.
func isTrusted(peer string) bool {
	if ap, err := netip.ParseAddrPort(peer); err == nil {
		peer = ap.Addr().String()
	} else if i := strings.LastIndexByte(peer, ':'); strings.Count(peer, ":") == 1 ||
		strings.Contains(peer, "]:") {
		peer = peer[:i]
	}
	a, err := netip.ParseAddr(strings.Trim(peer, "[]"))
	if err != nil {
		return true // cannot tell
	}
	a = a.Unmap().WithZone("")
	return netip.MustParsePrefix("10.0.0.0/8").Contains(a) || netip.MustParsePrefix("2001:db8::/32").Contains(a)
}
