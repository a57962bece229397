package keyfuncs

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// IP finds the client's address, such as "203.0.113.7". For IPv6 it finds the client's network, such as
// "2001:db8:1:2::/64", because one subscriber has at least 2^64 addresses to choose from (see
// [IPv6Prefix]).
//
// Without options, that is the peer: the address that opened the connection ([http.Request.RemoteAddr]),
// which no header can change. Behind a reverse proxy the peer is the proxy, so all clients would share one
// bucket: name the proxies with [TrustProxies].
//
// # Behind proxies
//
// When the peer is a trusted proxy, IP reads X-Forwarded-For (or Forwarded, see [ReadForwarded]) from its
// right end, where each proxy appends the address of its caller. IP steps over trusted addresses, and the
// first other address is the client. Everything further left was written by the client and is never looked
// at. If there is no other address, because the proxy sends no header or the header names trusted addresses
// only, the error is [ErrMalformed]: see [ProxyMayBeClient].
//
// For proxies that write one address into a header of their own, as many CDNs do, see [ReadHeader].
//
// # One client, one text
//
// IP folds IPv4-mapped IPv6 addresses to IPv4 and strips zones before it compares anything, so that a
// second spelling of an address is not another client. It drops ports.
//
// Other IPv6 addresses that embed an IPv4 address stay IPv6. One IPv4 address has 65536 networks of 6to4
// (2002::/16, RFC 3056): IPv6Prefix(48) makes them one client. All clients of one Teredo server (2001::/32,
// RFC 4380) are in one /64. The clients of a translator, 64:ff9b::/96 (RFC 6052), would also all be in one
// /64. There each IPv4 address counts by itself, is grouped as IPv4 is, and is written as in
// "64:ff9b::cb00:7107". A translator makes nobody a trusted proxy.
//
// # Errors and warnings
//
// When the walk comes to an unreadable address, "unknown" or an obfuscated name (RFC 7239, section 6), the
// error is [ErrMalformed]: to step over it would be to trust whoever wrote the rest. A peer on a Unix
// socket has no address and gives [ErrMissing], unless [TrustUnixSocket] is given.
//
// Do not let middleware in front rewrite RemoteAddr from a header that clients can send.
//
// When requests show that the set-up is probably wrong, IP warns once in the life of the process, by the
// request's Logger. docs/guides/errors.md explains the codes.
func IP(opts ...IPOption) Func {
	rule := ipRule{source: xForwardedFor, bits4: 32, bits6: 64}
	for _, opt := range opts {
		if opt == nil {
			misuse("IP got a nil option; leave it out")
		}
		opt(&rule)
	}
	if rule.chosen != "" && !rule.trusting() {
		misuse("IP(%s) would never read the header; name the proxies that set it with TrustProxies", rule.chosen)
	}
	if rule.own && (!rule.trusting() || rule.source.single) {
		misuse("IP(ProxyMayBeClient()) needs TrustProxies or TrustUnixSocket, and reads X-Forwarded-For or " +
			"Forwarded: leave it out")
	}
	rule.nobody = malformed("IP()", "%s names no client, only trusted proxies (see ProxyMayBeClient)",
		rule.source.header)
	rule.warnOfEverybody()
	detector := newProxyDetector(&rule)
	address := func(r *Request) (netip.Addr, error) {
		addr, err := rule.client(r.Request)
		if detector.due() {
			detector.inspect(r, addr, err)
		}
		return addr, err
	}
	finds := func(text string) bool {
		p, ok := parsePrefix(text)
		return ok && rule.text(p.Addr()) == text
	}
	return described(about{name: "IP()", address: address, finds: finds}, func(r *Request) (string, error) {
		addr, err := address(r)
		if err != nil {
			return "", err
		}
		return rule.text(addr), nil
	})
}

// An IPOption changes what [IP] trusts, reads or returns.
type IPOption func(*ipRule)

