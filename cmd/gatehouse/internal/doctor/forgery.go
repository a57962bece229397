package doctor

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// forgery is a field of a client that must not count.
type forgery struct {
	name   string
	value  func(p *proxy) string
	remedy string
}

// The values are such that the gateway refuses what it reads of them, or takes the client for another. Where
// it refuses all, they are such that it does not.
var (
	forgeries = append([]forgery{
		{"X-Original-URI", otherTarget, "nginx: `proxy_set_header X-Original-URI $request_uri;` in the location " +
			"of auth_request. HAProxy: `fields[\"x-original-uri\"] = {txn.sf:pathq()}`"},
		{"X-Original-Method", otherMethod, "nginx: `proxy_set_header X-Original-Method $request_method;` in the " +
			"location of auth_request. HAProxy: `fields[\"x-original-method\"] = {txn.sf:method()}`"},
		{"X-Forwarded-Uri", otherTarget, "Caddy: `header_up X-Forwarded-Uri {uri}`. Traefik: leave " +
			"`trustForwardHeader` off"},
		{"X-Forwarded-Method", otherMethod, "Caddy: `header_up X-Forwarded-Method {method}`. Traefik: leave " +
			"`trustForwardHeader` off"},
		{"X-Forwarded-For", somebody, "nginx: `proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;` in the " +
			"location of auth_request. HAProxy: `table.insert(fields[\"x-forwarded-for\"], txn.sf:src())`. " +
			"Envoy: `use_remote_address: true`. Traefik: leave `trustForwardHeader` off"},
		{"Forwarded", func(p *proxy) string { return "for=" + somebody(p) }, remedyKey},
		{"X-Real-IP", somebody, remedyKey},
		{"Connection", always("X-Original-URI, X-Original-Method, X-Forwarded-Uri, X-Forwarded-Method, " +
			"X-Forwarded-For"), "the proxy has to set the fields of the guide itself, whatever Connection names"},
	}, ownForgeries...)
	ownForgeries = []forgery{
		{"Gatehouse-Status", always("204"), remedyOwn},
		{"Gatehouse-Refusal", always("eyJzIjoyMDAsImgiOnt9LCJiIjoiIn0"), remedyOwn}, // of status 200
	}
)

func always(value string) func(*proxy) string { return func(*proxy) string { return value } }

func otherTarget(p *proxy) string {
	if p.first.broken() {
		return p.url.RequestURI()
	}
	return "/%00"
}

func otherMethod(p *proxy) string {
	if p.first.broken() {
		return p.method
	}
	return "("
}

// somebody returns an address that nobody has (RFC 2544).
func somebody(*proxy) string {
	return fmt.Sprintf("198.%d.%d.%d", 18+rand.IntN(2), rand.IntN(256), rand.IntN(256))
}

// forge sends each forgery, once and twice.
func (p *proxy) forge(ctx context.Context, all []forgery) {
	before, sick, vague := p.sent, false, false
	for _, f := range all {
		for _, times := range []string{"", " twice"} {
			forged := func() request {
				fields := []string{f.name, f.value(p)}
				if times != "" {
					fields = append(fields, fields...)
				}
				return request{method: p.method, target: p.url.RequestURI(), fields: fields}
			}
			how, got := p.try(ctx, forged, func(*reply) bool { return false })
			if ctx.Err() != nil {
				return
			}
			vague = vague || how == unclear
			if how == wasNot {
				sick = true
				p.report(stateProblem, "forgery", f.remedy, "a client's own %s%s counts: %v; before: %v", f.name, times,
					got, p.last)
				break
			}
		}
	}
	switch {
	case sick:
	case vague:
		p.report(stateUnseen, "forgery", remedySlower, "the limit gives back too fast to tell whose it is")
	case len(all) == len(forgeries) && !p.first.broken():
		p.report(stateOK, "forgery", "", "%d requests with forged fields were counted as this client's",
			p.sent-before)
	}
}
