package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// rules makes a file of one guard and one rule.
func rules(guard, rule string) string {
	return "guards:\n  g: " + guard + "\nrules:\n  r:\n    - " + rule + "\n"
}

const (
	site   = `{sliding_window: {limits: "10/s"}}`
	byIP   = `{guard: g, who: ip}`
	keyFns = `allowed here: basic_auth, fingerprint, host, idempotency_key, ip, method, route, visitor, ` +
		`{const: ...}, {cookie: ...}, {first_of: ...}, {folded: ...}, {form: ...}, {hash: ...}, {header: ...}, ` +
		`{join: ...}, {json: ...}, {param: ...}, {query: ...}, {require: ...}, {user: ...}`
	kinds = "allowed here: sliding_window, leased_window, fixed_window, token_bucket, votes, seckill, quota, " +
		"redpacket, idempotency, semaphore, lock, bans, waitingroom"
)

// TestEveryMistakeIsReported: the place of each mistake, what was found there and what is allowed.
func TestEveryMistakeIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		want []string
	}{
		"several at once": {
			"guards:\n  api: {sliding_windw: {limits: 10/s}}\n  web:\n    token_bucket:\n      limit: 10/s\n" +
				"rules:\n  r:\n    - {guard: wob, who: {usr: uid}}\n    - {guard: web}\n",
			[]string{
				`2:9: guards.api.sliding_windw: unknown kind of guard "sliding_windw": did you mean "sliding_window"?; ` + kinds,
				`5:7: guards.web.token_bucket.limit: unknown field "limit": did you mean "limits"?; allowed here: limits, tiers`,
				`8:15: rules.r[0].guard: unknown guard "wob": did you mean "web"?; allowed here: api, own, web`,
				`8:26: rules.r[0].who.usr: unknown key function "usr": did you mean "user"?; allowed here: ip, user, header, ` +
					`cookie, query, form, param, const, json, fingerprint, join, first_of, hash, folded, require`,
				`9:7: rules.r[1]: who is missing: The key function that finds who acts, such as ip or {user: uid}.`,
			},
		},
		"a limit that is none": {rules(`{sliding_window: {limits: "10/s, 100/fortnight"}}`, byIP), []string{
			`2:32: guards.g.sliding_window.limits: " 100/fortnight": a window of "fortnight": want s, min, h, day or ` +
				`week, optionally after a whole number, or a duration such as "1h30m"`}},
		"two limits of a leased window": {rules(`{leased_window: {limits: "5000/s, 9000/h"}}`, byIP), []string{
			`2:31: guards.g.leased_window.limits: a leased window has one limit: give the others a guard and a ` +
				`rule of their own`}},
		"a limit that the guard cannot keep": {rules(`{sliding_window: {limits: 20000/s}}`, byIP), []string{
			`2:32: guards.g.sliding_window.limits: a limit of 20000 units: a sliding window counts at most 10000 one ` +
				`by one, so count by parts of the window: use WithResolution(1000), or in text 20000/1s/1000`}},
		"a tier that the guard cannot keep": {
			rules(`{token_bucket: {tiers: {by: {user: plan}, of: {pro: 10/s/100}, others: unlimited}}}`, byIP), []string{
				`2:58: guards.g.token_bucket.tiers.of.pro: a resolution of 100: only a sliding window has one, so leave it out`}},
		"no limits": {rules(`{fixed_window: {}}`, byIP), []string{
			`2:21: guards.g.fixed_window: it has no limits: set limits, such as "100/min", or tiers`}},
		"limits and tiers": {
			rules(`{token_bucket: {limits: 1/s, tiers: {by: ip, of: {a: 1/s}, others: 1/s}}}`, byIP), []string{
				`2:42: guards.g.token_bucket.tiers: it has both limits and tiers: set one of them`}},
		"tiers and which": {
			rules(`{token_bucket: {tiers: {by: ip, of: {a: 1/s}, others: 1/s}}}`, `{guard: g, who: ip, which: ip}`), []string{
				`5:34: rules.r[0].which: the guard "g" has tiers, which take its place: leave it out`}},
		"under a guard without levels": {rules(site, `{guard: g, who: ip, under: [{header: X-Org}]}`), []string{
			`5:34: rules.r[0].under: 1 key functions, but the guard "g" has 0 levels: write one for each level but ` +
				`the last, and none for a guard without levels`}},
		"a name that comes twice": {"guards:\n  g: " + site + "\n  g: " + site + "\nrules: {r: [" + byIP + "]}\n",
			[]string{
				`3:3: guards.g: "g" comes twice: the first one is in line 2`}},
		"a guard in two rules of a list": {rules(site, byIP+"\n    - "+byIP), []string{
			`6:15: rules.r[1].guard: the guard "g" is in two rules of the list, which would count a request twice: ` +
				`the first one is in line 5`}},
		"a guard that is not there": {rules(site, `{guard: gg, who: ip}`), []string{
			`5:15: rules.r[0].guard: unknown guard "gg": did you mean "g"?; allowed here: g, own`}},
		"a list that is not there": {rules(site, `{guard: g, who: ip, allow: office}`), []string{
			`5:34: rules.r[0].allow: unknown list "office": there are none`}},
		"an entry that is no network": {"lists: {l: {key: ip, entries: [10.0.0.0/33, \"\"]}}\n" +
			rules(site, byIP), []string{
			`1:32: lists.l.entries[0]: list entry "10.0.0.0/33": write an address such as "192.0.2.1" or a ` +
				`prefix such as "10.0.0.0/8"`,
			`1:45: lists.l.entries[1]: empty: want an address, a prefix or a text`}},
		"entries that can never match": {"lists: {l: {key: ip, entries: [203.0.113.*, ann]}, " +
			"m: {key: {user: uid}, entries: [203.0.113.7-9, ann]}}\n" + rules(site, byIP), []string{
			`1:32: lists.l.entries[0]: list entry "203.0.113.*": write an address such as "192.0.2.1" or a ` +
				`prefix such as "10.0.0.0/8"`,
			`1:84: lists.m.entries[0]: list entry "203.0.113.7-9": write an address such as "192.0.2.1" or a ` +
				`prefix such as "10.0.0.0/8"`}},
		"a text on a list of addresses": {"lists: {l: {key: ip, entries: [10.0.0.0/8, ann]}}\n" +
			rules(site, byIP), []string{
			`1:44: lists.l.entries[1]: list entry "ann": write an address such as "192.0.2.1" or a ` +
				`prefix such as "10.0.0.0/8"`}},
		"votes without a poll": {rules(`{votes: {}}`, `{guard: g, who: {user: uid}, cost: x}`), []string{
			`5:7: rules.r[0].what: missing: name what it is about, such as {param: poll}`,
			`5:42: rules.r[0].cost: unknown cost function "x"; allowed here: tokens, or a whole number`}},
		"a quota without an item": {rules(`{quota: {items: 3, period: {every: day}}}`, byIP), []string{
			`5:7: rules.r[0].which: missing: name which of several, such as {form: choice}`}},
		"an operation without an ID": {rules(`{idempotency: {}}`, byIP), []string{
			`5:7: rules.r[0].id: missing: the guard needs an operation ID, such as idempotency_key`}},
		"a lock that would be local": {rules(`{lock: {}}`, `{guard: g, who: ip, what: route, on_outage: local}`), []string{
			`5:51: rules.r[0].on_outage: the guard "g" cannot decide inside one process: use closed or open`}},
		"bans that are none": {rules(site, `{guard: g, who: ip, bans: g}`), []string{
			`5:33: rules.r[0].bans: "g" is no guard of the kind bans`}},
		"failed and counted": {rules(site, `{guard: g, who: ip, failed: 5xx, counted: [401]}`), []string{
			`5:49: rules.r[0].counted: it has both failed and counted: set one of them`}},
		"a status that is none": {rules(site, `{guard: g, who: ip, failed: [99, 503-500, 6x]}`), []string{
			`5:36: rules.r[0].failed[0]: found "99": want a status: "404", "5xx" or "500-503"`,
			`5:40: rules.r[0].failed[1]: found "503-500": want a status: "404", "5xx" or "500-503"`,
			`5:49: rules.r[0].failed[2]: found "6x": want a status: "404", "5xx" or "500-503"`}},
		"a rollout the wrong way round": {rules(site, `{guard: g, who: ip, rollout: {enabled: 10, enforced: 20}}`), []string{
			`5:36: rules.r[0].rollout: enforced for 20 % of the clients, but enabled for 10 %: a rule cannot refuse ` +
				`clients that it is not asked about`}},
		"a percentage that is none": {rules(site, `{guard: g, who: ip, rollout: {enforced: .nan}}`), []string{
			`5:47: rules.r[0].rollout.enforced: found .nan: want a number from 0 to 100`}},
		"hidden figures for older clients": {rules(site, `{guard: g, who: ip, headers: {hide: true, legacy: true}}`), []string{
			`5:36: rules.r[0].headers: hide and legacy contradict each other: set one of them`}},
		"a cost below 1": {rules(site, `{guard: g, who: ip, cost: 0}`), []string{
			`5:33: rules.r[0].cost: found 0: want a whole number from 1 to 9007199254740991`}},
		"a cost function that is not there": {rules(site, `{guard: g, who: ip, cost: token}`), []string{
			`5:33: rules.r[0].cost: unknown cost function "token": did you mean "tokens"?; allowed here: tokens, ` +
				`or a whole number`}},
		"a key function that is not there": {rules(site, `{guard: g, who: ipp}`), []string{
			`5:23: rules.r[0].who: unknown key function "ipp": did you mean "ip"?; ` +
				strings.Replace(keyFns, "method, route", "method, plan, route", 1)}},
		"an argument that is missing": {rules(site, `{guard: g, who: header}`), []string{
			`5:23: rules.r[0].who: header needs an argument: write {header: ...}`}},
		"an argument too many": {rules(site, `{guard: g, who: {route: x}}`), []string{
			`5:31: rules.r[0].who.route: route takes no argument: write route alone`}},
		"two functions in one": {rules(site, `{guard: g, who: {user: a, header: b}}`), []string{
			`5:23: rules.r[0].who: a mapping with 2 members: want a key function, such as ip, or {user: uid}`}},
		"a header that is no name": {rules(site, `{guard: g, who: {header: "a b"}}`), []string{
			`5:32: rules.r[0].who.header: Header("a b") needs the name of a header field, such as Header("X-Api-Key")`}},
		"a proxy that is no prefix": {rules(site, `{guard: g, who: {ip: {trust_proxies: [10.0.0.0/99]}}}`), []string{
			`5:28: rules.r[0].who.ip: TrustProxies("10.0.0.0/99"): write an address such as "192.0.2.1" or a ` +
				`prefix such as "10.0.0.0/8"`}},
		"a text that YAML takes for a number": {rules(site, `{guard: g, who: {const: 42}}`), []string{
			`5:31: rules.r[0].who.const: found the number 42: want the argument of const, which is text: put it in quotes`}},
		"a key that refers to itself": {"keys: {a: {hash: b}, b: {join: [ip, a]}}\n" + rules(site, byIP), []string{
			`1:37: keys.b.join[1]: the key function "a" refers to itself`}},
		"a key with a name that is taken": {"keys: {ip: route, plan: ip}\n" + rules(site, byIP), []string{
			`1:8: keys.ip: "ip" is the name of a key function already: choose another one`,
			`1:19: keys.plan: "plan" is the name of a key function already: choose another one`}},
		"keys that grow": {"keys:\n  a: {join: [ip, ip, ip, ip, ip]}\n  b: {join: [a, a, a, a, a]}\n" +
			"  c: {join: [b, b, b, b, b]}\n" + rules(site, byIP), []string{
			`4:6: keys.c: it calls 156 key functions for each request: use at most 64`}},
		"a time without an offset": {rules(`{votes: {poll: {closes: 2026-12-24 18:00:00}}}`, byIP), []string{
			`2:30: guards.g.votes.poll.closes: found "2026-12-24 18:00:00": want a time of RFC 3339, such as ` +
				`"2026-12-24T18:00:00+01:00"`,
		}},
		"a poll that contradicts itself": {rules(`{votes: {polls: {final: {change: true, per_voter: 2}}}}`,
			`{guard: g, who: ip, what: ip, which: ip}`), []string{
			`2:30: guards.g.votes.polls.final: `}},
		"a zone of a duration": {rules(`{quota: {items: 3, period: {every: 6h, zone: Europe/Berlin}}}`, byIP), []string{
			`2:51: guards.g.quota.period.zone: a duration is counted from 1970 in UTC: leave zone out, or set every to ` +
				`day, week or month`}},
		"a first day of months": {rules(`{quota: {items: 3, period: {every: month, week_begins: sunday}}}`, byIP), []string{
			`2:61: guards.g.quota.period.week_begins: only weeks have a first day: leave it out, or set every to week`}},
		"a zone that is not there": {rules(`{quota: {items: 3, period: {every: day, zone: Europe/Atlantis}}}`, byIP), []string{
			`2:52: guards.g.quota.period.zone: unknown time zone "Europe/Atlantis": want UTC, or a name of the time ` +
				`zone database, such as "Europe/Berlin"`}},
		"a duration without a unit": {rules(`{lock: {lease: 10}}`, byIP), []string{
			`2:21: guards.g.lock.lease: found the number 10: want a duration from 1s to 1h0m0s, such as "90s", "15m" ` +
				`or "36h"`}},
		"a room without secrets": {rules(`{waitingroom: {capacity: 9}}`, byIP), []string{"2:20: guards.g.waitingroom: secrets_file is missing: " +
			"A file with a secret of 16 bytes or more in each line; the first one signs."}},
		"a file of secrets that is not there": {rules(`{waitingroom: {capacity: 9, secrets_file: /none/there}}`,
			byIP), []string{"2:48: guards.g.waitingroom.secrets_file: open /none/there: no such file or directory"}},
		"a relative file of secrets": {rules(`{waitingroom: {capacity: 9, secrets_file: s}}`, byIP),
			[]string{`2:48: guards.g.waitingroom.secrets_file: the path "s" is not absolute: begin it at the root`}},
		"an endless file of secrets": {rules(`{waitingroom: {capacity: 9, secrets_file: /dev/zero}}`, byIP),
			[]string{"2:48: guards.g.waitingroom.secrets_file: /dev/zero is longer than 65536 bytes: it has a " +
				"secret in each line"}},
		"an empty file of secrets": {rules(`{waitingroom: {capacity: 9, secrets_file: /dev/null}}`, byIP),
			[]string{"2:6: guards.g: Secrets are missing: set one of 32 random bytes, the same in all processes"}},
		"a number that is too large": {rules(`{semaphore: {max: 20_000}}`, byIP), []string{
			`2:24: guards.g.semaphore.max: found 20_000: want a whole number from 1 to 10000`}},
		"bans that shrink": {rules(`{bans: {first: 2h, longest: 1h}}`, byIP), []string{`2:6: guards.g: `}},
		"a word that is none of those": {rules(site, `{guard: g, who: ip, no_key: skipp}`), []string{
			`5:35: rules.r[0].no_key: unknown value "skipp": did you mean "skip"?; allowed here: refuse, skip`}},
		"a yes that YAML takes for text": {rules(site, `{guard: g, who: ip, bare_id: yes}`), []string{
			`5:36: rules.r[0].bare_id: found "yes": want true or false`}},
		"an empty list of rules": {"guards: {g: " + site + "}\nrules: {r: []}\n", []string{
			`2:12: rules.r: an empty list: add an entry, or leave it out`}},
		"JSON with a name that comes twice": {
			"{\"rules\": {},\n \"é\": 1, \"rules\": {\"r\": [{\"guard\": \"own\", \"who\": \"usr\"}]}}",
			[]string{`2:10: rules: "rules" comes twice: the first one is in line 1`}},
		"JSON with a mistake": {
			"{\"rules\":\n {\"r\": [{\"who\": \"ip\", \"guard\": \"ow\"},\n  {\"guard\": 1.5}]}}",
			[]string{
				`2:32: rules.r[0].guard: unknown guard "ow": did you mean "own"?; allowed here: own`,
				`3:3: rules.r[1]: who is missing: The key function that finds who acts, such as ip or {user: uid}.`,
				`3:13: rules.r[1].guard: found the number 1.5: want the name of a guard, which is text: put it in quotes`,
			}},
		"no rules": {"guards: {g: " + site + "}\n", []string{
			`1:1: rules is missing: without a list of rules the file guards nothing`}},
		"a name with a space": {"guards: {\"a b\": " + site + "}\nrules: {r: [{guard: a b, who: ip}]}\n", []string{
			`1:10: guards: the name "a b": want letters, digits, '.', '_' and '-', at most 64`}},
		"a section that is none": {"ruls: {}\n" + rules(site, byIP), []string{
			`1:1: ruls: unknown section "ruls": did you mean "rules"?; allowed here: keys, lists, guards, rules, routes`}},
		"a list in place of a mapping": {"- a\n", []string{
			`1:1: found a list: want a mapping with keys, lists, guards, rules, routes`}},
		"a guard of the program": {strings.ReplaceAll(rules(site, byIP), "g:", "own:"), []string{
			`2:3: guards.own: the program has a guard named "own" already: choose another name`,
			`5:15: rules.r[0].guard: unknown guard "g"; allowed here: own`}},
	} {
		t.Run(name, func(t *testing.T) { wantMistakes(t, test.file, test.want) })
	}
}

