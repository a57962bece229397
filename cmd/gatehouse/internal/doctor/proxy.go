package doctor

import (
	"context"
	"flag"
	"fmt"
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
	return &proxy{client: client{url: u, patience: patience}, method: f.method, most: f.most,
		known: map[string]bool{}}, nil
}

func (p *proxy) report(state, item, remedy, says string, args ...any) {
	p.found = append(p.found, finding{Item: item, State: state, Says: fmt.Sprintf(says, args...),
		Remedy: remedy})
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
	case second.again(p.first) && p.plain(ctx).again(second):
		p.report(stateProblem, "rule", remedyCache, "three requests are answered alike: %v", second)
		return ctx.Err()
	case p.first.limits():
		p.report(stateOK, "rule", "", "%s %s is %v", p.method, p.url.RequestURI(), p.first)
		p.report(stateOK, "fields", "", "allowed answers have RateLimit fields")
		if took := second.took(p.first); took > 1 {
			third := p.plain(ctx)
			if p.plain(ctx).took(third) > 1 {
				p.report(stateNote, "rule", remedyTwice, "each request takes %d units", took)
			}
		}
	case second.status != http.StatusTooManyRequests && !p.refuses(ctx, true):
		if !slices.ContainsFunc(p.found, func(f finding) bool { return f.Item == "refusal" }) {
			p.report(stateProblem, "rule", remedyUnguarded, "no rule is met by this path: "+
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
	if p.first.reason == "malformed" || p.first.reason == "no_key" {
		remedy = remedyNoKey
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
func (p *proxy) try(
	ctx context.Context, changed func() request, harmless func(*reply) bool,
) (attempt, *reply) {
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
		case got.status >= http.StatusBadRequest && got.status != p.first.status &&
			(unseen || !got.limits() || before.least() == 0):
			p.report(stateProblem, "refusal", remedyOfStatus(got.status), "a refusal arrives as %d in place of 429",
				got.status)
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
