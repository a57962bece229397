package replay

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/accesslog"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

func TestMain(m *testing.M) { clitest.Main(m, Command) }

const replayedRules = `
keys:
  address: {ip: {trust_proxies: ["127.0.0.0/8"]}}
guards:
  site: {sliding_window: {limits: "7/s, 60/min"}}
  login: {token_bucket: {limits: "5/10s"}}
  plan: {fixed_window: {tiers: {by: {user: plan}, of: {gold: "9/10s", staff: unlimited}, others: "3/10s"}}}
  poll: {votes: {}}
rules:
  site:
    - {guard: site, who: address}
  login:
    - {guard: login, who: address, what: {param: account}, counted: [401]}
    - {guard: plan, who: {user: uid}, no_key: skip}
  voting:
    - {guard: poll, who: {user: uid}, what: {param: poll}, which: {form: choice}}
`

// loggingApp serves the rules over HTTP on an engine, and writes a log in JSON. The handler's status, the
// client's address and user are chosen by the request.
func loggingApp(t *testing.T, gate *core.Engine, now func() time.Time, log io.Writer) *httptest.Server {
	t.Helper()
	cfg, err := config.Load(clitest.RulesFile(t, replayedRules))
	if err != nil {
		t.Fatal(err)
	}
	var set *config.Set
	if gate.HasRedis() {
		set, err = cfg.Build(gate)
	} else {
		without, _, _ := strings.Cut(strings.Replace(replayedRules, "  poll: {votes: {}}\n", "", 1), "  voting:")
		if cfg, err = config.Parse("rules.yaml", []byte(without)); err == nil {
			set, err = cfg.Build(gate)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := 200
		_, _ = fmt.Sscan(r.Header.Get("X-Status"), &status)
		w.WriteHeader(status)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /login/{account}", nethttpmw.Follow(set.Pipeline("login"))(answer))
	mux.Handle("/", answer)
	inner := nethttpmw.Follow(set.Pipeline("site"))(mux)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := keyfuncs.WithValue(r.Context(), "uid", r.Header.Get("X-User"))
		seen := &statusWriter{ResponseWriter: w, status: 200}
		inner.ServeHTTP(seen, r.WithContext(keyfuncs.WithValue(ctx, "plan", r.Header.Get("X-Plan"))))
		_, _ = fmt.Fprintf(log, `{"ts":%d,"method":%q,"uri":%q,"remote_addr":%q,"http_x_forwarded_for":%q,"status":%d,`+
			`"uid":%q,"plan":%q,"by":%q}`+"\n", now().UnixMilli(), r.Method, r.RequestURI, r.RemoteAddr,
			r.Header.Get("X-Forwarded-For"), seen.status, r.Header.Get("X-User"), r.Header.Get("X-Plan"),
			seen.Header().Get("Retry-After"))
	}))
	t.Cleanup(server.Close)
	return server
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// TestAReplayDecidesAsTheApplicationThatServedTheRequests serves requests over HTTP, on the memory engine and
// on Redis, and compares the answer in each line of the log with what the replay decides.
//
// Promise: `gatehouse replay` decides a line of a log as an application with the rules would. It names the
// values that the log lacks.
func TestAReplayDecidesAsTheApplicationThatServedTheRequests(t *testing.T) {
	t.Parallel()
	for _, on := range []string{"memory", "redis"} {
		t.Run(on, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 1))
			now := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
			clock := core.WithClock(func() time.Time { return now })
			gate := core.NewMemory(clock)
			if on == "redis" {
				gate = guardtest.NewEngine(redistest.Backend{Client: redistest.StartServer(t).Client(t),
					Prefix: "gatehouse"}, clock)
			}
			var log strings.Builder
			app := loggingApp(t, gate, func() time.Time { return now }, &log)
			var statuses []int
			for range 1500 {
				now = now.Add(time.Duration(random.IntN(300)) * time.Millisecond)
				method, path := "GET", "/search?q=1"
				if random.IntN(2) == 0 {
					method, path = "POST", fmt.Sprintf("/login/%%61%d", random.IntN(2))
				}
				r, err := http.NewRequestWithContext(t.Context(), method, app.URL+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", random.IntN(3)))
				r.Header.Set("X-User", []string{"", "ann", "bob"}[random.IntN(3)])
				r.Header.Set("X-Plan", []string{"", "gold", "staff"}[random.IntN(3)])
				r.Header.Set("X-Status", []string{"200", "401", "500"}[random.IntN(3)])
				answer, err := app.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				statuses = append(statuses, answer.StatusCode)
			}
			replayAndCompare(t, log.String(), statuses)
		})
	}
}

