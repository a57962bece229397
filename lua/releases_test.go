package lua_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestTheLastReleasesScriptsRunBesideTheseOnes: during a deployment, processes of two releases use the same
// keys. For each frozen release and each guard, one side runs the release's scripts and the other those of
// this checkout, in turns and on the same keys, and no promise may break, whichever side comes first.
func TestTheLastReleasesScriptsRunBesideTheseOnes(t *testing.T) {
	b := redistest.Single(t)
	for _, release := range releases(t) {
		t.Run(release, func(t *testing.T) {
			old, ran := frozen(t, release), new(sync.Map)
			for _, s := range scenarios {
				for _, oldFirst := range []bool{true, false} {
					if err := together(t, b, s, old, scripts, oldFirst, ran); err != nil {
						t.Errorf("%s, the release first: %t: %v", s.name, oldFirst, err)
					}
				}
			}
			for name := range old {
				if _, ok := ran.Load(name); !ok && notRun[name] == "" {
					t.Errorf("no scenario has run %s of %s: add a step, or a reason to notRun", name, release)
				}
			}
		})
	}
}

// notRun are the scripts that no scenario runs, with the reason.
var notRun = map[string]string{
	"core/touch": "writes nothing that others read: it makes WAIT have something to wait for",
	"limit/turn": "no decision depends on it: it says which process asks first",
}

// TestAChangedRecordIsFound: scripts whose records have another layout keep all promises among themselves,
// and break them beside those of a release. So the test above sees such a change, for each guard.
func TestAChangedRecordIsFound(t *testing.T) {
	b := redistest.Single(t)
	all := releases(t)
	old := frozen(t, all[len(all)-1])
	for _, m := range mutations {
		t.Run(m.scenario+": "+m.what, func(t *testing.T) {
			changed, found := m.apply(scripts)
			if found == 0 {
				t.Fatalf("no script of %s has any of %q any more: change the mutation", m.files, m.pairs)
			}
			i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == m.scenario })
			if i < 0 {
				t.Fatal("there is no such scenario")
			}
			if err := together(t, b, scenarios[i], changed, changed, true, nil); err != nil {
				t.Errorf("the changed scripts do not work among themselves, so they show nothing: %v", err)
			}
			if err := together(t, b, scenarios[i], old, changed, true, nil); err == nil {
				t.Error("nobody has noticed the change")
			}
		})
	}
}

