package doctor

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
)

// proxy is a proxy that is asked for a path. The doctor compares answers: each request has to be counted as
// the one before was.
type proxy struct {
	client
	method string
	most   int // how many requests may be sent until one is refused
	found  []finding

	first, last *reply          // of requests as they should be
	known       map[string]bool // the policies that such requests were counted by
}

// proxyFlags are the flags about a proxy.
type proxyFlags struct {
	url, method string
	most        int
}

func (f *proxyFlags) register(fs *flag.FlagSet) {
	fs.StringVar(&f.url, "proxy", "", "ask through a proxy for this `URL` which promises of the gateway hold; uses up "+
		"this client's limit\nthere; without -redis, only the proxy is asked")
	fs.StringVar(&f.method, "proxy-method", http.MethodGet, "the `method` of these requests")
	fs.IntVar(&f.most, "proxy-requests", 200, "how many requests may be sent until one is refused")
}

// proxy returns the proxy that the flags name.
func (f *proxyFlags) proxy() (*proxy, error) {
	u, err := url.Parse(f.url)
	switch {
	case err != nil:
		return nil, cli.Usagef("-proxy: %w", err)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.User != nil:
		return nil, cli.Usagef("-proxy is %q: write it as http://127.0.0.1/path, without a user", u.Redacted())
	case f.most < 1 || f.most > 100_000:
		return nil, cli.Usagef("-proxy-requests is %d: it may be 1 to 100000", f.most)
	case f.method == "" || strings.ContainsFunc(f.method, func(c rune) bool { return c < 'A' || c > 'Z' }):
		return nil, cli.Usagef("-proxy-method is %q: write it in capital letters", f.method)
	}
	return &proxy{client: client{url: u, patience: patience}, method: f.method, most: f.most, known: map[string]bool{}}, nil
}

func (p *proxy) report(state, item, remedy, says string, args ...any) {
	p.found = append(p.found, finding{Item: item, State: state, Says: fmt.Sprintf(says, args...), Remedy: remedy})
}

// examine asks for everything. It ends with an error if the proxy cannot be reached.
func (p *proxy) examine(ctx context.Context) error {
	p.first = p.plain(ctx)
	if p.first.err != nil {
		return p.first.err
	}
	second := p.plain(ctx)
	if p.first.broken() {
		p.reportBroken()
		p.forge(ctx, forgeries)
		p.report(stateUnseen, "rest", "", "the other promises: the first request has to be answered")
		return ctx.Err()
	}
	p.bodies(ctx, false)
	switch {
	case p.first.status == http.StatusTooManyRequests:
		p.report(stateNote, "rule", "", "the limit of this client was used up before")
	case p.first.limits():
		p.report(stateOK, "rule", "", "%s %s is %v", p.method, p.url.RequestURI(), p.first)
		p.report(stateOK, "fields", "", "allowed answers have RateLimit fields")
	case second.status != http.StatusTooManyRequests && !p.refuses(ctx, true):
		if !slices.ContainsFunc(p.found, func(f finding) bool { return f.Item == "refusal" }) {
			p.report(stateProblem, "rule", "name a path that routes of the file guard", "no rule is met by this path: "+
				"%d answers had no RateLimit field, and none was a refusal", p.sent)
		}
		return ctx.Err()
	}
	p.forge(ctx, forgeries)
	p.paths(ctx)
	if p.last.status == http.StatusTooManyRequests || p.refuses(ctx, false) {
		p.refusal(p.last)
		p.forge(ctx, ownForgeries)
		p.bodies(ctx, true)
	}
	return ctx.Err()
}

// reportBroken says that requests as they should be are not answered as they should be.
func (p *proxy) reportBroken() {
	says, remedy := fmt.Sprintf("the first request is answered %d", p.first.status), remedyLog
	if p.first.reason != "" {
		says += fmt.Sprintf(" by a rule, as %q", p.first.reason)
	}
	if p.first.reason == "malformed" {
		remedy = remedyMalformed
	}
	p.report(stateProblem, "rule", remedy, "%s", says)
}

// plain sends a request as it should be.
func (p *proxy) plain(ctx context.Context) *reply {
	got := p.send(ctx, request{method: p.method, target: p.url.RequestURI()})
	if got.err == nil || p.last == nil {
		p.last = got
	}
	for _, name := range got.policies {
		p.known[name] = true
	}
	return got
}

// counted reports whether an answer is to a request that was counted as the one before was.
func (p *proxy) counted(before, after *reply) bool {
	switch {
	case before.err != nil || after.err != nil:
		return false
	case after.status == http.StatusTooManyRequests:
		return !slices.ContainsFunc(after.policies, func(name string) bool { return !p.known[name] })
	case before.status == http.StatusTooManyRequests, !slices.Equal(before.policies, after.policies):
		return false
	case !before.limits():
		return before.status == after.status
	}
	fewer := false
	for name, left := range after.left {
		had, ok := before.left[name]
		if ok && left > had { // of another client
			return false
		}
		fewer = fewer || ok && left < had
	}
	return fewer
}