// TestFilesThatAreNoText: what an editor, a copy or an attacker may leave behind ends in one clear line.
func TestFilesThatAreNoText(t *testing.T) {
	good := rules(site, byIP)
	for name, test := range map[string]struct {
		file string
		want []string
	}{
		"empty":           {"", []string{`1:1: the file is empty: it needs guards and rules`}},
		"a comment alone": {"# nothing\n", []string{`1:1: the file is empty: it needs guards and rules`}},
		"a NUL":           {"guards:\n \x00", []string{`2:2: a NUL byte: save the file as UTF-8 text`}},
		"Latin-1":         {"# gr\xfc\xdfe\n" + good, []string{`1:5: byte 0xfc is not UTF-8: save the file as UTF-8`}},
		"UTF-16":          {"\xff\xfeg\x00", []string{`1:1: byte 0xff is not UTF-8: save the file as UTF-8`}},
		"two documents":   {good + "---\n" + good, []string{`6:1: a second document begins here: a file has one document`}},
		"an open bracket": {"guards: {\n", []string{`1: not YAML or JSON: did not find expected node content`}},
		"a tab":           {"guards:\n\tg: 1\n", []string{`2: not YAML or JSON: found character that cannot start any token`}},
		"an anchor": {"guards: {g: &a " + site + "}\nrules: {r: [" + byIP + "]}", []string{
			`1:13: guards.g: an anchor (&a): leave it out, aliases are not supported`}},
		"a tag":             {"guards: !x {}\nrules: {}", []string{`1:9: guards: a tag (!x): leave it out`}},
		"larger than 1 MiB": {good + strings.Repeat("#", 1<<20), []string{` the file is larger than 1048576 bytes`}},
		"deep": {strings.Repeat("[", 60) + strings.Repeat("]", 60), []string{
			`1:41: ` + strings.Repeat("[0]", 40) + `: nested deeper than 40 levels`}},
		"deeper than the parser goes": {strings.Repeat("[", 100_000), []string{
			`1: not YAML or JSON: exceeded max depth of 10000`}},
		"aliases that grow": {"a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a]\n", []string{
			`1:4: a: an anchor (&a): leave it out, aliases are not supported`,
			`2:4: b: an anchor (&b): leave it out, aliases are not supported`,
			`2:8: b[0]: an alias (*): write the value out, or name a key function under keys and a list under lists`,
			`2:12: b[1]: an alias (*): write the value out, or name a key function under keys and a list under lists`,
		}},
	} {
		t.Run(name, func(t *testing.T) { wantMistakes(t, test.file, test.want) })
	}
	for name, file := range map[string]string{
		"a byte order mark": "\ufeff" + good,
		"CRLF":              strings.ReplaceAll(good, "\n", "\r\n"),
		"JSON":              `{"guards": {"g": {"sliding_window": {"limits": "10/s"}}}, "rules": {"r": [{"guard": "g", "who": "ip"}]}}`,
		"JSON with tabs": "{\n\t\"guards\": {\"g\": {\"sliding_window\": {\"limits\": \"10\\/s\"}}},\n" +
			"\t\"rules\": {\"r\": [{\"guard\": \"g\", \"who\": \"ip\"}]}\n}",
	} {
		if _, err := config.Parse(name, []byte(file)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// wantMistakes fails the test unless a file has these mistakes, in this order. The last one may end earlier.
func wantMistakes(t *testing.T, file string, want []string) {
	t.Helper()
	cost := func(*keyfuncs.Request) (int64, error) { return 1, nil }
	_, err := config.Parse("f", []byte(file), config.WithKey("plan", keyfuncs.User("plan")),
		config.WithCost("tokens", cost), config.WithGuards(ownGuard{}))
	of := (*config.Error)(nil)
	if !errors.As(err, &of) {
		t.Fatalf("got %v, want %q", err, want)
	}
	got := strings.Split(err.Error(), "\n")
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("missing: %s", want[i])
		case i >= len(want):
			t.Errorf("too many: %s", got[i])
		case got[i] == "f:"+want[i]:
		case strings.HasSuffix(want[i], ": ") && strings.HasPrefix(got[i], "f:"+want[i]): // the text is the guard's
		default:
			t.Errorf("got  %s\nwant f:%s", got[i], want[i])
		}
	}
}

func TestAFileThatCannotBeRead(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestAHundredMistakesAreEnough: a file of 1 MiB full of mistakes took 8.8 s and 8.7 GB of allocations.
func TestAHundredMistakesAreEnough(t *testing.T) {
	var text strings.Builder
	text.WriteString("guards:\n")
	for i := range 900 {
		fmt.Fprintf(&text, "  g%d: {sliding_windw: 1}\n", i)
	}
	var wrong *config.Error
	_, err := config.Parse("rules.yaml", []byte(text.String()))
	if !errors.As(err, &wrong) || len(wrong.Mistakes) != 100 {
		t.Errorf("%.200v: want a hundred mistakes", err)
	}
}

// TestRoutes: patterns of http.ServeMux, and the lists that they name.
func TestRoutes(t *testing.T) {
	file := rules(site, byIP) + "routes:\n"
	for name, c := range map[string]struct{ routes, want string }{
		"a list":           {`  "POST /polls/{poll}/votes": [r]`, ""},
		"one without []":   {`  "/": r`, ""},
		"unknown":          {`  "/": s`, `7:3: routes."/": unknown list of rules "s": did you mean "r"?; allowed here: r`},
		"twice":            {`  "/": [r, r]`, `7:3: routes."/": the list "r" comes twice, and would count a request twice`},
		"no pattern":       {`  "/{": r`, `bad wildcard segment`},
		"another conflict": {"  \"/{a}/b\": r\n  \"/a/{b}\": r", "conflicts"},
		"no mapping":       {`  - r`, "want a mapping of patterns"},
		"no list":          {`  "/": {}`, "want the name of a list of rules"},
	} {
		cfg, err := config.Parse("rules.yaml", []byte(file+c.routes+"\n"))
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v: want %s", name, err, c.want)
		case err == nil && (len(cfg.Routes()) != 1 || cfg.Routes()[0].Lists[0] != "r"):
			t.Errorf("%s: %v", name, cfg.Routes())
		}
	}
}

// TestHostsThatNeverMatch: a gateway knows a host in one spelling, so a route by another one would guard nothing.
func TestHostsThatNeverMatch(t *testing.T) {
	for pattern, fits := range map[string]bool{
		"POST shop.example/login": true, "shop.example/": true, "[2001:db8::1]/": true, "/Login": true,
		"POST \t Shop.example/login": false, "shop.example:443/": false, "shop.example./": false,
		"[2001:DB8::1]/": false, "[2001:db8:0::1]/": false, "[::1]:80/": false,
	} {
		file := []byte(rules(site, byIP) + "routes: {'" + pattern + "': r}\n...\n")
		_, err := config.Parse("rules.yaml", file, config.ForGateway())
		if fits && err != nil || !fits && (err == nil || !strings.Contains(err.Error(), "never matches")) {
			t.Errorf("%s: %v", pattern, err)
		}
		if _, err := config.Parse("rules.yaml", file); err != nil {
			t.Errorf("%s without a gateway: %v", pattern, err)
		}
	}
}

// TestRulesThatAGatewayCannotDecide: what only the application sees is a mistake in lists that routes name.
//
// Promise (Gateway): Guards that need the ending, and keys out of bodies, are refused at set-up, with the reason.
func TestRulesThatAGatewayCannotDecide(t *testing.T) {
	const end = "routes: {/: r}\n...\n"
	other := "  mine:\n    - {guard: s, who: {user: uid}, what: {form: item}}\n"
	for name, c := range map[string]struct{ guard, rule, want string }{
		"a limit":                {site, byIP, ""},
		"a list of no route":     {site, byIP + "\n" + other, ""},
		"failed":                 {site, `{guard: g, who: ip, failed: 4xx}`, "depend on the answer of the application"},
		"counted":                {site, `{guard: g, who: ip, counted: [401]}`, "depend on the answer of the application"},
		"a sale":                 {"{seckill: {}}", `{guard: g, who: ip, what: {param: sku}}`, "confirms when the application has answered"},
		"an operation":           {"{idempotency: {}}", `{guard: g, who: ip, id: idempotency_key}`, "confirms when the application has"},
		"a semaphore":            {"{semaphore: {max: 3}}", byIP, "holds until the application has answered"},
		"a lock":                 {"{lock: {}}", `{guard: g, who: ip, what: {param: id}}`, "holds until the application has answered"},
		"a vote":                 {"{votes: {poll: {per_voter: 1}}}", `{guard: g, who: ip, what: {param: poll}}`, "write failed: none to keep it"},
		"a vote that is kept":    {"{votes: {poll: {per_voter: 1}}}", `{guard: g, who: ip, what: {param: poll}, failed: none}`, ""},
		"a quota":                {"{quota: {items: 3, period: {every: day}}}", `{guard: g, who: ip, which: {param: a}}`, "write failed: none to keep it"},
		"a form":                 {site, `{guard: g, who: {form: name}}`, "form reads the body"},
		"json inside others":     {site, `{guard: g, who: ip, what: {join: [ip, {hash: {json: {member: a, max_bytes: 9}}}]}}`, "json reads the body"},
		"a fingerprint":          {site, `{guard: g, who: fingerprint}`, "fingerprint reads the body"},
		"a user of no login":     {site, `{guard: g, who: {user: name}}`, "user name: no login is in front of it"},
		"a user of the proxy":    {site, `{guard: g, who: {user: uid}}`, ""},
		"a tier out of the body": {`{sliding_window: {tiers: {by: {form: plan}, of: {a: 1/s}, others: 1/s}}}`, byIP, "cannot tell the tier"},
	} {
		file := strings.Replace(rules(c.guard, c.rule), "rules:", "  s: {seckill: {}}\nrules:", 1) + end
		_, err := config.Parse("rules.yaml", []byte(file), config.ForGateway("uid"))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v: want %s", name, err, c.want)
		}
	}
	_, err := config.Parse("rules.yaml", []byte(rules(site, byIP)), config.ForGateway())
	for _, want := range []string{"routes is missing", `rules.yaml:5: the file does not end with a line "..."`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}
