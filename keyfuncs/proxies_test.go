package keyfuncs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/warntest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// with makes a request from a peer with header lines, each "Name: value".
func with(peer string, headers ...string) *keyfuncs.Request {
	r := get("/", headers...)
	r.RemoteAddr = peer
	return r
}

// many makes 256 requests, which tests that need thousands use in turn.
func many(build func(i int) *keyfuncs.Request) func(i int) *keyfuncs.Request {
	requests := make([]*keyfuncs.Request, 256)
	for i := range requests {
		requests[i] = build(i)
	}
	return func(i int) *keyfuncs.Request { return requests[i%len(requests)] }
}

func TestIPWarnsOfAProxyThatIsNotTrusted(t *testing.T) {
	trust := []keyfuncs.IPOption{
		keyfuncs.TrustProxies("10.0.0.0/8", "fe80::/10", "::1"), keyfuncs.TrustUnixSocket(),
	}
	for peer, named := range map[string]string{
		"10.0.0.1:1": "10.0.0.1", "172.16.0.1:1": "172.16.0.1", "192.168.1.1:1": "192.168.1.1",
		"127.0.0.1:1": "127.0.0.1",
		"[::1]:1":     "::1", "[fd00::1]:1": "fd00::1", "[fe80::1%eth0]:1": "fe80::1",
		"169.254.1.1:1": "169.254.1.1",
		"100.64.0.1:1":  "100.64.0.1", "[::ffff:10.0.0.1]:1": "10.0.0.1", "@": "a Unix socket", "": "a Unix socket",
	} {
		for _, header := range []string{
			"X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP", "True-Client-IP", "X-Client-IP",
			"Fly-Client-IP",
			"Fastly-Client-IP", "X-Azure-ClientIP", "X-Azure-SocketIP",
		} {
			t.Run(peer+" "+header, func(t *testing.T) {
				log := warntest.Record(t)
				fn, trusting := keyfuncs.IP(), keyfuncs.IP(trust...)
				for range 10 {
					_, _ = fn(with(peer))
					_, _ = trusting(with(peer, header+": 203.0.113.7"))
				}
				log.Want(t)
				for range 10 {
					_, _ = fn(with(peer, header+": 203.0.113.7"))
					_, _ = keyfuncs.IP()(with(peer, header+": 203.0.113.7"))
				}
				told := log.Want(t, "GH001")[0]
				if told["header"] != http.CanonicalHeaderKey(header) || told["peer"] != named {
					t.Errorf("told %v", told)
				}
			})
		}
	}
}

// TestIPWarnsLaterToo: health checks may come for long before the first client does.
func TestIPWarnsLaterToo(t *testing.T) {
	log := warntest.Record(t)
	fn := keyfuncs.IP()
	health, forwarded := with("10.0.0.1:1"), with("10.0.0.1:1", "Forwarded: for=203.0.113.7")
	for range 10_000 {
		_, _ = fn(health)
	}
	log.Want(t)
	for range 64 * 40 { // one in 64 is looked at: none of these with a chance of e^-40
		_, _ = fn(forwarded)
	}
	log.Want(t, "GH001")
}

// TestIPWarnsOfACDN: a CDN calls from the Internet, and shows by the fact that no request comes without its
// header.
func TestIPWarnsOfACDN(t *testing.T) {
	log := warntest.Record(t)
	fn := keyfuncs.IP()
	edge := many(func(i int) *keyfuncs.Request {
		return with(fmt.Sprintf("198.51.100.%d:1", i), "CF-Connecting-IP: 203.0.113.7")
	})
	direct, health := with("203.0.113.9:1"), with("127.0.0.1:1")
	for i := range 255 * 60 {
		_, _ = fn(edge(i))
		if i%10 == 0 {
			_, _ = fn(direct)
		}
	}
	log.Want(t)
	for i := range 64 * 256 * 2 {
		_, _ = fn(edge(i))
		if i%10 == 0 {
			_, _ = fn(health)
		}
	}
	if told := log.Want(t, "GH001")[0]; told["header"] != "Cf-Connecting-Ip" {
		t.Errorf("told %v", told)
	}
}

