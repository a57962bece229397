package edge

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// TestBansOfASlotThatMoves: they stay in the file, and what becomes of them is seen on the new master, also of a
// command that began while the slot was moving. Then the new master fails.
func TestBansOfASlotThatMoves(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	timed.Test(t, time.Second, bansOfASlotThatMoves) // a master that is silent for two seconds is replaced
}

func bansOfASlotThatMoves(t *timed.T) {
	c := redistest.StartCluster(t)
	b := redistest.Backend{Name: "cluster", Client: c.Client(t), Prefix: "gatehouse"}
	g := shut(t, b)
	environ := []string{"REDIS_URL=redis://" + c.Nodes[0].Addr() + "?addr=" + c.Nodes[1].Addr()}
	early := follow(t, environ, "-format", "plain", "-every", "100ms", "-timeout", "5s")
	ban1(t, g, "a", time.Hour)
	early.becomes("a\n")

	slot := redistest.Slot(g.Key(script.Encode("a")))
	from := c.MasterOfSlot(slot)
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	migration := c.BeginMigration(t, slot, from, to)
	migration.MoveKeys(10)
	late := follow(t, environ, "-format", "plain", "-every", "100ms", "-timeout", "5s")
	clitest.Run(t, environ, "", "bans", "shut", "-timeout", "3s").Want(t, 2, "", "1 key: their slot moves")
	migration.Finish()
	for _, f := range []*followed{early, late} {
		f.becomes("a\n")
	}
	redistest.Eventually(t, patience, func() bool {
		return g.Ban(t.Context(), core.Attempt{Actor: "a"}, time.Millisecond) == nil
	}, "the ban ends on the new master")
	for _, f := range []*followed{early, late} {
		f.becomes("")
	}

	old := c.KillMasterOfSlot(slot)
	c.AwaitFailover(slot, old)
	redistest.Eventually(t, patience, func() bool {
		return g.Ban(t.Context(), core.Attempt{Actor: "a"}, time.Hour) == nil
	}, "a ban on the replica that took over")
	for _, f := range []*followed{early, late} {
		f.becomes("a\n")
		f.says("is back", 1)
	}
}

