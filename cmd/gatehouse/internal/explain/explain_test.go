package explain

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

func TestMain(m *testing.M) { clitest.Main(m, Command, Check) }

// vote is a request for explain, as flags.
var vote = []string{"-rules", "voting", "-request", "POST /polls/final/votes",
	"-route", "POST /polls/{poll}/votes",
	"-H", "X-Forwarded-For: 198.51.100.1, 203.0.113.7", "-H", "Content-Type: application/x-www-form-urlencoded",
	"-remote", "10.0.0.9", "-user", "uid=ann", "-body", "choice=red"}

// TestExplainedKeysAreThoseOfTheApplication: a server with the rules of the file gets the explained request,
// and leaves the explained keys, its figures and its header fields.
func TestExplainedKeysAreThoseOfTheApplication(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	environ := []string{"REDIS_URL=redis://" + server.Addr()} // which explain does not use by itself
	file := clitest.RulesFile(t, clitest.Rules)
	before := clitest.Run(t, environ, "", append([]string{"explain", file, "-json"}, vote...)...).JSON(t)

	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	rdb := server.Client(t)
	set, err := cfg.Build(guardtest.NewEngine(redistest.Backend{Client: rdb, Prefix: "gatehouse"}))
	if err != nil {
		t.Fatal(err)
	}
	var mux http.ServeMux
	mux.Handle("POST /polls/{poll}/votes", nethttpmw.HTTP(set.Rules("voting")...)(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/polls/final/votes",
		strings.NewReader("choice=red"))
	r.RemoteAddr = "10.0.0.9:40000"
	r.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.7")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", "ann")))
	if w.Code != http.StatusOK {
		t.Fatalf("the server answers %d %s", w.Code, w.Body)
	}

	list := before["lists"].([]any)[0].(map[string]any)
	var keys []string
	for _, rule := range list["rules"].([]any) {
		for _, key := range rule.(map[string]any)["keys"].([]any) {
			keys = append(keys, key.(string))
		}
	}
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		isExplained := func(explained string) bool {
			before, made := strings.CutSuffix(explained, "*") // the ID that the guard made
			return key == explained || made && strings.HasPrefix(key, before)
		}
		if !slices.ContainsFunc(keys, isExplained) {
			t.Errorf("the server has the key %q; explained are %q", key, keys)
		}
	}
	if header := fmt.Sprint(list["header"]); !strings.Contains(header, w.Header().Get("RateLimit-Policy")) ||
		!strings.Contains(header, w.Header().Get("RateLimit")) {
		t.Errorf("the server sends %v; explained is %v", w.Header(), header)
	}
	rules := list["rules"].([]any)
	if site := rules[0].(map[string]any); site["actor"] != "203.0.113.7" || site["source"] != "unused" {
		t.Errorf("site: %v", site)
	}
	if poll := rules[1].(map[string]any); poll["actor"] != "ann" || poll["resource"] != "final" ||
		poll["item"] != "red" || poll["source"] != "assumed" || list["assumed"] != true {
		t.Errorf("poll: %v in %v", poll, list)
	}
}

func TestExplainWithARedisSaysWhatItIsNow(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	rdb, file, url := server.Client(t), clitest.RulesFile(t, clitest.Rules), "redis://"+server.Addr()
	run := func() clitest.Answer {
		return clitest.Run(t, nil, "", append([]string{"explain", file, "-redis", url, "-timeout", "1m"}, vote...)...)
	}
	run().Want(t, 0, "now       ok, 3 of 3 left\n", "")
	if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("explain wrote %q", keys)
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	set, err := cfg.Build(guardtest.NewEngine(redistest.Backend{Client: rdb, Prefix: "gatehouse"}))
	if err != nil {
		t.Fatal(err)
	}
	a := guardtest.Check(t, set.Guard("site"), core.Attempt{Actor: "203.0.113.7"})
	for a.Remaining > 0 {
		a = guardtest.Check(t, set.Guard("site"), core.Attempt{Actor: "203.0.113.7"})
	}
	run().Want(t, 0, "the request gets 429 Too Many Requests\n", "")
	run().Want(t, 0, "    Retry-After: ", "")
	shop := set.Guard("sale").(*seckill.Guard)
	if _, err := shop.Open(t.Context(), "shoe", seckill.Sale{Stock: 7}); err != nil {
		t.Fatal(err)
	}
	clitest.Run(t, nil, "", "explain", file, "-redis", url, "-timeout", "1m", "-rules", "shop",
		"-request", "POST /sales/shoe/orders", "-route", "POST /sales/{sku}/orders", "-user", "uid=ann", "-H", `Idempotency-Key: "o1"`).
		Want(t, 0, "now       stock 7: left 7, held 0, sold 0\n", "")
}

