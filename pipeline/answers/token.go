package answers

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
)

// TokenHeader is the header field of requests and answers in which apps keep the token of a guard
// (core.Traits.KeepsToken), such as the ticket of a waiting room: "Gatehouse-Token: shop=…". A client that
// sends the field, even without a value, gets it in place of the cookie. Several guards have several lines,
// or one with commas in between.
//
// All other clients keep the token in a cookie named __Host-gatehouse- and the guard's name. No subdomain
// can set it, and it ends with the browser. Browsers take such a cookie by HTTPS only, and some of them do
// so on loopback hosts too. If a request came without TLS to a loopback host, such as
// http://localhost:8080, and has no field of a proxy, the cookie is named gatehouse- and the guard's name,
// and is not Secure.
const TokenHeader = "Gatehouse-Token"

// tokenMost is the maximum length of a token that a client sends, as it is in the field or the cookie. Others
// count as none.
const tokenMost = 4096

const fieldSetCookie = "Set-Cookie"

// appendToken adds the token of a decision, if there is one. Its guard keeps tokens.
func (f *Fields) appendToken(r *http.Request, by *Source, d *core.Decision) {
	if d.Token == "" || d.Attempt.Shadow {
		return
	}
	text := url.QueryEscape(d.Token)
	if _, asked := r.Header[TokenHeader]; asked {
		f.more().tokens = &token{TokenHeader, tokenName(by.Name) + "=" + text, f.tokens()}
		return
	}
	name, attributes := cookieName(r, by.Name), "; Path=/; HttpOnly; SameSite=Lax"
	switch {
	case !strings.HasPrefix(name, hostPrefix):
	case by.Traits.TokenInFrames:
		attributes = "; Path=/; HttpOnly; SameSite=None; Secure; Partitioned"
	default:
		attributes += "; Secure"
	}
	f.more().tokens = &token{fieldSetCookie, name + "=" + text + attributes, f.tokens()}
}

// TokenOf returns the token of a guard that the client has sent, such as the pass of a waiting room. It is
// for handlers without a rule of the guard in front. Only the guard knows whether it is a forgery. It is
// empty if there is none, or if the value cannot be a token.
func TokenOf(r *http.Request, guard string) string {
	sent, found := "", false
	take := func(text string) {
		if found && text != sent {
			text = "" // none of several that differ
		}
		sent, found = text, true
	}
	if lines, asked := r.Header[TokenHeader]; asked {
		for _, line := range lines {
			for member := range strings.SplitSeq(line, ",") {
				name, text, ok := strings.Cut(strings.TrimSpace(member), "=")
				if ok && name == tokenName(guard) {
					take(text)
				}
			}
		}
	} else {
		for _, cookie := range r.CookiesNamed(cookieName(r, guard)) {
			take(cookie.Value)
		}
	}
	text, err := url.QueryUnescape(sent)
	if err != nil || len(sent) > tokenMost {
		return ""
	}
	return text
}

// tokenName is the name of a guard in the field and in the cookie's name. Those of an engine's guards are as
// they are.
func tokenName(guard string) string { return url.QueryEscape(guard) }

const hostPrefix = "__Host-"

func cookieName(r *http.Request, guard string) string {
	if plain(r) {
		return "gatehouse-" + tokenName(guard)
	}
	return hostPrefix + "gatehouse-" + tokenName(guard)
}

// ofProxies are fields that proxies set. Behind one that ends TLS, a request to a loopback host has come by
// HTTPS.
var ofProxies = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-Ip"}

// plain reports whether the client is a browser on this machine that speaks HTTP, as in development: not
// all of them take Secure cookies then.
func plain(r *http.Request) bool {
	if r.TLS != nil || slices.ContainsFunc(ofProxies, func(name string) bool { return r.Header[name] != nil }) {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
