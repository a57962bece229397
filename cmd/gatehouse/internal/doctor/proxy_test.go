package doctor

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/proxies"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// behindProxy is the file of the gateway. Each route has a limit of its own.
const behindProxy = `
guards:
  site: {sliding_window: {limits: "1000/h"}}
  search: {sliding_window: {limits: "60/h"}}
  logins: {sliding_window: {limits: "5/h"}}
  rapid: {token_bucket: {limits: "100000/s"}}
  strikes: {bans: {refusals: 3, first: 24h, longest: 96h}}
keys:
  client: ip
rules:
  site: [{guard: site, who: client}]
  search: [{guard: search, who: client}]
  login: [{guard: logins, who: client, what: route, bans: strikes}]
  real: [{guard: search, who: {header: X-Real-IP}, no_key: skip}, {guard: site, who: client}]
  rapid: [{guard: rapid, who: client}]
routes:
  /{$}: site
  /search: [site, search]
  /login: login
  /real: real
  /rapid: rapid
...
`

func gatewayFor(t *testing.T, from gateway.From, file string) http.Handler {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	live, err := config.Watch(t.Context(), guardtest.NewEngine(redistest.Single(t)), path, config.ForGateway())
	if err != nil {
		t.Fatal(err)
	}
	return gateway.Handler(live, gateway.Options{From: from})
}

// through asks through a proxy.
func through(t *testing.T, url string, args ...string) clitest.Answer {
	t.Helper()
	a := clitest.Run(t, []string{"REDIS_URL=redis://127.0.0.1:1"}, "", append([]string{"doctor", "-proxy", url},
		args...)...)
	t.Logf("%s%s", a.Out, a.Errs)
	return a
}

// TestDoctorThroughProxiesOfTheGuide: with the configurations of the guide, nothing is a problem.
func TestDoctorThroughProxiesOfTheGuide(t *testing.T) {
	redistest.LeftToCI(t)
	proxies.Each(t, func(t *testing.T, program proxies.Program) {
		p := proxies.Start(t, program, gatewayFor(t, program.From, behindProxy))
		if program.From == gateway.Traefik { // whose allowed answers have no fields
			a := through(t, p.URL+"/search?q=1")
			for _, text := range []string{"forged fields were counted as this client's",
				"other ways to write it count", "ok       refusal      429 with Retry-After ", "note     fields", "Traefik has no way"} {
				a.Want(t, cli.ExitOK, text, "")
			}
			through(t, p.URL+"/rapid").Want(t, cli.ExitProblem, "Behind Traefik", "")
			return
		}
		for path, texts := range map[string][]string{
			"/search?q=1": {`answered 200, counted by "search" (59 left), "site" (`,
				"forged fields were counted as this client's", "other ways to write it count",
				"Expect: 100-continue is answered 200", "ok       refusal      429 with Retry-After "},
			// it is refused after a few requests, and then banned
			"/login": {`counted by "logins" (4 left)`, "ok       refusal      429"},
			"/":      {"unseen   refusal", "requests are left, and 200 may be sent", "-proxy-requests"},
			"/rapid": {"unseen   forgery", "name a path with a slower limit"},
		} {
			a := through(t, p.URL+path)
			for _, text := range texts {
				a.Want(t, cli.ExitOK, text, "")
			}
		}
	})
}