// replayAndCompare replays a log and compares with the statuses that the application answered.
func replayAndCompare(t *testing.T, log string, statuses []int) {
	t.Helper()
	f := flags{
		users: map[string]string{"uid": "uid", "plan": "plan"}, top: 3,
		mounts: []mount{{"site", ""}, {"login", "POST /login/{account}"}},
	}
	at, refused := 0, 0
	r := &replayer{ctx: t.Context(), flags: &f, report: &report{Rules: clitest.RulesFile(t, replayedRules)},
		bar: new(bar), decided: func(e *accesslog.Entry, w *world) {
			if was := statuses[at] == 429; was != (w.refused == core.ReasonLimited) {
				t.Fatalf("line %d, %s %s at %v: the application answered %d, the replay says %q", at+1, e.Method,
					e.URI, e.Time, statuses[at], w.refused)
			} else if was {
				refused++
			}
			at++
		}}
	if err := r.read(t.Context(), "log", strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	if err := r.finish(); err != nil {
		t.Fatal(err)
	}
	if at != len(statuses) || refused < 100 || refused > len(statuses)-100 {
		t.Errorf("%d of %d lines were replayed, and %d refused", at, len(statuses), refused)
	}
	if n := r.report.NotReplayed; len(n) != 1 || n[0].List != "voting" {
		t.Errorf("not replayed: %v", n)
	}
}

// logFile writes a log, compressed if its name says so.
func logFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var w io.Writer = file
	if strings.HasSuffix(name, ".gz") {
		zip := gzip.NewWriter(file)
		defer zip.Close()
		w = zip
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReplaySaysWhomRulesWouldHaveRefused(t *testing.T) {
	t.Parallel()
	rules := clitest.RulesFile(t, "guards:\n  site: {sliding_window: {limits: 10/min}}\n  poll: {votes: {}}\n"+
		"rules:\n  site:\n    - {guard: site, who: ip}\n    - {guard: poll, who: ip, what: {const: p}, which: {form: choice}}\n")
	var text strings.Builder
	clitest.CombinedLog(&text, 60, 2)
	log := logFile(t, "access.log.gz", text.String()+"a broken \x00 line\n")
	clitest.Run(t, nil, "", "replay", rules, log).Want(t, 0, "refused  40 of 60 (66.7 %), 2 of 2 actors", "")
	clitest.Run(t, nil, "", "replay", rules, log).Want(t, 0, "poll (votes): what it decides is in Redis", "")
	clitest.Run(t, nil, "", "replay", rules, log).Want(t, 0, "61 lines, 1 broken", "")
	clitest.Run(t, nil, "", "replay", "-sweep", "site=5/m", "-sweep", "site=20/m", rules, log).Want(t, 0,
		"20/m         refused 20 of 60 (33.3 %), 2 actors", "")
	clitest.Run(t, nil, "", "replay", "-csv", rules, log).Want(t, 0, "actor,site,site,10/min,203.0.0.0,30,20",
		"")
	all := clitest.Run(t, nil, "", "replay", "-json", rules, log).JSON(t)
	if all["requests"] != 60.0 {
		t.Errorf("requests: %v", all["requests"])
	}
	clitest.Run(t, nil, text.String(), "replay", rules, "-").Want(t, 0, "refused  40 of 60", "")
	clitest.Run(t, nil, "", "replay", "-sweep", "sight=5/m", rules, log).Want(t, 2, "", `no guard "sight"`)
}

// TestReplaySaysThatListsWereAlone: a list for the login alone had 46.9 % refused, since all requests passed it,
// and nothing said so.
func TestReplaySaysThatListsWereAlone(t *testing.T) {
	t.Parallel()
	rules := clitest.RulesFile(t,
		"guards: {a: {sliding_window: {limits: 9/h}}, b: {sliding_window: {limits: 2/h}}}\n"+
			"rules: {site: [{guard: a, who: ip}], login: [{guard: b, who: ip}]}\n")
	var text strings.Builder
	clitest.CombinedLog(&text, 60, 2)
	log := logFile(t, "access.log", text.String())
	const note = "each list was replayed on all requests, as if it were the only one: say where the program " +
		"has them, -mount 'site=PATTERN' -mount 'login=PATTERN', without =PATTERN for one that all requests pass"
	got := clitest.Run(t, nil, "", "replay", rules, log)
	if first, _, _ := strings.Cut(got.Out, "\n"); got.Code != 0 || first != "note       "+note {
		t.Errorf("exit code %d, the first line is %q", got.Code, first)
	}
	inJSON := clitest.Run(t, nil, "", "replay", "-json", rules, log).JSON(t)["notes"]
	if fmt.Sprint(inJSON) != "["+note+"]" {
		t.Errorf("JSON has %v", inJSON)
	}
	clitest.Run(t, nil, "", "replay", "-csv", rules, log).Want(t, 0, "\nnote,,,,,0,0,0,0,\"each list was ", "")
	mounted := clitest.Run(t, nil, "", "replay", "-mount", "site", "-mount", "login=POST /login", rules, log)
	if mounted.Code != 0 || strings.Contains(mounted.Out, "as if it were") {
		t.Errorf("exit code %d, with mounts: %s", mounted.Code, mounted.Out)
	}
}

// TestReplaySaysWhatALogDoesNotTell names what each rule reads that the log lacks, and what became of it.
func TestReplaySaysWhatALogDoesNotTell(t *testing.T) {
	t.Parallel()
	rules := clitest.RulesFile(t, `
guards:
  a: {sliding_window: {limits: 5/min}}
  b: {sliding_window: {limits: 5/min}}
  c: {sliding_window: {limits: 5/min}}
  d: {sliding_window: {tiers: {by: {user: plan}, of: {gold: 9/min}, others: 5/min}}}
  e: {semaphore: {max: 3}}
  f: {bans: {}}
  g: {sliding_window: {limits: 5/min}}
rules:
  api:
    - {guard: a, who: {first_of: [{header: X-Api-Key}, ip]}}
    - {guard: b, who: {user: uid}, what: route}
    - {guard: c, who: {hash: {form: email}}, what: {param: item}}
    - {guard: d, who: tenant}
    - {guard: e, who: ip, what: {const: x}}
    - {guard: g, who: ip, counted: [401], bans: f}
`)
	var text strings.Builder
	clitest.CombinedLog(&text, 120, 1)
	log := logFile(t, "access.log", text.String()+
		"203.0.0.0 - - [24/Nov/2026:00:00:00 +0000] \"OPTIONS / HTTP/1.1\" 429 1 \"-\" \"-\"\n")
	got := clitest.Run(t, nil, "", "replay", "-key", "tenant", rules, log)
	for _, want := range []string{
		"api a (sliding_window): the log has no X-Api-Key: -header X-Api-Key=FIELD",
		"api b (sliding_window): the route is not in the log: -mount 'api=PATTERN' names it; the user uid is not",
		"api c (sliding_window): a log has no bodies, of which form reads one; the path parameter item",
		"api d (sliding_window): the key function tenant of the program: -key tenant=FIELD names the field of the " +
			"log; the user plan",
		"api e (semaphore): a log does not tell what requests hold",
		"note     without the bans of f", "note     by the status in the log", "note     1 OPTIONS request counted",
		"note     1 request answered 429 then", "not used: body_bytes_sent", "1 out of order; 0 too late",
		"refused  0 of 121", // none was answered 401
	} {
		if got.Code != 0 || !strings.Contains(got.Out, want) {
			t.Errorf("%q is missing in %s%s", want, got.Out, got.Errs)
		}
	}
	clitest.Run(t, nil, "", "replay", "-key", "tenant=http_user_agent", "-user", "plan=$remote_addr", "-header",
		"X-Api-Key=http_user_agent", "-mount", "api", rules, log).Want(t, 0, "agent/1.0 (test): ", "")
}

// TestReplayKnowsTheKeyFunctionsOfFiles: folded and visitor counted as functions of the program, and the flag
// -key that the replay asked for ended it with a panic.
func TestReplayKnowsTheKeyFunctionsOfFiles(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../../ops/config/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs struct {
			Key struct {
				AnyOf []struct {
					Const      string         `json:"const"`
					Properties map[string]any `json:"properties"`
				} `json:"anyOf"`
			} `json:"key"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, of := range schema.Defs.Key.AnyOf {
		names[of.Const] = true
		for name := range of.Properties {
			names[name] = true
		}
	}
	delete(names, "") // what names an own function
	if len(names) < 20 {
		t.Fatalf("the schema has %d key functions", len(names))
	}
	in, err := accesslog.NewReader(strings.NewReader(""), accesslog.Options{Format: "combined"})
	if err != nil {
		t.Fatal(err)
	}
	p := &plan{flags: new(flags), log: in, root: nothing}
	for name := range names {
		key := *nothing
		key.Value = name
		if got := p.lacks(new(plannedList), &key); strings.Contains(fmt.Sprint(got), "of the program") {
			t.Errorf("%s: %s", name, got)
		}
	}

	rules := clitest.RulesFile(t, "guards: {a: {sliding_window: {limits: 2/min}}}\n"+
		"rules: {all: [{guard: a, who: {folded: {header: X-Login}}}]}\n")
	const line = "1795514400;203.0.113.7;%s;GET /a HTTP/1.1\n"
	log := fmt.Sprintf(line+line+line, "Ann", "ann", "ANN")
	run := func(flag, value string) clitest.Answer {
		return here(t, log, "-format", "$msec;$remote_addr;$login;$request", flag, value, rules, "-")
	}
	run("-header", "X-Login=login").Want(t, 0, "actor    ann: 1 of 3", "")
	run("-key", "a b=login").Want(t, 2, "", `"a b"`)
	run("-cost", "a b=login").Want(t, 2, "", `"a b"`)
}

// TestALogWithAFormatOfItsOwnIsReplayed reads a log_format, with fields under names of its own.
func TestALogWithAFormatOfItsOwnIsReplayed(t *testing.T) {
	t.Parallel()
	const two = "guards: {site: {sliding_window: {limits: 2/min}}}\nrules: {all: [{guard: site, who: %s}]}\n"
	rules := clitest.RulesFile(t, fmt.Sprintf(two, "ip"))
	text := strings.Repeat("1795514400.250;203.0.113.7;=1+1;GET /a HTTP/1.1\n", 5)
	clitest.Run(t, nil, text, "replay", "-format", "$msec;$peer;$uid;$request", "-field", "remote=peer", rules,
		"-").Want(t, 0, "203.0.113.7: 3 of 5", "")
	clitest.Run(t, nil, text, "replay", "-csv", "-format", "$msec;$remote_addr;$uid;$request", "-key", "who=uid",
		clitest.RulesFile(t, fmt.Sprintf(two, "who")), "-").
		Want(t, 0, "actor,all,site,2/min,'=1+1,5,3", "")
	clitest.Run(t, nil, text, "replay", rules, "-").Want(t, 2, "", "no line is of a known format")
}

// TestABarIsForTerminals: a file gets no bar, and on a terminal the bar can be removed.
func TestABarIsForTerminals(t *testing.T) {
	t.Parallel()
	if file, err := os.Create(filepath.Join(t.TempDir(), "errors")); err != nil || newBar(file, nil).out != nil {
		t.Errorf("a bar in a file, or %v", err)
	}
	logs, err := openLogs(nil, []string{logFile(t, "access.log", strings.Repeat("x", 300))})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.close()
	_, _ = logs.files[0].Read(make([]byte, 100))
	var out strings.Builder
	b := &bar{out: &out, logs: logs, begun: time.Now()}
	b.show(7)
	b.clear()
	if got := out.String(); !strings.HasPrefix(got, "\r[##########....................]  33 %, 7 requests") ||
		!strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("%q", got)
	}
}

// BenchmarkReplay replays a million lines of 50,000 addresses with a rule, alone and with three other limits.
func BenchmarkReplay(b *testing.B) {
	rules := filepath.Join(b.TempDir(), "rules.yaml")
	const text = "guards: {site: {sliding_window: {limits: 10/min}}}\nrules: {all: [{guard: site, who: ip}]}\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	var lines strings.Builder
	clitest.CombinedLog(&lines, 1_000_000, 50_000)
	log := logFile(b, "access.log", lines.String())
	for name, args := range map[string][]string{"alone": nil,
		"sweep": {"-sweep", "5/min", "-sweep", "20/min", "-sweep", "40/min"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				e := &cli.Env{Out: io.Discard, Errs: os.Stderr}
				args := append([]string{"replay", rules, log}, args...)
				if code := e.Run(b.Context(), []cli.Command{Command}, args); code != 0 {
					b.Fatal(code)
				}
			}
			b.ReportMetric(1e6*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
