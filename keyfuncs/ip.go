package keyfuncs

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// IP finds the client's address: "203.0.113.7", or for IPv6 the network it is in, "2001:db8:1:2::/64", since one
// subscriber has at least 2^64 addresses to choose from (see [IPv6Prefix]).
//
// Without options that is the peer, the address that opened the connection ([http.Request.RemoteAddr]); no header can
// change it. Behind a reverse proxy the peer is the proxy, so all clients would share one bucket: name the proxies
// with [TrustProxies].
//
// When the peer is a trusted proxy, X-Forwarded-For (or Forwarded, see [ReadForwarded]) is read from its right end,
// where each proxy appends the address that it was called from: trusted addresses are stepped over, and the first
// other one is the client. If all are trusted, it is the leftmost. What stands further left was written by the client
// himself and is never looked at. A trusted proxy that sends no header at all speaks for itself, as its health checks
// do, and is the client.
//
// IPv4-mapped IPv6 addresses are folded to IPv4 and zones are stripped before anything is compared, so that no second
// spelling of an address is another client. Ports are dropped.
//
// An address that can not be read, "unknown" and obfuscated names (RFC 7239, section 6) are [ErrMalformed] when the
// walk comes to them: to step over one would be to trust whoever wrote the rest. A peer on a Unix socket has no
// address and is [ErrMissing], unless [TrustUnixSocket] is given.
//
// Let no middleware in front rewrite RemoteAddr from a header that clients can send.
func IP(opts ...IPOption) Func {
	rule := ipRule{source: xForwardedFor, bits4: 32, bits6: 64}
	for _, opt := range opts {
		if opt == nil {
			misuse("IP got a nil option; leave it out")
		}
		opt(&rule)
	}
	if rule.source.header != xForwardedFor.header && len(rule.trusted) == 0 && !rule.unix {
		misuse("IP(ReadForwarded()) would never read the header; name the proxies that set it with TrustProxies")
	}
	return func(r *Request) (string, error) {
		addr, err := rule.client(r.Request)
		if err != nil {
			return "", err
		}
		return rule.text(addr), nil
	}
}

// An IPOption changes what [IP] trusts, reads or returns.
type IPOption func(*ipRule)

// TrustProxies names the reverse proxies in front of this server, as prefixes ("10.0.0.0/8", "2001:db8::/32") or
// single addresses ("192.0.2.1"). Only what these have written in the forwarding header is believed. Name your own
// proxies and no more: everybody within a prefix can pass for any client. Given twice, it adds.
//
// The proxies must append to the header or overwrite it, as nginx does with $proxy_add_x_forwarded_for.
//
// It panics without prefixes, on one that can not be read, and on one that covers every address.
func TrustProxies(prefixes ...string) IPOption {
	if len(prefixes) == 0 {
		misuse("TrustProxies needs the addresses of your proxies, such as \"10.0.0.0/8\"; without proxies leave it out")
	}
	trusted := make([]netip.Prefix, len(prefixes))
	for i, s := range prefixes {
		trusted[i] = mustPrefix(s)
	}
	return func(rule *ipRule) { rule.trusted = append(rule.trusted, trusted...) }
}

// TrustUnixSocket trusts peers that come over a Unix socket, whose RemoteAddr is "", "@" or a path, as if they were
// named in [TrustProxies]. Such a peer has no address of its own: without a forwarding header, [IP] is [ErrMissing].
func TrustUnixSocket() IPOption {
	return func(rule *ipRule) { rule.unix = true }
}

// ReadForwarded reads the Forwarded header (RFC 7239) in place of X-Forwarded-For. One header only is read: a proxy
// that writes one of them passes the other through as the client sent it.
func ReadForwarded() IPOption {
	return func(rule *ipRule) { rule.source = forwarded }
}

// IPv6Prefix sets how many bits of an IPv6 address make one client, from 1 to 128; 64 unless set, the network of one
// link (RFC 4291, section 2.5.1). Many providers give a household a /56 and a company a /48, and so 256 or 65536 such
// networks; 56 or 48 bits count them as one client. 128 takes each address by itself, written without a "/128".
func IPv6Prefix(bits int) IPOption {
	if bits < 1 || bits > 128 {
		misuse("IPv6Prefix(%d): give a number of bits from 1 to 128, such as 64", bits)
	}
	return func(rule *ipRule) { rule.bits6 = bits }
}