// TestDoctorFindsWhatAProxyLacks: the configurations of the guide with one line that is missing or wrong.
func TestDoctorFindsWhatAProxyLacks(t *testing.T) {
	const forwardedFor = "$request_uri;\n        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
	nginx, caddy, haproxy, envoy := proxies.All[0], proxies.All[1], proxies.All[2], proxies.StandIns[1]
	for name, c := range map[string]struct {
		program proxies.Program
		edits   []string
		path    string
		from    gateway.From // if it is another
		well    bool         // nothing is a problem
		always  bool         // also in make test
		want    []string
	}{
		"the path of the client": {program: nginx, always: true, edits: []string{"proxy_set_header X-Original-URI $request_uri;", ""},
			want: []string{"problem  rule", "is answered 500\n", "a client's own X-Original-URI counts: answered 200",
				"`proxy_set_header X-Original-URI $request_uri;`", "unseen   rest"}},
		"the method of the client": {program: nginx,
			edits: []string{"proxy_set_header X-Original-Method $request_method;", ""},
			want: []string{"a client's own X-Original-Method counts: answered 200",
				"`proxy_set_header X-Original-Method $request_method;`"}},
		"the client's X-Forwarded-For": {program: nginx,
			edits: []string{"$proxy_add_x_forwarded_for", "$http_x_forwarded_for"},
			want: []string{`is answered 400 by a rule, as "no_key"`, "the proxy has to send X-Forwarded-For",
				"a client's own X-Forwarded-For counts: answered 200",
				"`proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;`"}},
		"no X-Forwarded-For of its own": {program: nginx, edits: []string{forwardedFor, "$request_uri;"},
			want: []string{"a client's own X-Forwarded-For counts: answered 200"}},
		"no error_page": {program: nginx, edits: []string{"error_page 403 = @gatehouse-refusal;", ""},
			want: []string{"problem  refusal      a refusal arrives as 403 in place of 429",
				"`error_page 403 = @gatehouse-refusal;`", ": answered 403 without RateLimit fields, in place of 400"}},
		"another refusal": {program: nginx,
			edits: []string{"proxy_set_header Gatehouse-Refusal $gatehouse_refusal;", ""},
			want: []string{"problem  refusal      a refusal arrives as 403 in place of 429",
				"`proxy_set_header Gatehouse-Refusal $gatehouse_refusal;`"}},
		"a gateway for another proxy": {program: nginx, from: gateway.HAProxy,
			want: []string{"a refusal arrives as 500 in place of 429", "name the proxy with -from"}},
		"a refusal that is cached": {program: nginx,
			edits: []string{"rewrite ^ /refusal break;", "rewrite ^ /refusal break; proxy_hide_header Cache-Control;"},
			want:  []string{"429 arrives without Cache-Control", "pass on the gateway's answer"}},
		"no fields": {program: nginx, edits: []string{"add_header RateLimit $ratelimit always;", "",
			"add_header RateLimit-Policy $ratelimit_policy always;", ""}, well: true,
			want: []string{"note     fields       allowed answers have no RateLimit fields", "Traefik has no way",
				"ok       forgery", "ok       path", "ok       refusal"}},
		// the gateway closes such a connection, so that nothing is wrong
		"the length of the client's body": {program: nginx, well: true,
			edits: []string{"proxy_set_header Content-Length \"\";", ""}, want: []string{"ok       body"}},
		"the length behind Caddy": {program: caddy, edits: []string{"header_up -Content-Length", ""}, well: true,
			want: []string{"ok       body"}},
		"the path behind Caddy": {program: caddy, edits: []string{"header_up X-Forwarded-Uri {uri}", ""},
			want: []string{"a client's own X-Forwarded-Uri counts", "`header_up X-Forwarded-Uri {uri}`"}},
		"the method behind Caddy": {program: caddy, edits: []string{"header_up X-Forwarded-Method {method}", ""},
			want: []string{"a client's own X-Forwarded-Method counts", "`header_up X-Forwarded-Method {method}`"}},
		"the client's address behind Caddy": {program: caddy, edits: []string{"header_up -Content-Length",
			"header_up X-Forwarded-For {header.X-Forwarded-For}"},
			want: []string{"a client's own X-Forwarded-For counts"}},
		"the client's path behind HAProxy": {program: haproxy, edits: []string{
			`fields["x-original-uri"] = {txn.sf:pathq()}`, "", `, ["x-original-uri"] = true`, ""},
			want: []string{"a client's own X-Original-URI counts", "`fields[\"x-original-uri\"] = {txn.sf:pathq()}`"}},
		"the client's path before HAProxy's": {program: haproxy, edits: []string{`fields["x-original-uri"] = {`,
			`fields["x-original-uri"] = fields["x-original-uri"] or {`, `, ["x-original-uri"] = true`, ""},
			want: []string{"ok       rule", "a client's own X-Original-URI counts: answered 400 without " +
				"RateLimit fields; before: answered 200, counted by"}},
		"the client's address before HAProxy's": {program: haproxy, edits: []string{`or {}`, `or {txn.sf:src()}`,
			`table.insert(fields["x-forwarded-for"], txn.sf:src())`, ""},
			want: []string{`a client's own X-Forwarded-For counts: answered 200, counted by "search" (59 left)`,
				`table.insert(fields["x-forwarded-for"], txn.sf:src())`}},
		"one way to write the path": {program: haproxy,
			edits: []string{"http-request lua.gatehouse", "http-request lua.gatehouse if { path /search }"},
			want: []string{"problem  path         /%2Fsearch ", " //search ", " /%73%65%61%72%63%68 ",
				"answered 200 without RateLimit fields; before: answered 200, counted", "send the path as the client wrote it"}},
		"a field of clients as the key": {program: caddy, path: "/real", want: []string{
			`a client's own X-Real-IP counts: answered 200, counted by "search" (59 left)`, "fields that the proxy sets"}},
		"Envoy without the address of the client": {program: envoy,
			edits: []string{"use_remote_address: true", "use_remote_address: false"},
			want:  []string{"a client's own X-Forwarded-For counts: answered 200", "`use_remote_address: true`"}},
		"Envoy without fields": {program: envoy, always: true, edits: []string{"{prefix: ratelimit}, ", ""}, well: true,
			want: []string{"note     fields", "`{prefix: ratelimit}`"}},
		"two questions": {program: nginx, edits: []string{"location / {",
			"location / { auth_request /gatehouse-check; error_page 403 = @gatehouse-refusal;\n" +
				"auth_request_set $gatehouse_refusal $upstream_http_gatehouse_refusal; try_files /none @app; }\n" +
				"location @app {"}, well: true,
			want: []string{"note     rule         each request takes 2 units", "`auth_request /gatehouse-check;`"}},
		"no question": {program: nginx, always: true, edits: []string{"auth_request /gatehouse-check;", ""},
			want: []string{"problem  rule         no rule is met by this path", "`auth_request /gatehouse-check;`"}},
		"a cache": {program: nginx, edits: []string{"proxy_cache off;", "", "access_log off;",
			"access_log off;\nproxy_cache_path " + t.TempDir() + " keys_zone=all:1m;\nproxy_cache all;\n" +
				"proxy_cache_valid any 1h;\nproxy_ignore_headers Cache-Control;\n"},
			want: []string{"problem  rule         three requests are answered alike", "`proxy_cache off;`"}},
		"a path without a rule": {program: caddy, path: "/free",
			want: []string{"problem  rule         no rule is met by this path",
				"name a path that routes of the file guard"}},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.always {
				redistest.LeftToCI(t)
			}
			t.Parallel()
			p := proxies.Start(t, c.program, gatewayFor(t, cmp.Or(c.from, c.program.From), behindProxy), c.edits...)
			code := cli.ExitProblem
			if c.well {
				code = cli.ExitOK
			}
			a := through(t, p.URL+cmp.Or(c.path, "/search"))
			for _, text := range c.want {
				a.Want(t, code, text, "")
			}
		})
	}
}