// TrustProxies names the reverse proxies in front of this server, as prefixes ("10.0.0.0/8",
// "2001:db8::/32") or single addresses ("192.0.2.1"). [IP] believes only their entries in the forwarding
// header. Name your own proxies and no others: everybody within a prefix can pass for any client. Given
// twice, it adds.
//
// The proxies must append to the header or overwrite it, as nginx does with $proxy_add_x_forwarded_for.
//
// It panics without prefixes, for a prefix that cannot be read, and for a prefix that covers every address.
// It warns of prefixes that cover a large part of the Internet.
func TrustProxies(prefixes ...string) IPOption {
	if len(prefixes) == 0 {
		misuse("TrustProxies needs the addresses of your proxies, such as \"10.0.0.0/8\"; without proxies leave " +
			"it out")
	}
	trusted := make([]netip.Prefix, len(prefixes))
	for i, s := range prefixes {
		trusted[i] = mustPrefix(s)
	}
	return func(rule *ipRule) { rule.trusted = append(rule.trusted, trusted...) }
}

// TrustUnixSocket trusts peers that connect over a Unix socket, whose RemoteAddr is "", "@" or a path, as
// if [TrustProxies] named them. Such a peer has no address of its own: with [ProxyMayBeClient] and without a
// forwarding header, [IP] returns [ErrMissing].
func TrustUnixSocket() IPOption {
	return func(rule *ipRule) { rule.unix = true }
}

// ProxyMayBeClient lets a trusted proxy speak for itself: where the forwarding header is missing, the peer is
// the client, and where it names trusted addresses only, the leftmost of them is. Use it where clients live
// inside the trusted prefixes, or where a proxy sends requests of its own, such as health checks, to routes
// with the rule.
//
// Without the option [IP] returns [ErrMalformed] for such requests, which is answered with 400. Clients can
// make some proxies drop the header: Connection names fields to drop (RFC 9110, section 7.6.1). Then every
// such client would be the proxy, share its bucket, and pass an allow list that contains it. With the option,
// do not put the proxies on an allow list.
//
// IP panics when no proxy is trusted, and beside [ReadHeader], which always needs its header.
func ProxyMayBeClient() IPOption {
	return func(rule *ipRule) { rule.own = true }
}

// ReadForwarded reads the Forwarded header (RFC 7239) instead of X-Forwarded-For. [IP] reads only one of
// the two: a proxy that writes one of them passes the other through as the client sent it.
func ReadForwarded() IPOption {
	return func(rule *ipRule) { rule.read("ReadForwarded()", forwarded) }
}

// ReadHeader reads a header that carries one address and that the proxy in front writes, instead of
// X-Forwarded-For. It is for a CDN or a proxy that does not append to a list. Where the proxy does both,
// prefer the list, because IP can walk it over a chain of proxies. ReadHeader panics for a name that is no
// token and for the headers that are lists. IP panics when it is combined with [ReadForwarded] or another
// header: IP reads one header only.
//
// # Who writes the header
//
// The peer must be trusted, as for the list. It must overwrite the header, or be reachable only through a
// proxy that does. Otherwise the client writes the header. According to the vendors' documentation (looked
// up in 2026; check that yours still does), these write it:
//
//   - CF-Connecting-IP: Cloudflare sets it to the address that connects to Cloudflare. It sets
//     True-Client-IP only where that is switched on; elsewhere the client's own passes.
//     (developers.cloudflare.com/fundamentals/reference/http-headers)
//   - True-Client-IP: Akamai, with enableTrueClientIp on and trueClientIpClientSetting off, which are the
//     defaults. (techdocs.akamai.com/terraform/docs/origin)
//   - Fly-Client-IP: Fly.io's proxy; behind a CDN it names the CDN.
//     (fly.io/docs/networking/request-headers)
//   - X-Azure-SocketIP: Azure Front Door. Do not use X-Azure-ClientIP, which follows what the client
//     says. All customers of Front Door share its addresses: check X-Azure-FDID as well.
//     (learn.microsoft.com/azure/frontdoor/front-door-http-headers-protocol)
//   - Fastly-Client-IP: Fastly, but only where the client has not sent it, unless your VCL sets it at the
//     edge. (fastly.com/documentation/reference/http/http-headers/Fastly-Client-IP)
//   - X-Real-IP: no vendor by default; nginx with "proxy_set_header X-Real-IP $remote_addr".
//
// # Errors
//
// A trusted peer must send exactly one line with exactly one address, without a port or brackets; blanks
// around it do not matter. Anything else is [ErrMalformed]. So is a trusted peer that does not send the
// header: a proxy that writes one header always writes it, so the request did not come through it, or a hop
// on the way dropped the header. Clients can make some hops drop it (Connection names headers to drop, RFC
// 9110, section 7.6.1). To count such requests as the proxy's own would put all of them into one bucket,
// and past a list that contains the proxy. Health checks from the proxy itself should use a route without
// the rule.
func ReadHeader(name string) IPOption {
	call := fmt.Sprintf("ReadHeader(%q)", name)
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !isToken(name):
		misuse("%s needs the name of a header field, such as ReadHeader(\"CF-Connecting-IP\")", call)
	case canonical == "Host":
		misuse("%s never finds anything, because net/http removes that field", call)
	case canonical == xForwardedFor.header:
		misuse("%s: that header is a list; leave the option out, and it is walked from the right", call)
	case canonical == forwarded.header:
		misuse("%s: that header is a list; use ReadForwarded()", call)
	}
	return func(rule *ipRule) { rule.read(call, forwarding{header: canonical, single: true}) }
}