// IPv4Prefix sets how many bits of an IPv4 address make one client, from 1 to 32; 32 unless set, which takes each
// address by itself. A shorter one is written as a prefix: "203.0.113.0/24".
func IPv4Prefix(bits int) IPOption {
	if bits < 1 || bits > 32 {
		misuse("IPv4Prefix(%d): give a number of bits from 1 to 32, such as 24", bits)
	}
	return func(rule *ipRule) { rule.bits4 = bits }
}

type ipRule struct {
	trusted      []netip.Prefix
	unix         bool
	source       forwarding
	bits4, bits6 int
}

var errNoAddress = &failure{
	call: "IP()",
	why:  "nothing found: the peer is on a Unix socket and no trusted header names the client (see TrustUnixSocket)",
	kind: ErrMissing,
}

func (rule *ipRule) client(r *http.Request) (netip.Addr, error) {
	client, ok := parseNode(r.RemoteAddr)
	switch {
	case ok && !rule.trusts(client):
		return client, nil
	case !ok && !isUnixPeer(r.RemoteAddr):
		return client, malformed("IP()", "the peer %s is not an address", quote(r.RemoteAddr))
	case !ok && !rule.unix:
		return client, errNoAddress
	}
	// All lines together are one list (RFC 9110, section 5.3), so the last line is the right end of it. The walk takes
	// the list apart as it goes, since splitting all of it would let the client choose how much work that is.
	for _, line := range slices.Backward(r.Header[rule.source.header]) {
		for line != "" {
			var element string
			line, element = rule.source.cut(line)
			if element = strings.Trim(element, " \t"); element == "" {
				continue // RFC 9110, section 5.6.1.2: empty elements do not count
			}
			if client, ok = rule.source.parse(element); !ok {
				return client, malformed("IP()", "%s names no address in %s", rule.source.header, quote(element))
			}
			if !rule.trusts(client) {
				return client, nil
			}
		}
	}
	if !client.IsValid() {
		return client, errNoAddress
	}
	return client, nil
}

func (rule *ipRule) trusts(addr netip.Addr) bool {
	for _, p := range rule.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func (rule *ipRule) text(addr netip.Addr) string {
	bits := rule.bits6
	if addr.Is4() {
		bits = rule.bits4
	}
	if bits == addr.BitLen() {
		return addr.String()
	}
	prefix, _ := addr.Prefix(bits) // bits are within range since set-up
	return prefix.String()
}

// isUnixPeer is asked about what is not an address. Go leaves RemoteAddr as the name of the client's end of the
// socket: mostly none, which Linux writes "@".
func isUnixPeer(remoteAddr string) bool {
	return remoteAddr == "" || remoteAddr[0] == '@' || strings.Contains(remoteAddr, "/")
}

// shortMapped says what is wrong with a prefix that covers more than the mapped addresses it is written with.
const shortMapped = "the prefix is shorter than the /96 of mapped addresses; write it as IPv4"

func mustPrefix(s string) netip.Prefix {
	p, ok := parsePrefix(s)
	switch {
	case !ok || strings.Contains(s, "%"):
		misuse("TrustProxies(%q): write an address such as \"192.0.2.1\" or a prefix such as \"10.0.0.0/8\"", s)
	case p.Addr().Is4In6():
		misuse("TrustProxies(%q): %s", s, shortMapped)
	case p.Bits() == 0:
		misuse("TrustProxies(%q): that trusts everybody, and so lets everybody name any client; "+
			"list the addresses of your own proxies", s)
	}
	return p
}

// parsePrefix reads a prefix, or an address as the prefix that has it alone. Addresses are folded before they are compared, and so
// must prefixes be, or a mapped one would match nothing; one that is too short to be folded stays mapped. Bits behind the prefix
// are kept, a zone is not.
func parsePrefix(s string) (p netip.Prefix, ok bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		addr, err := netip.ParseAddr(s)
		if err != nil || strings.Contains(addr.Zone(), "/") { // a prefix has no zone, but a zone may be any text
			return netip.Prefix{}, false
		}
		p = netip.PrefixFrom(addr.WithZone(""), addr.BitLen())
	}
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p, true
}