// TestEveryReleaseIsFrozen: each version of the changelog that is out, and from which an upgrade has to be
// possible, has its scripts in testdata, and the last one has those of this checkout until something changes
// after it.
func TestEveryReleaseIsFrozen(t *testing.T) {
	changelog, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - (\S+)`)
	versions := heading.FindAllStringSubmatch(string(changelog), -1)
	if len(versions) == 0 {
		t.Fatal("CHANGELOG.md has no version")
	}
	there := releases(t)
	for i, v := range versions {
		out := v[2] != "Unreleased"
		if (out || i == 0 && len(versions) == 1) && !slices.Contains(there, "v"+v[1]) {
			t.Errorf("testdata/releases/v%s is missing: make release-prepare makes it", v[1])
		}
	}
	if newest := versions[0]; newest[2] != "Unreleased" {
		for name, source := range frozen(t, "v"+newest[1]) {
			if scripts[name] != source {
				t.Errorf("%s has changed since %s: begin the next version in CHANGELOG.md", name, newest[1])
			}
		}
	}
}

// releases returns the folders of testdata/releases, the oldest first.
func releases(t *testing.T) (names []string) {
	t.Helper()
	folders, err := filepath.Glob("testdata/releases/v*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("testdata/releases: %v, %v", folders, err)
	}
	for _, folder := range folders {
		names = append(names, filepath.Base(folder))
	}
	slices.SortFunc(names, func(a, b string) int {
		var v, w [3]int
		_, _ = fmt.Sscanf(a, "v%d.%d.%d", &v[0], &v[1], &v[2])
		_, _ = fmt.Sscanf(b, "v%d.%d.%d", &w[0], &w[1], &w[2])
		return slices.Compare(v[:], w[:])
	})
	return names
}

// frozen returns the scripts of a release by name. Those of this checkout stand for scripts that the release
// lacks. Before the first release is out, testdata has three, which show that the tests work.
func frozen(t *testing.T, release string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata/releases", release, "*/*.lua"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", release, files, err)
	}
	sources := maps.Clone(scripts)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
		sources[strings.TrimSuffix(name, ".lua")] = string(text)
	}
	return sources
}

// substitute is a hook that makes a client send other sources in place of the scripts of this checkout. So
// the guards of this checkout run the scripts of another release. Where the arguments of a script have
// changed since that release, swap has to translate them.
type substitute struct {
	sources map[string]string // by name
	ran     *sync.Map         // the names of those that have run; nil: nobody wants to know
}

// nameBySHA are the names of this checkout's scripts by their hash.
var nameBySHA = func() map[string]string {
	names := map[string]string{}
	for name, source := range scripts {
		names[shaOf(source)] = name
	}
	return names
}()

func shaOf(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

func (s *substitute) swap(cmd redis.Cmder) {
	args := cmd.Args()
	if len(args) < 2 || args[0] != "evalsha" && args[0] != "eval" {
		return
	}
	text, _ := args[1].(string)
	if args[0] == "eval" {
		text = shaOf(text)
	}
	name := nameBySHA[text]
	source, known := s.sources[name]
	if !known {
		return // an application's script, or one that the release does not have
	}
	if s.ran != nil {
		s.ran.Store(name, true)
	}
	args[1] = source
	if args[0] == "evalsha" {
		args[1] = shaOf(source)
	}
}

func (s *substitute) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *substitute) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.swap(cmd)
		return next(ctx, cmd)
	}
}

func (s *substitute) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			s.swap(cmd)
		}
		return next(ctx, cmds)
	}
}

// pair are two processes of different releases on the same keys.
type pair struct {
	ctx   context.Context
	sides [2]*core.Engine
	clock *guardtest.Clock // of both sides
	rdb   redis.UniversalClient
	key   string // the prefix of all keys
	errs  []error
}

// is notes a difference.
func (p *pair) is(what string, got, want any) {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.errs = append(p.errs, fmt.Errorf("%s: %v, want %v", what, got, want))
	}
}

// must notes an error.
func (p *pair) must(what string, err error) {
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s: %w", what, err))
	}
}

// check asks a guard, and notes an answer for another reason.
func (p *pair) check(what string, g core.Guard, a core.Attempt, want core.Reason) core.Decision {
	d, err := g.Check(p.ctx, a)
	p.must(what, err)
	if err == nil {
		p.is(what, d.Reason, want)
	}
	return d
}

// settle ends an attempt that was allowed.
func (p *pair) settle(what string, g core.Guard, d core.Decision, end core.Ending) {
	if d.Allowed {
		p.must(what, g.Settle(p.ctx, d, end))
	}
}

// both makes a guard for each of the two processes.
func both[G any](p *pair, makes func(*core.Engine) G) (g [2]G) {
	for i, e := range p.sides {
		g[i] = makes(e)
	}
	return g
}

var pairs int // names the keys of each pair

// together plays a scenario with an old and a new process. ran collects the old side's scripts.
func together(
	t *testing.T, b redistest.Backend, s scenario, old, present map[string]string, oldFirst bool,
	ran *sync.Map,
) error {
	t.Helper()
	pairs++
	p := &pair{ctx: t.Context(), clock: guardtest.NewClock(), rdb: b.Client}
	p.key = fmt.Sprint(b.Prefix, "p", pairs)
	sources := []*substitute{{sources: old, ran: ran}, {sources: present}}
	if !oldFirst {
		slices.Reverse(sources)
	}
	for i, source := range sources {
		rdb := b.NewClient(t)
		rdb.AddHook(source)
		options := []core.Option{core.WithPrefix(p.key), core.WithRefusalMemory(0), core.WithoutBreaker()}
		if s.byClock {
			options = append(options, guardtest.WithClock(p.clock))
		}
		p.sides[i] = guardtest.NewEngineOver(b, rdb, options...)
	}
	s.play(p)
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	for _, e := range p.sides {
		if err := e.Drain(ctx); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	return errors.Join(p.errs...)
}

// mutation changes the layout of a record in all scripts of a guard, so that they agree with each other.
type mutation struct {
	scenario, what string
	files          string   // a pattern
	pairs          []string // what is replaced by what
}

var mutations = []mutation{
	{"sliding window", "fields in another order", "limit/sliding_*", []string{
		"%d', part, birth, units, gone", "%d', part, units, birth, gone",
		"part, birth, units, gone, left, rest = ", "part, units, birth, gone, left, rest = ",
		"l.grain, l.birth, l.sum, l.views = ", "l.grain, l.sum, l.birth, l.views = ",
		"l.grain, l.birth, l.sum)", "l.grain, l.sum, l.birth)"}},
	{"fixed window", "another separator", "limit/fixed_window*", []string{
		"'(%d+) (%d+)'", "'(%d+):(%d+)'", "'%.0f %.0f'", "'%.0f:%.0f'",
		"ends[i] .. ' ' .. units", "ends[i] .. ':' .. units", "'%.0f ', now", "'%.0f:', now"}},
	{"token bucket", "another separator", "limit/token_bucket*", []string{
		"(%-?%d+) (%-?%d+) ", "(%-?%d+)/(%-?%d+) ", "'(%S+) (%S+) (%S+) (%S+)", "'(%-?%d+)/(%-?%d+) (%S+) (%S+)",
		"s .. ' ' .. o", "s .. '/' .. o", "'%d %d'", "'%d/%d'", "'%.0f %.0f'", "'%.0f/%.0f'",
		"'%.0f %.0f %.0f %.0f'", "'%.0f/%.0f %.0f %.0f'"}},
	{"bans", "another separator", "bans/ban", []string{
		"'(%d+) (%d+) (%d+)'", "'(%d+),(%d+),(%d+)'", "'%.0f %.0f %.0f'", "'%.0f,%.0f,%.0f'"}},
	{"votes", "a stored answer renamed", "votes/*", []string{"'v'", "'w'"}},
	{"quota", "another sign", "quota/*", []string{"'='", "'~'", "'^([^=|]+)[=|]+", "'^([^~|]+)[~|]+"}},
	{"red packets", "a field renamed", "redpacket/*", []string{"'total'", "'sum'"}},
	{"idempotency", "fields in another order", "idempotency/*", []string{
		"state, who, what = ", "state, what, who = ", "'^(%a+) (%S+)'", "'^(%a+) %S+ (%S+)'",
		"'run ' .. call .. ' ' .. fingerprint", "'run ' .. fingerprint .. ' ' .. call",
		"call .. ' ' .. fingerprint .. ' ' .. outcome", "fingerprint .. ' ' .. call .. ' ' .. outcome",
		"'^(%a+) ?(%S*)'", "'^(%a+) ?%S* ?(%S*)'"}},
	{"sale", "a field renamed", "seckill/*", []string{"'terms'", "'rules'", "s.terms", "s.rules"}},
	{"semaphore", "leases in seconds", "semaphore/*", []string{
		"math.floor(micro / 1000)", "math.floor(micro / 1000000)", "math.floor(now / 1000)", "math.floor(now / 1000000)",
		"now + lease", "now + lease / 1000"}},
	{"lock", "the fence of another member", "semaphore/*", []string{"'')", "'#')"}},
	{"delay queue", "a state renamed", "delay/*", []string{"'r'", "'w'"}},
	{"budget", "a field renamed", "budget/*", []string{"'p'", "'q'"}},
	{"desk", "another field of the version", "control/*", []string{"'@'", "'#'"}},
	{"waiting room", "a field renamed", "waitingroom/*", []string{"'base'", "'born'"}},
}

func (m mutation) apply(sources map[string]string) (changed map[string]string, found int) {
	changed = map[string]string{}
	for name, source := range sources {
		if ok, _ := filepath.Match(m.files, name); ok {
			mutated := strings.NewReplacer(m.pairs...).Replace(source)
			if mutated != source {
				found++
			}
			source = mutated
		}
		changed[name] = source
	}
	return changed, found
}