// TestIPWarnsOfAProxyThatNamesNobody: each client got 400, and the log did not say why.
func TestIPWarnsOfAProxyThatNamesNobody(t *testing.T) {
	trust := keyfuncs.TrustProxies("10.0.0.0/8")
	list, header := keyfuncs.IP(trust), keyfuncs.IP(trust, keyfuncs.ReadHeader("CF-Connecting-IP"))
	socket := keyfuncs.IP(keyfuncs.TrustUnixSocket(), keyfuncs.ReadForwarded())
	for name, c := range map[string]struct {
		fn                keyfuncs.Func
		silent, named     *keyfuncs.Request
		reads, sent, peer string
	}{
		"a list": {list, with("10.0.0.1:1"), with("10.0.0.1:1", "X-Forwarded-For: 203.0.113.7"),
			"X-Forwarded-For", "", "10.0.0.1"},
		"a header": {header, with("10.0.0.1:1", "X-Forwarded-For: 203.0.113.7"),
			with("10.0.0.1:1", "CF-Connecting-IP: 203.0.113.7"), "Cf-Connecting-Ip", "X-Forwarded-For", "10.0.0.1"},
		"another list": {keyfuncs.IP(trust, keyfuncs.ReadForwarded()),
			with("10.0.0.1:1", "X-Forwarded-For: 203.0.113.7"), with("10.0.0.1:1", "Forwarded: for=203.0.113.7"),
			"Forwarded", "X-Forwarded-For", "10.0.0.1"},
		"a proxy on the Internet": {keyfuncs.IP(keyfuncs.TrustProxies("192.0.2.1")),
			with("192.0.2.1:1", "CF-Connecting-IP: 203.0.113.7"), with("192.0.2.1:1", "X-Forwarded-For: 203.0.113.7"),
			"X-Forwarded-For", "Cf-Connecting-Ip", "192.0.2.1"},
		"a socket": {socket, with("@", "X-Real-IP: 203.0.113.7"), with("@", "Forwarded: for=203.0.113.7"),
			"Forwarded", "X-Real-Ip", "a Unix socket"},
	} {
		t.Run(name, func(t *testing.T) {
			log := warntest.Record(t)
			for range 1000 { // clients who make the proxy drop the header, among others
				for range 15 {
					_, _ = c.fn(c.silent)
				}
				for range 64 * 15 { // one in 64 is looked at: none of these with a chance of e^-15
					_, _ = c.fn(c.named)
				}
			}
			log.Want(t)
			for range 64 * 64 {
				_, _ = c.fn(c.silent)
			}
			told := log.Want(t, "GH008")[0]
			if told["reads"] != c.reads || told["sent"] != c.sent || told["peer"] != c.peer {
				t.Errorf("told %v", told)
			}
		})
	}
	log := warntest.Record(t)
	mayBe := keyfuncs.IP(trust, keyfuncs.ProxyMayBeClient())
	for range 64 * 64 {
		_, _ = mayBe(with("10.0.0.1:1"))
	}
	log.Want(t)
}

// TestIPDoesNotWarnOfForgeries: strangers forge headers, among others who do not.
func TestIPDoesNotWarnOfForgeries(t *testing.T) {
	log := warntest.Record(t)
	bare, behind := keyfuncs.IP(), keyfuncs.IP(keyfuncs.TrustProxies("10.0.0.0/8"))
	forged := many(func(i int) *keyfuncs.Request {
		return with("203.0.113.66:1", fmt.Sprintf("X-Forwarded-For: 10.0.0.%d", i), "Forwarded: \x00")
	})
	chained := many(func(i int) *keyfuncs.Request {
		return with("10.0.0.1:1", fmt.Sprintf("X-Forwarded-For: 198.51.100.%d, 203.0.113.66", i))
	})
	honest, garbage := with("203.0.113.7:1"), with("garbage", "Forwarded: x")
	for i := range 20_000 {
		_, _ = bare(forged(i))
		_, _ = behind(forged(i))
		_, _ = behind(chained(i))
		if i%5 == 0 {
			_, _ = bare(honest)
		}
		_, _ = bare(garbage)
	}
	log.Want(t)
}

