package fibermw

import (
	"net"
	"net/url"
	"testing"
)

// TestURLsAreThoseOfNetURL: simple ones are read without it.
func TestURLsAreThoseOfNetURL(t *testing.T) {
	for _, target := range []string{
		"/", "/a/b-c_d.e/1", "/a?b=c", "/a?b=%zz&c", "/a?", "/a??", "//a/b", "/%66inal", "/a%2Fb", "/a;b",
		"/a|b", "/gr%C3%BCn?x", "/~a", "/a:b", "/a@b", "http://host/a?b", "*", "/a#b", "/a\x7f",
	} {
		want, err := url.ParseRequestURI(target)
		if got := urlOf(target); err == nil && *got != *want {
			t.Errorf("%s: %#v, want %#v", target, got, want)
		}
	}
	if u := urlOf("/%zz?a=b"); u.Path != "/%zz" || u.RawQuery != "a=b" {
		t.Errorf("%#v", u)
	}
}

// TestAddressesAreWrittenAsInNetHTTP, where they are of TCP and where they are not.
func TestAddressesAreWrittenAsInNetHTTP(t *testing.T) {
	for _, addr := range []net.Addr{
		&net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 80}, &net.TCPAddr{IP: net.IPv4(0, 0, 0, 0).To4()},
		&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 443}, &net.TCPAddr{},
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 9, Zone: "eth0"}, &net.UnixAddr{Name: "@", Net: "unix"},
	} {
		if got := textOf(addr); got != addr.String() {
			t.Errorf("%q, want %q", got, addr.String())
		}
	}
}