// TestTheFirstFileHasAllBans: a file with a part of them would let in the others, who were shut out before.
func TestTheFirstFileHasAllBans(t *testing.T) {
	t.Parallel()
	all := 50_000
	if !redistest.All() {
		all = 5000 // still more than one call of SCAN
	}
	server := redistest.StartServer(t)
	b := backendOf(t, server)
	g := shut(t, b)
	ban1(t, g, "0", time.Hour)
	record := b.Client.Get(t.Context(), g.Key("0")).Val()
	pipe := b.Client.Pipeline()
	for i := range all {
		pipe.Set(t.Context(), g.Key(fmt.Sprint(i)), record, time.Hour)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := follow(t, environOf(server), "-format", "plain", "-every", "100ms", "-most", fmt.Sprint(all-1))
	if n := strings.Count(f.text(), "\n"); n != all-1 {
		t.Errorf("the first file has %d bans, want %d", n, all-1)
	}
	f.says("left out: 1 ban that end", 1)
	pipe = b.Client.Pipeline()
	for i := range all {
		pipe.Del(t.Context(), g.Key(fmt.Sprint(i)))
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.becomes("")
}

// TestAQuietRedisIsNotAway: without changes it is asked for signs of life.
func TestAQuietRedisIsNotAway(t *testing.T) {
	t.Parallel()
	timed.Test(t, time.Second, aQuietRedisIsNotAway) // which has two seconds for a sign
}

func aQuietRedisIsNotAway(t *timed.T) {
	server := redistest.StartServer(t)
	f := follow(t, environOf(server), "-format", "plain", "-every", "100ms")
	rdb := server.Client(t)
	if err := rdb.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	signs := 3
	if !redistest.All() {
		signs = 1
	}
	pings := regexp.MustCompile(`cmdstat_ping:calls=(\d+),`)
	f.eventually(func() bool {
		calls := pings.FindStringSubmatch(rdb.Info(t.Context(), "commandstats").Val())
		return calls != nil && (len(calls[1]) > 1 || calls[1] >= strconv.Itoa(signs))
	}, "signs of life")
	if code := f.end(syscall.SIGTERM); code != 0 || f.errs.String() != "" {
		t.Errorf("exit code %d, errors %q", code, f.errs.String())
	}
}

// TestBansAfterAFailover of sentinels.
func TestBansAfterAFailover(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	s := redistest.StartSentinels(t, 1)
	b := redistest.Backend{Name: "sentinel", Client: s.Client(t), Prefix: "gatehouse"}
	g := shut(t, b)
	o := s.Options()
	environ := []string{"REDIS_URL=redis://" + o.Addrs[0] + "?master_name=" + o.MasterName}
	f := follow(t, environ, "-format", "plain", "-every", "100ms", "-timeout", "10s")
	ban1(t, g, "a", time.Hour)
	f.becomes("a\n")
	s.Failover()
	redistest.Eventually(t, patience, func() bool {
		return g.Ban(t.Context(), core.Attempt{Actor: "b"}, 2*time.Hour) == nil
	}, "a ban on the new primary")
	f.eventually(func() bool { return strings.HasPrefix(f.text(), "b\n") }, "the ban on the new primary")
	if code := f.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// rulesOfThePage returns the ACL lines of docs/running-on.md for this command: of one server, of a cluster.
func rulesOfThePage(t testing.TB) (rules [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/running-on.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^ACL SETUSER edge (.*)$`).FindAllStringSubmatch(string(page), -1) {
		rules = append(rules, strings.Fields(line[1]))
	}
	if len(rules) != 2 {
		t.Fatalf("docs/running-on.md has %q", rules)
	}
	return rules
}

// setUser makes the user edge.
func setUser(t *testing.T, s *redistest.Server, rules ...string) {
	t.Helper()
	args := []any{"acl", "setuser", "edge"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	if err := s.Client(t).Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestAUserWhoMayNotFollowIsTold which right is missing, and where the page has it, before there is any ban.
func TestAUserWhoMayNotFollowIsTold(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	server, file := redistest.StartServer(t), filepath.Join(t.TempDir(), "banned")
	environ := []string{"REDIS_URL=redis://edge:SECRET@" + server.Addr()}
	for without, refused := range map[string]string{
		"-client|tracking": "CLIENT TRACKING, by which Redis tells of changes: NOPERM this user has no permissions " +
			"to run the 'client|tracking' command",
		"-client|id":    "CLIENT TRACKING, by which Redis tells of changes: NOPERM",
		"-subscribe":    "the 'subscribe' command",
		"resetchannels": "to access one of the channels",
		"-scan":         "the 'scan' command",
		"-get":          "the 'get' command",
		"-time":         "the 'time' command",
		"resetkeys":     "to access one of the keys",
	} {
		setUser(t, server, append(rulesOfThePage(t)[0], without)...)
		a := clitest.Run(t, environ, "", "bans", "shut", "-follow", "-format", "plain", "-out", file,
			"-timeout", "1m")
		a.Want(t, 2, "", "does not say who is banned: ")
		a.Want(t, 2, "", refused)
		a.Want(t, 2, "", "(docs/running-on.md has the ACL lines that allow it)\n")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
	setUser(t, server, append(rulesOfThePage(t)[0], "-ping")...) // is asked for when Redis has been quiet
	f := follow(t, environ, "-format", "plain", "-every", "100ms")
	f.eventually(func() bool {
		return strings.Contains(f.errs.String(), "the 'ping' command (docs/running-on.md has the ACL lines")
	}, "a word about PING")
	ban1(t, shut(t, backendOf(t, server)), "a", time.Hour)
	f.becomes("a\n")
}

// TestTheUserOfThePageMayFollow: the ACL lines of docs/running-on.md for this command allow what it does, on one
// server and on a cluster, and name no command that nobody sends.
func TestTheUserOfThePageMayFollow(t *testing.T) {
	t.Parallel()
	rules := rulesOfThePage(t)
	type servers struct {
		nodes  []*redistest.Server
		rules  []string
		b      redistest.Backend
		suffix string
	}
	single := redistest.StartServer(t)
	all := map[string]servers{"server": {[]*redistest.Server{single}, rules[0], backendOf(t, single), ""}}
	if redistest.All() {
		cluster := redistest.StartCluster(t)
		all["cluster"] = servers{cluster.Nodes, append(append([]string{}, rules[0]...), rules[1]...),
			redistest.Backend{Name: "cluster", Client: cluster.Client(t), Prefix: "gatehouse"},
			"?addr=" + cluster.Nodes[1].Addr()}
	}
	for name, servers := range all {
		t.Run(name, func(t *testing.T) {
			for _, node := range servers.nodes {
				setUser(t, node, servers.rules...)
			}
			environ := []string{"REDIS_URL=redis://edge:SECRET@" + servers.nodes[0].Addr() + servers.suffix}
			f := follow(t, environ, "-format", "plain", "-every", "100ms")
			ban1(t, shut(t, servers.b), "a", time.Hour)
			f.becomes("a\n")
			if said := f.other(); said != "" {
				t.Error(said)
			}
			for _, node := range servers.nodes {
				log, err := node.Client(t).Do(t.Context(), "acl", "log").Slice()
				if err != nil || len(log) > 0 {
					t.Errorf("denied: %v, %v", log, err)
				}
			}
			used := usedBy(t, servers.nodes)
			for _, word := range servers.rules {
				command, ok := strings.CutPrefix(word, "+")
				if ok && !used[command] {
					t.Errorf("nothing sends %s", command)
				}
			}
		})
	}
}

// usedBy returns the commands that were called on servers.
func usedBy(t *testing.T, nodes []*redistest.Server) map[string]bool {
	used := map[string]bool{}
	for _, node := range nodes {
		stats := node.Client(t).Info(t.Context(), "commandstats").Val()
		for _, match := range regexp.MustCompile(`cmdstat_([a-z|]+):`).FindAllStringSubmatch(stats, -1) {
			used[match[1]] = true
		}
	}
	return used
}