func TestIPWarnsOfOneBucket(t *testing.T) {
	trust := keyfuncs.TrustProxies("10.0.0.1")
	for name, tt := range map[string]struct {
		fn      keyfuncs.Func
		peer    string
		headers string
		told    map[string]string
	}{
		"a proxy in the chain is not named": {
			keyfuncs.IP(trust), "10.0.0.1:1", "X-Forwarded-For: 198.51.100.%d, 10.0.0.2",
			map[string]string{"client": "10.0.0.2", "reads": "X-Forwarded-For", "sent": "X-Forwarded-For"},
		},
		"the header names a proxy": {
			keyfuncs.IP(trust, keyfuncs.ReadHeader("X-Real-IP")), "10.0.0.1:1",
			"X-Real-IP: 10.0.0.2\nX-Forwarded-For: 198.51.100.%d",
			map[string]string{"client": "10.0.0.2", "reads": "X-Real-Ip", "sent": "X-Forwarded-For"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := warntest.Record(t)
			request := many(func(i int) *keyfuncs.Request {
				return with(tt.peer, strings.Split(fmt.Sprintf(tt.headers, i), "\n")...)
			})
			health := with(tt.peer)
			for range 20_000 {
				_, _ = tt.fn(request(7)) // one client from inside, such as a monitor, comes again and again
			}
			log.Want(t)
			for i := range 64 * 64 * 3 {
				_, _ = tt.fn(request(i))
				if i%5 == 0 {
					_, _ = tt.fn(health)
				}
			}
			told := log.Want(t, "GH003")[0]
			for name, want := range tt.told {
				if told[name] != want {
					t.Errorf("told %v, want %s = %s", told, name, want)
				}
			}
		})
	}

	t.Run("one of the inside who forges, among others", func(t *testing.T) {
		log := warntest.Record(t)
		fn := keyfuncs.IP(trust)
		forged := many(func(i int) *keyfuncs.Request {
			return with("10.0.0.1:1", fmt.Sprintf("X-Forwarded-For: 198.51.100.%d, 10.2.0.9", i))
		})
		other := with("10.0.0.1:1", "X-Forwarded-For: 203.0.113.7")
		for i := range 40_000 {
			_, _ = fn(forged(i))
			if i%3 == 0 {
				_, _ = fn(other)
			}
		}
		log.Want(t)
	})
	t.Run("many clients of the inside", func(t *testing.T) {
		log := warntest.Record(t)
		fn := keyfuncs.IP(trust)
		inner := many(func(i int) *keyfuncs.Request {
			return with("10.0.0.1:1", fmt.Sprintf("X-Forwarded-For: 10.1.0.%d", i))
		})
		for i := range 20_000 {
			_, _ = fn(inner(i))
		}
		log.Want(t)
	})
}

func TestIPWarnsOfTrustInEverybody(t *testing.T) {
	for _, tt := range []struct {
		name     string
		prefixes []string
		told     string // "" for no warning
	}{
		{"private networks", []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8",
			"100.64.0.0/10", "169.254.0.0/16", "fc00::/7", "fe80::/10", "::1"}, ""},
		{"a CDN's", []string{"104.16.0.0/13", "172.64.0.0/13", "162.158.0.0/15", "2400:cb00::/32",
			"2606:4700::/32"}, ""},
		{"private networks twice, and again",
			[]string{"10.0.0.0/8", "10.0.0.0/8", "10.1.0.0/8", "10.2.0.0/8", "10.3.0.0/8", "10.4.0.0/8", "10.5.0.0/8",
				"10.6.0.0/8", "10.7.0.0/8", "10.8.0.0/8"}, ""},
		{"two halves", []string{"0.0.0.0/1", "128.0.0.0/1"}, "0.0.0.0/1 128.0.0.0/1"},
		{"two halves of IPv6", []string{"::/1", "8000::/1"}, "::/1 8000::/1"},
		{"the Internet of IPv6", []string{"2000::/3"}, "2000::/3"},
		{"/7", []string{"203.0.113.0/7"}, "202.0.0.0/7"},
		{"mapped", []string{"::ffff:0.0.0.0/97"}, "0.0.0.0/1"},
		{"/6 of IPv6", []string{"fc00::/6"}, "fc00::/6"},
		{"many", []string{"1.0.0.0/8", "2.0.0.0/8", "3.0.0.0/8", "4.0.0.0/8", "5.0.0.0/8", "6.0.0.0/8", "7.0.0.0/8",
			"8.0.0.0/8", "9.0.0.0/8"}, "9.0.0.0/8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := warntest.Record(t)
			for range 2 {
				keyfuncs.IP(keyfuncs.TrustProxies(tt.prefixes...))
			}
			if tt.told == "" {
				log.Want(t)
			} else if told := log.Want(t, "GH002")[0]; told["prefixes"] != tt.told {
				t.Errorf("told %v, want %s", told, tt.told)
			}
		})
	}
}