// alike reports whether two requests were judged by the same rules, and answered with the same status.
func alike(a, b *reply) bool {
	return a.err == nil && b.err == nil && a.status == b.status && slices.Equal(a.policies, b.policies)
}

// attempt is how a changed request fared.
type attempt int

const (
	wasCounted attempt = iota
	wasNot
	// unclear: requests as they should be are not counted one after the other either, because the limit gives
	// back what they take.
	unclear
)

// try sends a changed request, and again between two requests as they should be if it seems not to be
// counted: meanwhile, a limit may have given back what it had.
func (p *proxy) try(ctx context.Context, changed func() request, harmless func(*reply) bool) (attempt, *reply) {
	got := p.send(ctx, changed())
	if p.counted(p.last, got) {
		p.last = got
		return wasCounted, got
	}
	for range 3 {
		if harmless(got) {
			return wasCounted, got
		}
		before := p.plain(ctx)
		got = p.send(ctx, changed())
		if p.counted(before, got) {
			p.last = got
			return wasCounted, got
		}
		after := p.plain(ctx)
		if p.counted(before, after) || alike(before, after) && !alike(before, got) {
			return wasNot, got
		}
	}
	return unclear, got
}

// forgery is a field of a client that must not count.
type forgery struct {
	name   string
	value  func(p *proxy) string
	remedy string
}

// The values are such that the gateway refuses what it reads of them, or takes the client for another. Where it
// refuses all, they are such that it does not.
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
			"Traefik: leave `trustForwardHeader` off"},
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
		p.report(stateUnseen, "forgery", "name a path with a slower limit", "the limit gives back too fast to tell "+
			"whose it is")
	case len(all) == len(forgeries) && !p.first.broken():
		p.report(stateOK, "forgery", "", "%d requests with forged fields were counted as this client's",
			p.sent-before)
	}
}

// paths asks by other ways to write the path.
func (p *proxy) paths(ctx context.Context) {
	var around, failed []string
	var other, failure *reply
	vague, ways := false, waysToWrite(p.url)
	for _, target := range ways {
		how, got := p.try(ctx, func() request { return request{method: p.method, target: target} }, p.leadsNowhere)
		switch {
		case ctx.Err() != nil:
			return
		case how == unclear:
			vague = true
		case how == wasNot && (got.err != nil || got.status >= http.StatusBadRequest):
			failed, failure = append(failed, target), got
		case how == wasNot:
			around, other = append(around, target), got
		}
	}
	if len(around) > 0 {
		p.report(stateProblem, "path", remedyPath, "%s: %v; before: %v", strings.Join(around, " "), other, p.last)
	}
	if len(failed) > 0 {
		p.report(stateProblem, "path", remedyOfStatus(failure.status), "%s: %v, in place of 400",
			strings.Join(failed, " "), failure)
	}
	if vague {
		p.report(stateUnseen, "path", "name a path with a slower limit", "the limit gives back too fast to tell "+
			"whether other ways to write the path count")
	} else if len(around)+len(failed) == 0 {
		p.report(stateOK, "path", "", "%d other ways to write it count, or are no path", len(ways))
	}
}

// leadsNowhere reports whether an answer says that a target is none of the application, or is another one.
func (p *proxy) leadsNowhere(got *reply) bool {
	switch got.status {
	case http.StatusBadRequest, http.StatusNotFound:
		return true
	case http.StatusMovedPermanently, http.StatusPermanentRedirect:
		return got.status != p.first.status
	}
	return false
}

// waysToWrite returns other targets that some programs take for the path of the URL.
func waysToWrite(u *url.URL) []string {
	path, query := u.EscapedPath(), ""
	if u.RawQuery != "" {
		query = "?" + u.RawQuery
	}
	if path == "" {
		path = "/"
	}
	cut := strings.LastIndex(strings.TrimSuffix(path, "/"), "/") + 1 // where the last segment begins
	if path == "/" {
		cut = 1
	}
	ahead, last := path[:cut], path[cut:]
	escaped := func(format string) string {
		var b strings.Builder
		for i := range len(last) {
			letter := last[i]|0x20 >= 'a' && last[i]|0x20 <= 'z'
			if letter && (i == 0 || last[i-1] != '%') && (i < 2 || last[i-2] != '%') {
				fmt.Fprintf(&b, format, last[i])
			} else {
				b.WriteByte(last[i])
			}
		}
		return ahead + b.String()
	}
	all := []string{"/" + path, "/." + path, "/x/.." + path, ahead + "/" + last, ahead + "./" + last,
		ahead + "%2F" + last, ahead + "%2f" + last, ahead + "x%2F..%2F" + last, escaped("%%%02X"), escaped("%%%02x"),
		strings.TrimSuffix(path, "/") + ";a=1", ahead + ";a=1/" + last, "/;/.." + path}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(way string) bool { return way == path })
	for i := range all {
		all[i] += query
	}
	return all
}