// IPv6Prefix sets how many bits of an IPv6 address make one client, from 1 to 128. The default is 64, the
// network of one link (RFC 4291, section 2.5.1). Many providers give a household a /56 and a company a /48,
// which contain 256 and 65536 such networks; 56 or 48 bits count them as one client. With 128 each address
// counts by itself and is written without "/128". Other values panic.
func IPv6Prefix(bits int) IPOption {
	if bits < 1 || bits > 128 {
		misuse("IPv6Prefix(%d): give a number of bits from 1 to 128, such as 64", bits)
	}
	return func(rule *ipRule) { rule.bits6 = bits }
}

// IPv4Prefix sets how many bits of an IPv4 address make one client, from 1 to 32. The default is 32: each
// address counts by itself. With fewer bits the text is a prefix: "203.0.113.0/24". Other values panic.
func IPv4Prefix(bits int) IPOption {
	if bits < 1 || bits > 32 {
		misuse("IPv4Prefix(%d): give a number of bits from 1 to 32, such as 24", bits)
	}
	return func(rule *ipRule) { rule.bits4 = bits }
}

type ipRule struct {
	trusted      []netip.Prefix
	unix         bool
	own          bool  // a trusted proxy may be the client
	nobody       error // the error where it may not, and nobody else is named
	source       forwarding
	chosen       string // the option that chose the source, "" by default
	bits4, bits6 int
}

// read chooses the header to read.
func (rule *ipRule) read(call string, source forwarding) {
	if rule.chosen != "" && rule.chosen != call {
		misuse("IP got %s and %s, and reads one header only: leave one out", rule.chosen, call)
	}
	rule.chosen, rule.source = call, source
}

// trusting reports whether the rule trusts any peer.
func (rule *ipRule) trusting() bool { return len(rule.trusted) > 0 || rule.unix }

var errNoAddress = &failure{
	call: "IP()",
	why: "nothing found: the peer is on a Unix socket and no trusted header names the client (see " +
		"TrustUnixSocket)",
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
	case rule.source.single:
		return rule.source.only(r.Header)
	}
	// All lines together are one list (RFC 9110, section 5.3), so the last line is its right end. The walk
	// splits the list as it goes: to split all of it would let the client choose how much work that is.
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
	switch {
	case !rule.own:
		return client, rule.nobody
	case !client.IsValid():
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

// translated holds the addresses under which a translator shows IPv4 clients to an IPv6 server (RFC 6052,
// section 2.1).
var translated = netip.MustParsePrefix("64:ff9b::/96")

func (rule *ipRule) text(addr netip.Addr) string {
	bits := rule.bits6
	switch {
	case addr.Is4():
		bits = rule.bits4
	case translated.Contains(addr):
		bits = 96 + rule.bits4
	}
	if bits == addr.BitLen() {
		return addr.String()
	}
	prefix, _ := addr.Prefix(bits) // set-up has checked the range of bits
	return prefix.String()
}

// isUnixPeer is asked about what is not an address. Go leaves RemoteAddr as the name of the client's end of
// the socket: usually none, which Linux writes "@".
func isUnixPeer(remoteAddr string) bool {
	return remoteAddr == "" || remoteAddr[0] == '@' || strings.Contains(remoteAddr, "/")
}

// shortMapped is the error for a prefix that covers more than the mapped addresses that it is written with.
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

// parsePrefix reads a prefix, or a single address as a full-length prefix. Addresses are folded before they
// are compared, so prefixes must be folded too: a mapped prefix would match nothing. A prefix that is too
// short to be folded stays mapped. Bits behind the prefix are kept, a zone is not.
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