func TestRouteWarnsOfAnUnroutedRequest(t *testing.T) {
	t.Run("around a ServeMux", func(t *testing.T) {
		log := warntest.Record(t)
		fn := keyfuncs.Route()
		mux := http.NewServeMux()
		mux.HandleFunc("/polls/{poll}", func(_ http.ResponseWriter, r *http.Request) {
			_, err := fn(&keyfuncs.Request{Request: r})
			check(t, "", err, "", nil)
		})
		r := httptest.NewRequest(http.MethodGet, "/polls/7", nil)
		mux.ServeHTTP(nil, r.Clone(t.Context()))
		log.Want(t)
		for range 3 {
			_, err := fn(&keyfuncs.Request{Request: r})
			check(t, "", err, "", keyfuncs.ErrMissing)
		}
		log.Want(t, "GH005")
	})
	unmatched := get("/")
	unmatched.Facts = facts{}
	matched := get("/")
	matched.Facts = facts{route: "/polls/:poll"}
	t.Run("in front of a framework's router", func(t *testing.T) {
		log := warntest.Record(t)
		fn := keyfuncs.Route()
		for range 99 {
			_, _ = fn(unmatched)
		}
		log.Want(t)
		_, _ = fn(unmatched)
		_, _ = fn(unmatched)
		log.Want(t, "GH005")
	})
	t.Run("paths that do not exist", func(t *testing.T) {
		log := warntest.Record(t)
		fn := keyfuncs.Route()
		_, _ = fn(unmatched)
		_, _ = fn(matched)
		for range 1000 {
			_, _ = fn(unmatched)
		}
		log.Want(t)
	})
}

// TestLookingAllocatesNothing: the proxy detector allocates no memory, neither at once nor later.
func TestLookingAllocatesNothing(t *testing.T) {
	warntest.Record(t)
	behind := keyfuncs.TrustProxies("10.0.0.0/8")
	for name, tt := range map[string]struct {
		fn   keyfuncs.Func
		r    *keyfuncs.Request
		most float64 // the text of the address
	}{
		"a peer":                  {keyfuncs.IP(), with("203.0.113.7:1"), 1},
		"a peer that forges":      {keyfuncs.IP(), with("203.0.113.7:1", "Forwarded: for=198.51.100.1"), 1},
		"an inner peer":           {keyfuncs.IP(), with("10.0.0.1:1"), 1},
		"a client behind a proxy": {keyfuncs.IP(behind), with("10.0.0.1:1", "X-Forwarded-For: 203.0.113.7"), 1},
		"an inner client":         {keyfuncs.IP(behind), with("10.0.0.1:1", "X-Forwarded-For: 10.0.0.7"), 1},
		"the header of one": {keyfuncs.IP(behind, keyfuncs.ReadHeader("X-Real-IP")),
			with("10.0.0.1:1", "X-Real-IP: 10.0.0.7"), 1},
		"a route": {keyfuncs.Route(),
			func() *keyfuncs.Request { r := get("/"); r.Pattern = "/polls"; return r }(), 0},
		"no route, of a framework": {keyfuncs.Route(),
			func() *keyfuncs.Request { r := get("/"); r.Facts = facts{}; return r }(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(500, func() { _, _ = tt.fn(tt.r) }); n > tt.most {
				t.Errorf("%v allocations, want at most %v", n, tt.most)
			}
		})
	}
}