// bodies sends bodies, which the proxy has to keep for the application. If requests are refused, it reports
// only problems.
func (p *proxy) bodies(ctx context.Context, refused bool) {
	const size = 1_000_000
	for _, expects := range []bool{false, true} {
		what := "a POST with a body of 1 MB"
		if expects {
			what += " and Expect: 100-continue"
		}
		if refused {
			what += ", refused,"
		}
		got := p.send(ctx, request{method: http.MethodPost, target: p.url.RequestURI(), body: size,
			expects: expects})
		switch {
		case ctx.Err() != nil:
			return
		case got.err != nil:
			p.report(stateProblem, "body", remedyBody, "%s is %v", what, got)
		case got.status >= http.StatusInternalServerError && got.status != http.StatusNotImplemented:
			p.report(stateProblem, "body", remedyBody, "%s is answered %d", what, got.status)
		case refused:
		case got.status >= http.StatusBadRequest:
			p.report(stateNote, "body", "", "%s is answered %d: whether the application reads it is unseen", what,
				got.status)
		default:
			p.report(stateOK, "body", "", "%s is answered %d", what, got.status)
		}
	}
}

// refuses sends requests until one is refused, and reports whether one was. If it is not refused as it should
// be, this reports it. Unseen limits have no fields that say how much is left.
func (p *proxy) refuses(ctx context.Context, unseen bool) bool {
	for n := 0; n < p.most && ctx.Err() == nil; n++ {
		before := p.last
		if left := before.least(); left > int64(p.most-n) {
			p.report(stateUnseen, "refusal", "name a path with a smaller limit, or pass -proxy-requests",
				"%d requests are left, and %d may be sent", left, p.most-n)
			return false
		}
		got := p.plain(ctx)
		switch {
		case got.status == http.StatusTooManyRequests:
			return true
		case got.err != nil:
			p.report(stateProblem, "refusal", remedyLog, "a request is %v", got)
			return false
		case got.status >= http.StatusBadRequest && got.status != p.first.status && (unseen || !got.limits() || before.least() == 0):
			p.report(stateProblem, "refusal", remedyOfStatus(got.status), "a refusal arrives as %d in place of 429", got.status)
			return false
		}
	}
	if !unseen {
		p.report(stateUnseen, "refusal", "name a path with a smaller or slower limit, or pass -proxy-requests",
			"none of %d requests was refused", p.most)
	}
	return false
}

// refusal looks at a refusal.
func (p *proxy) refusal(got *reply) {
	var lacks []string
	for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy", "Cache-Control"} {
		value := got.header.Get(name)
		if value == "" && (got.reason != "banned" || name == "Cache-Control") {
			lacks = append(lacks, name)
		}
	}
	switch cache := got.header.Get("Cache-Control"); {
	case len(lacks) > 0:
		p.report(stateProblem, "refusal", remedyRefusal, "429 arrives without %s", strings.Join(lacks, ", "))
	case !strings.Contains(cache, "no-store"):
		p.report(stateProblem, "refusal", remedyRefusal, "caches may keep a refusal: Cache-Control is %s", cache)
	default:
		p.report(stateOK, "refusal", "", "429 with Retry-After %s, RateLimit and Cache-Control: no-store",
			got.header.Get("Retry-After"))
	}
	if !p.first.limits() {
		p.report(stateNote, "fields", remedyFields, "allowed answers have no RateLimit fields")
	}
}

// The remedies, with lines of docs/guides/gateway.md.
const (
	remedyLog       = "read the log of gatehouse serve: it names what the proxy does not send"
	remedyMalformed = "the key of a rule has no value: ip needs trust_unix_socket behind a Unix socket, and the proxy " +
		"has to send X-Forwarded-For"
	remedyKey = "take keys only from fields that the proxy sets itself; ip reads X-Forwarded-For alone"
	remedyOwn = "nginx: `proxy_set_header Gatehouse-Refusal $gatehouse_refusal;` in @gatehouse-refusal. Others: " +
		"compare with the guide"
	remedyPath = "send the path as the client wrote it: nginx `$request_uri`, Caddy `{uri}`, HAProxy " +
		"`txn.sf:pathq()`; serve without -encoded-slashes and -path-parameters"
	remedyBody = "nginx: `proxy_pass_request_body off;` and `proxy_set_header Content-Length \"\";` in the location " +
		"of auth_request. Caddy: `method GET` and `header_up -Content-Length`"
	remedyRefusal = "the proxy has to pass on the gateway's answer with its fields: nginx `rewrite ^ /refusal break;` " +
		"in @gatehouse-refusal"
	remedyFields = "nginx: `add_header RateLimit $ratelimit always;`. Caddy: `header RateLimit " +
		"{rp.header.Ratelimit}`. Traefik has no way"
)

// remedyOfStatus is that of a refusal that arrives with a wrong status.
func remedyOfStatus(status int) string {
	switch status {
	case http.StatusForbidden:
		return "nginx: `error_page 403 = @gatehouse-refusal;` where auth_request is, and `proxy_set_header " +
			"Gatehouse-Refusal $gatehouse_refusal;` there"
	case http.StatusInternalServerError, http.StatusServiceUnavailable:
		return "name the proxy with -from of gatehouse serve; nginx makes 500 of a status that auth_request does not " +
			"know"
	}
	return remedyRefusal
}