// TestRemediesAreLinesOfTheGuide: what stands in them as code stands in docs/guides/gateway.md.
func TestRemediesAreLinesOfTheGuide(t *testing.T) {
	t.Parallel()
	guide := proxies.Guide(t)
	texts := []string{remedyUnguarded, remedyTwice, remedyCache, remedyOwn, remedyPath, remedyBody,
		remedyRefusal, remedyFields,
		remedyOfStatus(http.StatusForbidden)}
	for _, f := range forgeries {
		texts = append(texts, f.remedy)
	}
	for _, text := range texts {
		for _, line := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
			if !strings.Contains(guide, line[1]) {
				t.Errorf("the guide has no %q", line[1])
			}
		}
	}
}

// TestDoctorDoesNotWaitForever: a proxy that hangs at bodies, and one that is away.
func TestDoctorDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done() // the doctor has gone
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("RateLimit", `"rapid";r=5;t=1`)
	}))
	t.Cleanup(hangs.Close)
	timed.Test(t, 300*time.Millisecond, func(t *timed.T) {
		f := proxyFlags{url: hangs.URL, method: http.MethodGet, most: 1}
		p, err := f.proxy()
		if err != nil {
			t.Fatal(err)
		}
		p.patience = time.Second
		if err := p.examine(t.Context()); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		writeExamined(&b, []examined{{Address: "it", Findings: p.found}})
		for _, want := range []string{
			"problem  body         a POST with a body of 1 MB is not answered: no answer within 1s",
			"problem  body         a POST with a body of 1 MB and Expect: 100-continue is not", "`proxy_pass_request_body off;`"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s\nwant %s", b.String(), want)
			}
		}
	})
	through(t, "http://"+redistest.ClosedAddress(t)).Want(t, cli.ExitFailed, "", "connection refused")
}

