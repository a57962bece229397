// Package spoofing is a table of requests that say, truly or not, who sends them, with the client that each
// must count as.
//
// The tests of keyfuncs run it against the function, and those of every adapter against a whole
// application, in memory and over a connection. Everywhere the client is 203.0.113.7 or in 2001:db8:c::/64,
// the proxies are those of [Behind], and forged addresses are from 198.51.100.0/24.
package spoofing

import (
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// A Case is one request.
type Case struct {
	Name string
	// IP names the function: see [Functions].
	IP string
	// Peer is the RemoteAddr.
	Peer string
	// Lines are header lines as sent, "Name: value".
	Lines []string
	// Want is the text that the function finds, "" for an error, which is then Err.
	Want string
	Err  error
}

// Request makes the request as net/http hands it to handlers, but keeps the blanks around values, as HTTP/2
// does.
func (c Case) Request() *http.Request {
	r, err := http.NewRequest(http.MethodPost, "/things/t1", http.NoBody) //nolint:noctx // the caller gives it one
	if err != nil {
		panic(err)
	}
	r.RemoteAddr = c.Peer
	for _, line := range c.Lines {
		name, value, _ := strings.Cut(line, ":")
		name = http.CanonicalHeaderKey(name)
		r.Header[name] = append(r.Header[name], strings.TrimPrefix(value, " "))
	}
	return r
}

// Functions returns the set-ups, by name.
func Functions() map[string]keyfuncs.Func {
	behind := keyfuncs.TrustProxies(Behind()...)
	return map[string]keyfuncs.Func{
		"default":   keyfuncs.IP(),
		"proxies":   keyfuncs.IP(behind),
		"forwarded": keyfuncs.IP(behind, keyfuncs.ReadForwarded()),
		"own":       keyfuncs.IP(behind, keyfuncs.ProxyMayBeClient()),
		"own, fwd":  keyfuncs.IP(behind, keyfuncs.ProxyMayBeClient(), keyfuncs.ReadForwarded()),
		"cdn":       keyfuncs.IP(behind, keyfuncs.ReadHeader("CF-Connecting-IP")),
		"real ip":   keyfuncs.IP(behind, keyfuncs.ReadHeader("x-real-ip")),
		"unix":      keyfuncs.IP(keyfuncs.TrustUnixSocket()),
		"unix, cdn": keyfuncs.IP(keyfuncs.TrustUnixSocket(), keyfuncs.ReadHeader("CF-Connecting-IP")),
		"sites":     keyfuncs.IP(behind, keyfuncs.IPv6Prefix(48), keyfuncs.IPv4Prefix(24)),
	}
}

// Behind returns the trusted proxies of all set-ups but "default" and the two of Unix sockets.
func Behind() []string { return []string{"10.0.0.0/8", "2001:db8:f::/48", "192.0.2.1"} }

const (
	proxy    = "10.0.0.1:443"
	client   = "203.0.113.7"
	stranger = "203.0.113.7:50000"
	client6  = "2001:db8:c::/64"
)

// Cases returns the table.
func Cases() []Case {
	var all []Case
	add := func(name string, c Case) {
		c.Name = c.IP + ": " + name
		all = append(all, c)
	}
	finds := func(ip, peer, name, want string, lines ...string) {
		add(name, Case{IP: ip, Peer: peer, Lines: lines, Want: want})
	}
	malformed := func(ip, peer, name string, lines ...string) {
		add(name, Case{IP: ip, Peer: peer, Lines: lines, Err: keyfuncs.ErrMalformed})
	}
	missing := func(ip, peer, name string, lines ...string) {
		add(name, Case{IP: ip, Peer: peer, Lines: lines, Err: keyfuncs.ErrMissing})
	}

	// Proxies that name no client are none themselves, unless the set-up says so. Of the addresses in the
	// header, the leftmost is the client then.
	silent := func(ip, name string, lines ...string) {
		malformed(ip, proxy, name, lines...)
		who := "10.0.0.1"
		if name == "all trusted" {
			who = "10.0.0.9"
		}
		finds(map[string]string{"proxies": "own", "forwarded": "own, fwd"}[ip], proxy, name, who, lines...)
	}

	// Strangers count as themselves, whatever they say, under every set-up.
	for _, ip := range []string{"default", "proxies", "forwarded", "cdn", "real ip", "own", "own, fwd"} {
		for name, lines := range map[string][]string{
			"stranger without headers":          nil,
			"stranger with X-Forwarded-For":     {"X-Forwarded-For: 198.51.100.1"},
			"stranger with Forwarded":           {"Forwarded: for=198.51.100.1"},
			"stranger with X-Real-IP":           {"X-Real-IP: 198.51.100.1"},
			"stranger with the header of a CDN": {"CF-Connecting-IP: 198.51.100.1"},
			"stranger with those of other CDNs": {"True-Client-IP: 198.51.100.1", "Fly-Client-IP: 198.51.100.1",
				"Fastly-Client-IP: 198.51.100.1", "X-Azure-ClientIP: 198.51.100.1"},
			"stranger with all at once": {"X-Forwarded-For: 198.51.100.1", "Forwarded: for=198.51.100.2",
				"X-Real-IP: 198.51.100.3", "CF-Connecting-IP: 198.51.100.4"},
			"stranger who names a proxy": {"X-Forwarded-For: 198.51.100.1, 10.0.0.2",
				"CF-Connecting-IP: 10.0.0.1", "X-Real-IP: 127.0.0.1"},
			"stranger with garbage": {"X-Forwarded-For: \xff, ,\"", "Forwarded: for=\"",
				"CF-Connecting-IP: x", "X-Real-IP:"},
			"stranger who names headers to drop": {"Connection: X-Forwarded-For, CF-Connecting-IP",
				"X-Forwarded-For: 198.51.100.1"},
			"stranger with other spellings of names": {"x-forwarded-for: 198.51.100.1",
				"CF-CONNECTING-IP: 198.51.100.1", "X_Forwarded_For: 198.51.100.1", "X-Forwarded-For-: 198.51.100.1"},
		} {
			finds(ip, stranger, name, client, lines...)
		}
		finds(ip, "[2001:db8:c::7]:50000", "stranger on IPv6", client6, "X-Forwarded-For: 198.51.100.1",
			"CF-Connecting-IP: 198.51.100.1")
		finds(ip, "[::ffff:203.0.113.7]:50000", "mapped stranger", client, "X-Forwarded-For: 198.51.100.1",
			"X-Real-IP: 198.51.100.1")
		finds(ip, "[fe80::7%eth0]:50000", "stranger with a zone", "fe80::/64", "X-Forwarded-For: 198.51.100.1",
			"X-Real-IP: 198.51.100.1")
		finds(ip, "203.0.113.7:0", "stranger with port 0", client)
		malformed(ip, "localhost:80", "a peer that is no address", "X-Forwarded-For: 198.51.100.1")
		malformed(ip, "0203.0.113.7:80", "a peer with a leading zero", "X-Forwarded-For: 198.51.100.1")
		missing(ip, "@", "a Unix socket that is not trusted", "X-Forwarded-For: 198.51.100.1",
			"CF-Connecting-IP: 198.51.100.1", "X-Real-IP: 198.51.100.1")
		missing(ip, "", "a Unix socket without a name", "Forwarded: for=198.51.100.1")
	}
	finds("default", "127.0.0.1:50000", "loopback with all headers", "127.0.0.1",
		"X-Forwarded-For: 198.51.100.1", "Forwarded: for=198.51.100.1", "CF-Connecting-IP: 198.51.100.1")
	finds("default", "10.0.0.1:443", "an inner peer is not trusted by itself", "10.0.0.1",
		"X-Forwarded-For: 198.51.100.1", "X-Real-IP: 198.51.100.1")

	// X-Forwarded-For from proxies.
	const xff = "proxies"
	finds(xff, proxy, "one proxy", client, "X-Forwarded-For: 203.0.113.7")
	finds(xff, proxy, "a chain of three", client, "X-Forwarded-For: 203.0.113.7, 192.0.2.1, 10.9.9.9")
	finds(xff, proxy, "a chain of three in lines", client, "X-Forwarded-For: 203.0.113.7",
		"X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 10.9.9.9")
	finds(xff, "[2001:db8:f::1]:443", "a chain of three, mixed", client6,
		"X-Forwarded-For: 2001:db8:c::7, 2001:db8:f::2, 10.0.0.2")
	silent(xff, "all trusted", "X-Forwarded-For: 10.0.0.9, 10.0.0.8, 192.0.2.1")
	silent(xff, "no header")
	silent(xff, "dropped on the way", "Connection: X-Forwarded-For")
	finds(xff, proxy, "named to be dropped, and there", client, "Connection: X-Forwarded-For",
		"X-Forwarded-For: 198.51.100.1, 203.0.113.7")
	silent(xff, "only commas", "X-Forwarded-For: ,,, ,")
	silent(xff, "empty lines", "X-Forwarded-For:", "X-Forwarded-For: ")
	finds(xff, proxy, "empty elements", client, "X-Forwarded-For: ,198.51.100.1,, 203.0.113.7 ,, 10.0.0.2,")
	finds(xff, proxy, "forged before the client", client, "X-Forwarded-For: 198.51.100.1, 203.0.113.7")
	finds(xff, proxy, "forged proxies before the client", client,
		"X-Forwarded-For: 198.51.100.1, 10.0.0.2, 10.0.0.3, 203.0.113.7")
	finds(xff, proxy, "forged in a line of its own", client, "X-Forwarded-For: 198.51.100.1",
		"X-Forwarded-For: 203.0.113.7")
	finds(xff, proxy, "forged with another spelling of the name", client, "x-forwarded-FOR: 198.51.100.1",
		"X-Forwarded-For: 203.0.113.7")
	finds(xff, proxy, "an underscore makes another header", client, "X-Forwarded-For: 203.0.113.7",
		"X_Forwarded_For: 198.51.100.1")
	finds(xff, proxy, "garbage before the client", client,
		"X-Forwarded-For: \"198.51.100.1, unknown, _hidden, \xff\xfe, 203.0.113.7")
	finds(xff, proxy, "NUL before the client", client, "X-Forwarded-For: \x00, 203.0.113.7")
	finds(xff, proxy, "the other headers are not read", client, "X-Forwarded-For: 203.0.113.7",
		"Forwarded: for=198.51.100.1", "X-Real-IP: 198.51.100.2", "CF-Connecting-IP: 198.51.100.3")
	silent(xff, "only the other headers", "Forwarded: for=198.51.100.1",
		"X-Real-IP: 198.51.100.2", "CF-Connecting-IP: 198.51.100.3")
	finds(xff, proxy, "a port", client, "X-Forwarded-For: 203.0.113.7:50000")
	finds(xff, proxy, "port 0", client, "X-Forwarded-For: 203.0.113.7:0")
	finds(xff, proxy, "brackets", client6, "X-Forwarded-For: [2001:db8:c::7]")
	finds(xff, proxy, "brackets and a port", client6, "X-Forwarded-For: [2001:db8:c::7]:443")
	finds(xff, proxy, "a zone", "fe80::/64", "X-Forwarded-For: fe80::7%eth0")
	finds(xff, proxy, "a zone on a proxy", client, "X-Forwarded-For: 203.0.113.7, 2001:db8:f::2%eth0")
	finds(xff, proxy, "tabs", client, "X-Forwarded-For: \t203.0.113.7\t,\t10.0.0.2\t")
	finds(xff, proxy, "mapped, in a trusted prefix", client, "X-Forwarded-For: 203.0.113.7, ::ffff:10.0.0.2")
	finds(xff, proxy, "mapped in hex, in a trusted prefix", client, "X-Forwarded-For: 203.0.113.7, ::ffff:a00:2")
	finds(xff, proxy, "mapped, in none", client, "X-Forwarded-For: 10.0.0.2, ::ffff:203.0.113.7")
	finds(xff, "[::ffff:10.0.0.1]:443", "mapped peer, in a trusted prefix", client,
		"X-Forwarded-For: 203.0.113.7")
	finds(xff, "[::ffff:a00:1%eth0]:443", "mapped peer in hex with a zone", client,
		"X-Forwarded-For: 203.0.113.7")
	finds(xff, "[::10.0.0.1]:443", "compatible is not mapped", "::/64", "X-Forwarded-For: 198.51.100.1")
	finds(xff, "[64:ff9b::a00:1]:443", "a translated address is no proxy", "64:ff9b::a00:1",
		"X-Forwarded-For: 198.51.100.1")
	finds(xff, proxy, "a translated client", "64:ff9b::cb00:7107", "X-Forwarded-For: 64:ff9b::203.0.113.7")
	finds(xff, proxy, "6to4", "2002:cb00:7107:1::/64", "X-Forwarded-For: 2002:cb00:7107:1::7")
	finds(xff, proxy, "6to4 of a proxy is no proxy", "2002:a00:1::/64",
		"X-Forwarded-For: 198.51.100.1, 2002:a00:1::1")
	finds(xff, proxy, "Teredo", "2001:0:c000:201::/64", "X-Forwarded-For: 2001:0:c000:201:0:63bf:34ff:8ef8")
	finds(xff, "11.0.0.1:443", "just outside of a prefix", "11.0.0.1", "X-Forwarded-For: 198.51.100.1")
	finds(xff, "192.0.2.2:443", "beside a single proxy", "192.0.2.2", "X-Forwarded-For: 198.51.100.1")
	finds(xff, "[2001:db8:10::1]:443", "just outside of a prefix of IPv6", "2001:db8:10::/64",
		"X-Forwarded-For: 198.51.100.1")
	silent(xff, "a megabyte of commas", "X-Forwarded-For: "+strings.Repeat(",", 1<<20))
	finds(xff, proxy, "a megabyte of proxies", client,
		"X-Forwarded-For: 203.0.113.7"+strings.Repeat(", 10.0.0.2", 1<<20/10))
	finds(xff, proxy, "a megabyte before the client", client,
		"X-Forwarded-For: "+strings.Repeat("198.51.100.1, ", 1<<20/14)+"203.0.113.7")
	finds(xff, proxy, "thousand lines", client,
		append(many(1000, "X-Forwarded-For: 198.51.100.1"), "X-Forwarded-For: 203.0.113.7")...)
	malformed(xff, proxy, "a megabyte of one element", "X-Forwarded-For: "+strings.Repeat("1", 1<<20))
	malformed(xff, proxy, "unknown", "X-Forwarded-For: unknown")
	malformed(xff, proxy, "unknown behind a client", "X-Forwarded-For: 198.51.100.1, unknown, 10.0.0.2")
	malformed(xff, proxy, "an obfuscated name", "X-Forwarded-For: _hidden")
	malformed(xff, proxy, "a host name", "X-Forwarded-For: localhost")
	malformed(xff, proxy, "quoted, as Forwarded has it", `X-Forwarded-For: "203.0.113.7"`)
	malformed(xff, proxy, "a comma in quotes is one all the same",
		`X-Forwarded-For: "198.51.100.1, 203.0.113.7"`)
	malformed(xff, proxy, "an element of Forwarded", "X-Forwarded-For: for=203.0.113.7")
	malformed(xff, proxy, "leading zeros", "X-Forwarded-For: 203.0.113.007")
	malformed(xff, proxy, "an octal proxy", "X-Forwarded-For: 198.51.100.1, 012.0.0.1")
	malformed(xff, proxy, "a number", "X-Forwarded-For: 3405803783")
	malformed(xff, proxy, "three parts", "X-Forwarded-For: 203.0.7")
	malformed(xff, proxy, "blanks between", "X-Forwarded-For: 198.51.100.1 203.0.113.7")
	malformed(xff, proxy, "a blank before the port", "X-Forwarded-For: 203.0.113.7 :80")
	malformed(xff, proxy, "no port behind the colon", "X-Forwarded-For: 203.0.113.7:")
	malformed(xff, proxy, "a negative port", "X-Forwarded-For: 203.0.113.7:-1")
	malformed(xff, proxy, "an open bracket", "X-Forwarded-For: [2001:db8:c::7")
	malformed(xff, proxy, "IPv4 in brackets", "X-Forwarded-For: [203.0.113.7]:80")
	malformed(xff, proxy, "IPv4 with a zone", "X-Forwarded-For: 203.0.113.7%eth0")
	malformed(xff, proxy, "a prefix", "X-Forwarded-For: 203.0.113.0/24")
	malformed(xff, proxy, "NUL behind the client", "X-Forwarded-For: 203.0.113.7\x00")
	malformed(xff, proxy, "not UTF-8", "X-Forwarded-For: 203.0.113.7, \xc3\x28")
	malformed(xff, proxy, "wide digits", "X-Forwarded-For: ２03.0.113.7")
	malformed(xff, proxy, "a line break", "X-Forwarded-For: 203.0.113.7\r\n10.0.0.2")

	// Forwarded from proxies.
	const fwd = "forwarded"
	finds(fwd, proxy, "one proxy", client, "Forwarded: for=203.0.113.7;proto=https")
	finds(fwd, proxy, "a chain of three", client, `Forwarded: for=203.0.113.7, for="192.0.2.1:80"`,
		`Forwarded: for="[2001:db8:f::2]:443";by=_gw`)
	silent(fwd, "no header")
	silent(fwd, "only X-Forwarded-For", "X-Forwarded-For: 198.51.100.1")
	finds(fwd, proxy, "a comma in quotes", client, `Forwarded: for=203.0.113.7;host="a, for=198.51.100.1"`)
	finds(fwd, proxy, "an escaped quote", client, `Forwarded: for=203.0.113.7;host="a\", for=198.51.100.1, \"b"`)
	finds(fwd, proxy, "an unclosed quote before the client", client,
		`Forwarded: for="198.51.100.1, for=203.0.113.7`)
	finds(fwd, proxy, "an unclosed quote before a quoted client", client,
		`Forwarded: host="x, for="203.0.113.7:1", for="10.0.0.2:2"`)
	finds(fwd, proxy, "an unclosed quote in a line of its own", client, `Forwarded: for="198.51.100.1`,
		`Forwarded: for=203.0.113.7`)
	finds(fwd, proxy, "mapped, with a port", client,
		`Forwarded: for="[::ffff:203.0.113.7]:4711", for="[::ffff:10.0.0.2]"`)
	finds(fwd, proxy, "empty elements", client, "Forwarded: , ,for=203.0.113.7,,", "Forwarded:")
	finds(fwd, proxy, "name in another case", client, "fOrWaRdEd: FOR=203.0.113.7")
	finds(fwd, proxy, "a megabyte of quotes", client,
		"Forwarded: "+strings.Repeat(`"`, 1<<20-1)+", for=203.0.113.7")
	finds(fwd, proxy, "a megabyte of escapes and quotes, and proxies", client,
		`Forwarded: for=203.0.113.7`+strings.Repeat(`, for=10.0.0.2;host="`+strings.Repeat(`\"`, 1000)+`"`, 500))
	silent(fwd, "a megabyte of commas", "Forwarded: "+strings.Repeat(",", 1<<20))
	malformed(fwd, proxy, "a megabyte of backslashes", `Forwarded: for="`+strings.Repeat(`\`, 1<<20)+`"`)
	malformed(fwd, proxy, "an unclosed quote", `Forwarded: for="203.0.113.7`)
	malformed(fwd, proxy, "unknown", "Forwarded: for=203.0.113.7, for=unknown")
	malformed(fwd, proxy, "an obfuscated name", `Forwarded: for="_SEVKISEK:80"`)
	malformed(fwd, proxy, "no for", "Forwarded: for=198.51.100.1, proto=https;by=10.0.0.2")
	malformed(fwd, proxy, "two fors", "Forwarded: for=203.0.113.7;for=198.51.100.1")
	malformed(fwd, proxy, "leading zeros", "Forwarded: for=203.0.113.007")
	malformed(fwd, proxy, "not UTF-8", "Forwarded: for=\xff")

	// The header of a CDN.
	const cdn = "cdn"
	finds(cdn, proxy, "the CDN", client, "CF-Connecting-IP: 203.0.113.7")
	finds(cdn, proxy, "name in another case", client, "cf-connecting-ip: 203.0.113.7")
	finds(cdn, proxy, "IPv6", client6, "CF-Connecting-IP: 2001:db8:c::7")
	finds(cdn, proxy, "mapped", client, "CF-Connecting-IP: ::ffff:203.0.113.7")
	finds(cdn, proxy, "a zone", "fe80::/64", "CF-Connecting-IP: fe80::7%eth0")
	finds(cdn, proxy, "blanks around", client, "CF-Connecting-IP: \t 203.0.113.7 \t")
	finds(cdn, proxy, "lists are not read", client, "CF-Connecting-IP: 203.0.113.7",
		"X-Forwarded-For: 198.51.100.1", "Forwarded: for=198.51.100.2", "True-Client-IP: 198.51.100.3")
	finds(cdn, proxy, "a proxy calls for itself", "10.0.0.2", "CF-Connecting-IP: 10.0.0.2")
	finds(cdn, "[::ffff:10.0.0.1]:443", "mapped peer", client, "CF-Connecting-IP: 203.0.113.7")
	finds(cdn, "11.0.0.1:443", "a CDN that is not trusted changes nothing", "11.0.0.1",
		"CF-Connecting-IP: 198.51.100.1")
	malformed(cdn, proxy, "no header")
	malformed(cdn, proxy, "dropped on the way", "Connection: CF-Connecting-IP", "X-Forwarded-For: 198.51.100.1")
	malformed(cdn, proxy, "empty", "CF-Connecting-IP:")
	malformed(cdn, proxy, "twice", "CF-Connecting-IP: 198.51.100.1", "CF-Connecting-IP: 203.0.113.7")
	malformed(cdn, proxy, "twice the same", "CF-Connecting-IP: 203.0.113.7", "cf-connecting-ip: 203.0.113.7")
	malformed(cdn, proxy, "twice, one empty", "CF-Connecting-IP: 203.0.113.7", "CF-Connecting-IP:")
	malformed(cdn, proxy, "a list", "CF-Connecting-IP: 198.51.100.1, 203.0.113.7")
	malformed(cdn, proxy, "a comma", "CF-Connecting-IP: 203.0.113.7,")
	malformed(cdn, proxy, "a port", "CF-Connecting-IP: 203.0.113.7:443")
	malformed(cdn, proxy, "brackets", "CF-Connecting-IP: [2001:db8:c::7]")
	malformed(cdn, proxy, "brackets and a port", "CF-Connecting-IP: [2001:db8:c::7]:443")
	malformed(cdn, proxy, "quotes", `CF-Connecting-IP: "203.0.113.7"`)
	malformed(cdn, proxy, "unknown", "CF-Connecting-IP: unknown")
	malformed(cdn, proxy, "leading zeros", "CF-Connecting-IP: 203.0.113.007")
	malformed(cdn, proxy, "a prefix", "CF-Connecting-IP: 203.0.113.7/32")
	malformed(cdn, proxy, "NUL", "CF-Connecting-IP: 203.0.113.7\x00")
	malformed(cdn, proxy, "not UTF-8", "CF-Connecting-IP: \xff")
	malformed(cdn, proxy, "a megabyte", "CF-Connecting-IP: "+strings.Repeat("2", 1<<20))
	finds("real ip", proxy, "nginx", client, "X-Real-IP: 203.0.113.7")
	finds("real ip", proxy, "the CDN's is not read", client, "X-Real-IP: 203.0.113.7",
		"CF-Connecting-IP: 198.51.100.1")
	malformed("real ip", proxy, "only the CDN's", "CF-Connecting-IP: 198.51.100.1")

	// Unix sockets.
	for _, peer := range []string{"", "@", "@app", "/run/app.sock"} {
		finds("unix", peer, "peer "+peer, client, "X-Forwarded-For: 198.51.100.1, 203.0.113.7")
		malformed("unix", peer, "peer "+peer+" without a header", "X-Real-IP: 198.51.100.1")
		malformed("unix", peer, "peer "+peer+" with garbage", "X-Forwarded-For: garbage")
		finds("unix, cdn", peer, "peer "+peer, client, "CF-Connecting-IP: 203.0.113.7")
		malformed("unix, cdn", peer, "peer "+peer+" without a header", "X-Forwarded-For: 198.51.100.1")
	}
	finds("unix", stranger, "stranger over TCP", client, "X-Forwarded-For: 198.51.100.1")
	finds("unix, cdn", stranger, "stranger over TCP", client, "CF-Connecting-IP: 198.51.100.1")

	// Wider clients.
	finds("sites", proxy, "IPv4", "203.0.113.0/24", "X-Forwarded-For: 203.0.113.7")
	finds("sites", proxy, "IPv6", "2001:db8:c::/48", "X-Forwarded-For: 2001:db8:c:ffff::7")
	finds("sites", proxy, "6to4: all networks of one IPv4 address", "2002:cb00:7107::/48",
		"X-Forwarded-For: 2002:cb00:7107:ffff::7")
	finds("sites", proxy, "mapped", "203.0.113.0/24", "X-Forwarded-For: ::ffff:203.0.113.7")
	finds("sites", proxy, "translated", "64:ff9b::cb00:7100/120", "X-Forwarded-For: 64:ff9b::203.0.113.7")
	return all
}

func many(n int, line string) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = line
	}
	return lines
}