// TestExplainNamesWhatTheRequestLacks: it said no_key, but not of which key function, and by which flag the
// request gets it.
func TestExplainNamesWhatTheRequestLacks(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"{header: X-Api-Key}": `Header("X-Api-Key")` + "\n    try       -H 'X-Api-Key: VALUE'\n",
		"{cookie: sid}":       `Cookie("sid")` + "\n    try       -H 'Cookie: sid=VALUE'\n",
		"{query: token}":      `Query("token")` + "\n    try       -request 'METHOD /PATH?token=VALUE'\n",
		"basic_auth":          "BasicAuth()\n    try       -H 'Authorization: Basic BASE64'\n",
		"{json: {max_bytes: 99, member: [a, b]}}": "\n    try       -H 'Content-Type: application/json' -body 'OBJECT'\n",
		"own":                       "a function of the program\n    try       -key NAME=VALUE, with",
		"{require: {header: X-Id}}": `Require(Header("X-Id"))` + "\n    try       -H 'X-Id: VALUE'\n",
		"{first_of: [{user: uid}, {cookie: sid}]}": `FirstOf(User("uid"), Cookie("sid"))` +
			"\n    try       -user uid=VALUE\n    try       -H 'Cookie: sid=VALUE'\n",
	} {
		file := clitest.RulesFile(t, "guards: {site: {sliding_window: {limits: 3/min}}}\n"+
			"rules: {api: [{guard: site, who: "+key+"}]}\n")
		got := clitest.Run(t, nil, "", "explain", file, "-key", "own", "-request", "POST /")
		got.Want(t, 0, "    by        who ", "")
		got.Want(t, 0, want, "")
	}
	file := clitest.RulesFile(t, "lists: {bots: {key: ip, entries: [192.0.2.1]}}\n"+
		"guards: {site: {sliding_window: {limits: 3/min}}, site2: {sliding_window: {limits: 3/min}}}\n"+
		"rules: {api: [{guard: site, who: {user: uid}}, {guard: site2, who: ip, deny: bots}]}\n")
	clitest.Run(t, nil, "", "explain", file).
		Want(t, 0, "refused   denied: the guard is not asked\n    by        deny\n", "")
}

func TestExplainSaysWhyAGuardIsNotAsked(t *testing.T) {
	t.Parallel()
	file := clitest.RulesFile(t, clitest.Rules)
	run := func(args ...string) clitest.Answer {
		return clitest.Run(t, nil, "", append([]string{"explain", file}, args...)...)
	}
	run("-rules", "api", "-user", "uid=root", "-route", "/{x...}").
		Want(t, 0, "passes    without being counted\n", "")
	run("-rules", "api", "-route", "/{x...}").Want(t, 0, "refused   no_key: the guard is not asked\n", "")
	run("-rules", "api", "-route", "/{x...}").Want(t, 0, "the request gets 400 Bad Request\n", "")
	run("-rules", "api", "-route", "/{x...}").
		Want(t, 0, "    by        who User(\"uid\")\n    try       -user uid=VALUE\n", "")
	run("-rules", "voting", "-request", "POST /polls/1/votes", "-user", "uid=ann").
		Want(t, 0, "    by        what Param(\"poll\")\n    try       -route 'METHOD /PATTERN', as the program", "")
	run("-rules", "voting", "-request", "POST /polls/1/votes", "-route", "POST /polls/{poll}/votes",
		"-user", "uid=ann").Want(t, 0, "-body 'choice=VALUE'\n", "")
	run("-json", "-rules", "api").Want(t, 0, `"try": [
            "-user uid=VALUE"
          ],`, "")
	run("-rules", "api", "-route", "/{x...}", "-user", "uid=a", "-user", "plan=paid").
		Want(t, 0, "at first  ok, 8 of 9 left with this request\n", "")
	run("-rules", "api", "-route", "/{x...}", "-user", "uid=a", "-user", "plan=gold").
		Want(t, 0, "now       ok, not limited\n", "")

	run("-rules", "none").Want(t, 2, "", `has no list "none": it has api, voting, shop`)
	run("-request", "POST").Want(t, 2, "", "write a method and a path")
	run("-request", "A/B /x").Want(t, 2, "", "A/B")
	run("-route", "POST /x").Want(t, 2, "", "does not match")
	run("-route", "{").Want(t, 2, "", "-route: ")
	run("-prefix", "a b").Want(t, 2, "", `the prefix "a b" has ' ' in it`)
	run("-user", "ann").Want(t, 2, "", "write it as NAME=VALUE")
	run("other.yaml").Want(t, 2, "", "name one file")
	clitest.Run(t, nil, "", "explain", clitest.RulesFile(t, "guards: 7")).Want(t, 2, "", "mistake")
}
