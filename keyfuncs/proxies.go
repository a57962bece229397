package keyfuncs

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// forwardingHeaders are the headers in which proxies name their caller.
var forwardingHeaders = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip",
	"Fly-Client-Ip", "Fastly-Client-Ip", "X-Azure-Clientip", "X-Azure-Socketip",
}

const (
	lookAlways = 64  // the detector looks at this many first requests,
	lookRarely = 64  // and then at one in this many, at random
	outerRun   = 256 // forwarded requests in a row from outside that make a warning: a proxy sends them
	innerRun   = 64  // requests in a row of one inner client with changing headers that make a warning
	silentRun  = 16  // requests in a row in which a trusted proxy names nobody that make a warning
)

// proxyDetector looks for signs in the requests of one [IP] that it is set up wrongly. Clients can forge
// whatever it sees, so it writes at most one line to the log, uses a fixed amount of memory, and skips most
// requests.
type proxyDetector struct {
	rule   *ipRule
	kind   *warn.Warning // the detector's subject
	looked atomic.Int32
	run    atomic.Int32
	silent atomic.Int32
	client atomic.Uint64 // hash of the client found at the last look
	said   atomic.Uint64 // hash of the headers at that time
}

func newProxyDetector(rule *ipRule) *proxyDetector {
	if rule.trusting() {
		return &proxyDetector{rule: rule, kind: warn.OneBucket}
	}
	return &proxyDetector{rule: rule, kind: warn.Unread}
}

// due reports whether the detector looks at the next request.
func (l *proxyDetector) due() bool {
	if l.kind.Told("") && (l.kind != warn.OneBucket || warn.Nameless.Told("")) {
		return false
	}
	return rand.Uint32()%lookRarely == 0 || l.looked.Load() < lookAlways && l.looked.Add(1) <= lookAlways
}

// inspect looks at a request and at the client found: none, with an error, on a Unix socket. Where the header
// names trusted proxies only, it is the last of these, with an error.
func (l *proxyDetector) inspect(r *Request, client netip.Addr, err error) {
	if l.rule.trusting() {
		if err != nil && len(r.Header[l.rule.source.header]) == 0 {
			l.inspectSilent(r)
			return
		}
		l.silent.Store(0)
		if err == nil || errors.Is(err, l.rule.nobody) && client.IsValid() {
			l.inspectTrusted(r, client)
		}
		return
	}
	header := forwardingHeader(r.Header)
	switch {
	case errors.Is(err, ErrMalformed): // the peer is not an address
	case err != nil || isInside(client):
		// A caller from inside that forwards is a proxy of ours. Clients inside can forge that, once.
		if header != "" {
			peer := "a Unix socket"
			if err == nil {
				peer = client.String()
			}
			warn.Unread.Tell(r.Context(), r.logger(), "", "header", header, "peer", peer)
		}
	case header == "":
		l.run.Store(0)
	case l.run.Add(1) >= outerRun:
		// All requests from outside are forwarded, as behind a CDN. A flood of forged headers looks the
		// same.
		warn.Unread.Tell(r.Context(), r.logger(), "", "header", header, "peer", client.String())
	}
}

// inspectSilent looks at a request of a trusted proxy without the header that IP reads. Health checks of the
// proxy, and clients that make it drop the header, come among others that have it.
func (l *proxyDetector) inspectSilent(r *Request) {
	if l.silent.Add(1) < silentRun {
		return
	}
	peer := "a Unix socket"
	if addr, ok := parseNode(r.RemoteAddr); ok {
		peer = addr.String()
	}
	warn.Nameless.Tell(r.Context(), r.logger(), "", "reads", l.rule.source.header, "sent",
		forwardingHeader(r.Header), "peer", peer)
}