// TestDoctorThroughTLS: with the roots of the system, and by JSON.
func TestDoctorThroughTLS(t *testing.T) {
	t.Parallel()
	var left atomic.Int64
	left.Store(50)
	app := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("RateLimit", fmt.Sprintf(`"a/1s";r=%d;t=1;pk=:YQ==:, "b, \"c\"";r=900`, max(0, left.Add(-1))))
		w.Header().Add("RateLimit-Policy", `"a/1s";q=50;w=1;qu="x,y", "a/24h";q=500;w=86400`)
		w.Header().Add("RateLimit-Policy", `"b, \"c\"";q=1000;w=60`)
		if left.Load() < 0 {
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(app.Close)
	app.Config.ErrorLog = log.New(io.Discard, "", 0)
	through(t, app.URL).Want(t, cli.ExitFailed, "", "certificate")
	roots := filepath.Join(t.TempDir(), "roots")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: app.Certificate().Raw})
	if err := os.WriteFile(roots, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	a := clitest.Run(t, []string{"SSL_CERT_FILE=" + roots}, "", "doctor", "-json", "-proxy", app.URL+"/x")
	var all []examined
	err := json.Unmarshal([]byte(a.Out), &all)
	if err != nil || len(all) != 1 || all[0].Address != app.URL+"/x" {
		t.Fatalf("%v in %+v", err, a)
	}
	var says []string
	for _, f := range all[0].Findings {
		says = append(says, f.State+" "+f.Item+" "+f.Says)
	}
	got := strings.Join(says, "\n")
	for _, want := range []string{`counted by "a/1s" (49 left), "a/24h", "b, \"c\"" (900 left)`,
		"ok forgery ", "ok path ", "ok refusal 429 with Retry-After 1, "} {
		if !strings.Contains(got, want) || a.Code != cli.ExitOK {
			t.Errorf("exit code %d, %s\nwant %s", a.Code, got, want)
		}
	}
}

// TestDoctorOfRedisAndProxy: with -redis, both are examined.
func TestDoctorOfRedisAndProxy(t *testing.T) {
	t.Parallel()
	s := redistest.StartServer(t)
	app := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(app.Close)
	a := clitest.Run(t, nil, "", "doctor", "-timeout", "1m", "-redis", "redis://"+s.Addr(), "-proxy", app.URL,
		"-proxy-requests", "3")
	a.Want(t, cli.ExitProblem, allRun, "")
	a.Want(t, cli.ExitProblem, "no rule is met by this path: 7 answers had no RateLimit field", "")
}

func TestMistakesInTheFlagsOfAProxy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flags, want string
	}{
		{"-proxy ftp://127.0.0.1/", "write it as http://127.0.0.1/path"},
		{"-proxy 127.0.0.1", "write it as http://127.0.0.1/path"},
		{"-proxy http://me:SECRET@127.0.0.1/", "without a user"},
		{"-proxy http://127.0.0.1/ -proxy-requests 0", "-proxy-requests is 0"},
		{"-proxy http://127.0.0.1/ -proxy-method get", "write it in capital letters"},
		{"-proxy http://127.0.0.1/%zz", "-proxy: "},
	} {
		a := clitest.Run(t, nil, "", append([]string{"doctor"}, strings.Fields(tt.flags)...)...)
		a.Want(t, cli.ExitFailed, "", tt.want)
		if strings.Contains(a.Errs, "SECRET") {
			t.Error(a.Errs)
		}
	}
}
