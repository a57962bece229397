package keyfuncs_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

var readingForwarded = keyfuncs.IP(
	keyfuncs.TrustProxies("10.0.0.0/8", "2001:db8:f::/48"), keyfuncs.ReadForwarded(), keyfuncs.IPv6Prefix(128))

var readingForwardedOrProxies = keyfuncs.IP(
	keyfuncs.TrustProxies("10.0.0.0/8", "2001:db8:f::/48"), keyfuncs.ReadForwarded(), keyfuncs.IPv6Prefix(128),
	keyfuncs.ProxyMayBeClient())

// The client is 203.0.113.7 or 2001:db8:c::7 and the proxies are in 10.0.0.0/8, as in TestIPBehindProxies.
func TestIPReadForwarded(t *testing.T) {
	const v4, v6 = "203.0.113.7", "2001:db8:c::7"
	tests := []struct {
		name string
		fwd  []string
		want string
	}{
		{"bare", lines(`for=203.0.113.7`), v4},
		{"with parameters behind", lines(`for=203.0.113.7;proto=http;by=203.0.113.43`), v4},
		{"with parameters before", lines(`proto=http;by=203.0.113.43;for=203.0.113.7`), v4},
		{"upper case name", lines(`FOR=203.0.113.7`), v4},
		{"mixed case name", lines(`Proto=https;For="203.0.113.7"`), v4},
		{"IPv6 with port", lines(`for="[2001:db8:c::7]:4711"`), v6},
		{"IPv6", lines(`For="[2001:db8:c::7]"`), v6},
		{"IPv6 without the brackets it needs", lines(`for="2001:db8:c::7"`), v6},
		{"IPv6 without the quotes it needs", lines(`for=[2001:db8:c::7]:4711;proto=http`), v6},
		{"IPv4 with port", lines(`for="203.0.113.7:4711"`), v4},
		{"IPv4 with port without the quotes it needs", lines(`for=203.0.113.7:4711`), v4},
		{"obfuscated port", lines(`for="203.0.113.7:_port-1"`), v4},
		{"mapped", lines(`for="[::ffff:203.0.113.7]:4711"`), v4},
		{"needless escapes", lines(`for="\2\0\3.0.113\.7"`), v4},
		{"two elements", lines(`for=203.0.113.7, for=10.0.0.2`), v4},
		{"two lines", lines(`for=203.0.113.7`, `for=10.0.0.2;by="[2001:db8:f::1]"`), v4},
		{"IPv6 proxy", lines(`for=203.0.113.7,for="[2001:db8:f::2]:80"`), v4},
		{"blanks around semicolons", lines(`for=203.0.113.7 ; proto=http ;host=a`), v4},
		{"semicolons too many", lines(`;;for=203.0.113.7;;proto=http;`), v4},
		{"all trusted: the leftmost", lines(`for=10.0.0.9, for=10.0.0.8`), "10.0.0.9"},
		{"comma in quotes", lines(`for=203.0.113.7;host="a,b", for=10.0.0.2;host="c,d;e"`), v4},
		{"semicolon in quotes", lines(`host="a;for=198.51.100.1;b";for=203.0.113.7`), v4},
		{"an element in quotes", lines(`for=203.0.113.7;host="x, for=198.51.100.1"`), v4},
		{"escaped quotes", lines(`for=203.0.113.7;host="a\",for=198.51.100.1,\"b"`), v4},
		{"escaped backslash before the quote", lines(`for=203.0.113.7;host="a\\", for=10.0.0.2;host="\\"`), v4},
		{"empty quoted value of another parameter", lines(`host="";for=203.0.113.7`), v4},
		{"no header", nil, "10.0.0.1"},
		{"empty", lines(``, ` , `), "10.0.0.1"},

		{"forged before the client", lines(`for=198.51.100.1, for=203.0.113.7`), v4},
		{"forged proxy before the client", lines(`for=198.51.100.1, for=10.0.0.2, for=203.0.113.7, for=10.0.0.3`),
			v4},
		{"open quote before the client", lines(`for="198.51.100.1, for=203.0.113.7`), v4},
		{"open quote and quoted client", lines(`for="198.51.100.1, for="203.0.113.7"`), v4},
		{"open quote and two quoted proxies", lines(`host="x, for="203.0.113.7:1", for="10.0.0.2:2"`), v4},
		{"open quote in a line of its own", lines(`for="198.51.100.1`, `for=203.0.113.7`), v4},
		{"backslash before the comma", lines(`for="\, for="203.0.113.7"`), v4},
		{"garbage before the client", lines(`@@@;=, for=203.0.113.7`), v4},

		{"unknown", lines(`for=unknown`), malformed},
		{"unknown behind a proxy", lines(`for=203.0.113.7, for=unknown, for=10.0.0.2`), malformed},
		{"obfuscated", lines(`for=_hidden`), malformed},
		{"obfuscated, quoted, with port", lines(`for="_SEVKISEK:80"`), malformed},
		{"no for", lines(`proto=http;by=203.0.113.43`), malformed},
		{"no for behind a proxy", lines(`for=203.0.113.7, proto=https, for=10.0.0.2`), malformed},
		{"two fors", lines(`for=203.0.113.7;for=198.51.100.1`), malformed},
		{"two fors, one in upper case", lines(`for=203.0.113.7;FOR=203.0.113.7`), malformed},
		{"an address alone", lines(`203.0.113.7`), malformed},
		{"empty for", lines(`for=`), malformed},
		{"empty quoted for", lines(`for=""`), malformed},
		{"open quote", lines(`for="203.0.113.7`), malformed},
		{"only a closing quote", lines(`for=203.0.113.7"`), malformed},
		{"escaped closing quote", lines(`for="203.0.113.7\"`), malformed},
		{"backslash at the end", lines(`for="203.0.113.7\`), malformed},
		{"text behind the quote", lines(`for="203.0.113.7"x`), malformed},
		{"blank before the equals sign", lines(`for =203.0.113.7`), malformed},
		{"blank behind the equals sign", lines(`for= 203.0.113.7`), malformed},
		{"blanks within the quotes", lines(`for=" 203.0.113.7 "`), malformed},
		{"text behind the quote that looks like a parameter", lines(`for="203.0.113.7"x=1`), malformed},
		{"parameters without a semicolon between", lines(`for=203.0.113.7 proto=http`), malformed},
		{"a name with a blank", lines(`pro to=http;for=203.0.113.7`), malformed},
		{"a name that is no token", lines(`@=1;for=203.0.113.7`), malformed},
		{"a quoted string within a value", lines(`host=a"b";for=203.0.113.7`), malformed},
		{"two words", lines(`for=203.0.113.7 198.51.100.1`), malformed},
		{"no name", lines(`=203.0.113.7`), malformed},
		{"a parameter without value", lines(`for=203.0.113.7;secure`), malformed},
		{"a parameter with an empty value", lines(`for=203.0.113.7;proto=`), malformed},
		{"empty port", lines(`for="203.0.113.7:"`), malformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readingForwarded(from("10.0.0.1:443", lines("198.51.100.66"), tt.fwd))
			checkText(t, got, err, notAProxy(tt.want))
			got, err = readingForwardedOrProxies(from("10.0.0.1:443", lines("198.51.100.66"), tt.fwd))
			checkText(t, got, err, tt.want)

			got, err = readingForwarded(from("192.0.2.99:50000", lines("198.51.100.66"), tt.fwd))
			check(t, got, err, "192.0.2.99", nil)
		})
	}
}

// Whatever the client wrote before, the elements that the proxies have appended decide.
func TestForwardedLeftOfTheClientIsNeverLookedAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forged := rapid.StringOf(rapid.SampledFrom([]rune(`for="\;, =10.0.0.1:[]_ab`))).Draw(t, "forged")
		quoted := rapid.StringOf(rapid.SampledFrom([]rune(`a,;= "\`))).Draw(t, "host")
		host := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(quoted) + `"`
		appended := []string{
			`for=203.0.113.7;host=` + host,
			`host=` + host + `;for="203.0.113.7:80", for=10.0.0.2;host=` + host,
			`for="203.0.113.7";host=` + host + ` , host=` + host + `;proto=https;for="[::ffff:10.0.0.2]"`,
		}
		line := forged + "," + rapid.SampledFrom(appended).Draw(t, "appended")
		got, err := readingForwarded(from("10.0.0.1:443", nil, lines(line)))
		if err != nil || got != "203.0.113.7" {
			t.Fatalf("%s gives %q, %v", line, got, err)
		}
	})
}

// FuzzForwarded feeds the reader headers that are all one client's. The reader must not panic, must return
// nothing but addresses, and must see no more in a line than in the line behind an element that a proxy has
// appended.
func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{
		`for=203.0.113.7`, `for="[2001:db8:c::7]:4711";proto=https, for=10.0.0.2`, `for="\"\\";for=_x`, `for="`,
		`For=1.2.3.4 ; by="a,b;c\"" ,, for=unknown`, `;;=;`, `\",\"`, `for=10.0.0.2,for="10.0.0.3:80"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got, err := readingForwarded(from("10.0.0.1:443", nil, lines(line)))
		if err != nil {
			check(t, got, err, "", keyfuncs.ErrMalformed)
		} else if !isAddress(got) {
			t.Fatalf("%q gives %q", line, got)
		}
		split, splitErr := readingForwarded(from("10.0.0.1:443", nil,
			lines(line, `for="10.0.0.2:80";host="a\",b"`)))
		joined, joinedErr := readingForwarded(from("10.0.0.1:443", nil,
			lines(line+`, for="10.0.0.2:80";host="a\",b"`)))
		if split != joined || (splitErr == nil) != (joinedErr == nil) {
			t.Fatalf("%q: %q, %v in two lines, %q, %v in one", line, split, splitErr, joined, joinedErr)
		}
		client, err := readingForwarded(from("10.0.0.1:443", nil, lines(line+`, for=203.0.113.7`)))
		check(t, client, err, "203.0.113.7", nil)
	})
}
