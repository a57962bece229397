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

// forwardingHeaders are what proxies say in who called them.
var forwardingHeaders = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip",
	"Fly-Client-Ip", "Fastly-Client-Ip", "X-Azure-Clientip", "X-Azure-Socketip",
}

const (
	lookAlways = 64  // the first requests are all looked at,
	lookRarely = 64  // and then one of so many, by chance
	outerRun   = 256 // so many in a row from outside with a forwarding header, as of one proxy, make a warning
	innerRun   = 64  // so many in a row of one inner client with different headers, as of many clients, make a warning
)

// lookout looks at requests of one [IP] for signs that it is set up wrongly. Whatever it sees may be forged: that must not cost more
// than a line in the log, nor memory, and most requests are not looked at.
type lookout struct {
	rule   *ipRule
	kind   *warn.Warning // what it looks for
	looked atomic.Int32
	run    atomic.Int32
	client atomic.Uint64 // of the last look: hashes of who was found
	said   atomic.Uint64 // and of what the headers said
}

func newLookout(rule *ipRule) *lookout {
	if rule.trusting() {
		return &lookout{rule: rule, kind: warn.OneBucket}
	}
	return &lookout{rule: rule, kind: warn.Unread}
}

// due reports whether the next request is looked at.
func (l *lookout) due() bool {
	if l.kind.Told("") {
		return false
	}
	return rand.Uint32()%lookRarely == 0 || l.looked.Load() < lookAlways && l.looked.Add(1) <= lookAlways
}

// at looks at a request and at who was found: nobody, with an error, on a Unix socket.
func (l *lookout) at(r *http.Request, client netip.Addr, err error) {
	if l.rule.trusting() {
		if err == nil {
			l.atInner(r, client)
		}
		return
	}
	header := forwardingHeader(r.Header)
	switch {
	case errors.Is(err, ErrMalformed): // a peer that is no address
	case err != nil || isInside(client):
		// Who calls from inside and forwards is a proxy of ours. Clients inside can forge it, once.
		if header != "" {
			peer := "a Unix socket"
			if err == nil {
				peer = client.String()
			}
			warn.Unread.Tell(r.Context(), "", "header", header, "peer", peer)
		}
	case header == "":
		l.run.Store(0)
	case l.run.Add(1) >= outerRun:
		// All that come from outside are forwarded: so does a CDN. A flood of forged headers looks the same.
		warn.Unread.Tell(r.Context(), "", "header", header, "peer", client.String())
	}
}

// atInner looks at a client that trusted proxies speak for. Where it is a proxy or somebody inside, the same one again and again, while
// the headers name others all the time, a proxy is not named or writes another header than the one that is read. One client from
// outside shows that all is well.
func (l *lookout) atInner(r *http.Request, client netip.Addr) {
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
		warn.OneBucket.Tell(r.Context(), "", "reads", l.rule.source.header, "sent", header, "client", client.String())
	}
}

// forwardingHeader returns the name of a forwarding header that the request has, "" without one. What the client sends is not
// looked through: that could be long.
func forwardingHeader(h http.Header) string {
	for _, name := range forwardingHeaders {
		if len(h[name]) > 0 {
			return name
		}
	}
	return ""
}

var lookSeed = maphash.MakeSeed()

// hashOfForwarding tells apart what forwarding headers say, by their beginnings.
func hashOfForwarding(h http.Header) uint64 {
	var hash maphash.Hash
	hash.SetSeed(lookSeed)
	for _, name := range forwardingHeaders {
		for _, line := range h[name][:min(len(h[name]), 4)] {
			_, _ = hash.WriteString(line[:min(len(line), 64)]) // it does not fail
		}
		_ = hash.WriteByte(0)
	}
	return hash.Sum64()
}

// sharedSpace is for addresses between a carrier and its customers, and is used inside of clouds (RFC 6598).
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

// isInside reports whether an address is not one of the Internet's.
func isInside(addr netip.Addr) bool {
	return addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || sharedSpace.Contains(addr)
}

// Shorter prefixes than these are no network of anybody's: 10.0.0.0/8 is the widest of the private ones, fc00::/7 of IPv6's.
const (
	shortest4 = 8
	shortest6 = 7
)

// warnOfEverybody warns of trusted prefixes that most clients are in: one that is too short, or many that are too much together, more
// than the 32nd part of all addresses.
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
		warn.Everybody.Tell(context.Background(), prefixes, "prefixes", prefixes)
	}
}

// routeRun is how many requests without a route, and none with one, make a warning.
const routeRun = 100

// routeLookout looks for a [Route] that is asked before the router is.
type routeLookout struct {
	found  atomic.Bool // a route has been known once, so a request without one is a path that does not exist
	misses atomic.Int32
}

// at is told the route of a request. Behind net/http's routers it is always known, so one request without shows the mistake. gin and
// echo run middlewares for paths that do not exist as well, so there it takes many, and none with a route.
func (l *routeLookout) at(r *Request, route string) {
	switch {
	case route != "":
		if !l.found.Load() {
			l.found.Store(true)
		}
	case r.Facts == nil, !l.found.Load() && l.misses.Add(1) >= routeRun:
		warn.Unrouted.Tell(r.Context(), "")
	}
}