// inspectTrusted looks at a client that trusted proxies speak for. Suppose that the client is a proxy or
// somebody inside, and stays the same while the headers keep naming others. Then the set-up misses a proxy,
// or a proxy writes another header too. One client from outside shows that all is well.
func (l *proxyDetector) inspectTrusted(r *Request, client netip.Addr) {
	if !isInside(client) && !l.rule.trusts(client) {
		l.run.Store(0)
		return
	}
	header := forwardingHeader(r.Header)
	if header == "" {
		return // a health check
	}
	said := hashOfForwarding(r.Header)
	who := maphash.Comparable(lookSeed, client)
	switch {
	case l.client.Swap(who) != who:
		l.said.Store(said)
		l.run.Store(0)
	case l.said.Swap(said) != said && l.run.Add(1) >= innerRun:
		warn.OneBucket.Tell(r.Context(), r.logger(), "", "reads", l.rule.source.header, "sent", header, "client",
			client.String())
	}
}

// forwardingHeader returns the name of a forwarding header that the request has, "" without one. It does
// not loop over the request's headers, because the client decides how many there are.
func forwardingHeader(h http.Header) string {
	for _, name := range forwardingHeaders {
		if len(h[name]) > 0 {
			return name
		}
	}
	return ""
}

var lookSeed = maphash.MakeSeed()

// hashOfForwarding tells apart what forwarding headers say, by the first bytes of their first lines.
func hashOfForwarding(h http.Header) uint64 {
	var hash maphash.Hash
	hash.SetSeed(lookSeed)
	for _, name := range forwardingHeaders {
		for _, line := range h[name][:min(len(h[name]), 4)] {
			_, _ = hash.WriteString(line[:min(len(line), 64)]) // never fails
		}
		_ = hash.WriteByte(0)
	}
	return hash.Sum64()
}

// sharedSpace is for addresses between a carrier and its customers. Clouds use it internally too (RFC
// 6598).
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

// isInside reports whether an address is private, loopback, link-local or shared, and so not one of the
// Internet's.
func isInside(addr netip.Addr) bool {
	return addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || sharedSpace.Contains(addr)
}

// Shorter prefixes are no private network: the widest are 10.0.0.0/8 in IPv4 and fc00::/7 in IPv6.
const (
	shortest4 = 8
	shortest6 = 7
)

// warnOfEverybody warns of trusted prefixes that cover most clients: a prefix that is too short, or several
// that together cover more than 1/32 of all addresses.
func (rule *ipRule) warnOfEverybody() {
	share := map[bool]float64{}
	counted := map[netip.Prefix]bool{}
	var suspects []string
	for _, p := range rule.trusted {
		if p = p.Masked(); counted[p] {
			continue
		}
		counted[p] = true
		is4 := p.Addr().Is4()
		part := 1 / float64(uint64(1)<<min(p.Bits(), 63))
		if share[is4] += part; share[is4] > 1.0/32 || is4 && p.Bits() < shortest4 || !is4 && p.Bits() < shortest6 {
			suspects = append(suspects, p.String())
		}
	}
	if len(suspects) > 0 {
		prefixes := strings.Join(suspects[:min(len(suspects), 8)], " ")
		warn.Everybody.Tell(context.Background(), nil, prefixes, "prefixes", prefixes)
	}
}

// routeRun is how many requests without a route, and none with one, make a warning.
const routeRun = 100

// routeDetector looks for a [Route] that runs before the router does.
type routeDetector struct {
	found  atomic.Bool // a route was known once, so a request without one has a path that does not exist
	misses atomic.Int32
}

// unrouted is what Facts may have besides: see [Facts].
type unrouted interface{ Unrouted() bool }

// inspect takes the route of a request. net/http's routers always know it, so one request without a route
// shows the mistake. gin and echo also run middleware for paths that do not exist. Where the adapter does not
// know which of the two it is, it takes many requests without a route, and none with one.
func (l *routeDetector) inspect(r *Request, route string) {
	if route != "" {
		if !l.found.Load() {
			l.found.Store(true)
		}
		return
	}
	if warn.Unrouted.Told("") {
		return
	}
	early := r.Facts == nil || !l.found.Load() && l.misses.Add(1) >= routeRun
	if facts, ok := r.Facts.(unrouted); ok && !early && !l.found.Load() {
		early = facts.Unrouted()
	}
	if early {
		warn.Unrouted.Tell(r.Context(), r.logger(), "")
	}
}
