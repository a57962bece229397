package core_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/seckill/buckets"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/core/votes/parts"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/saletest"
	"github.com/gatehouse-go/gatehouse/lua"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// TestACLLinesAreWhatTheGuardsNeed: each block of ACL lines in docs/running-on.md allows what it is for, and
// nothing else. A user runs all operations of the block. What ACL LOG denied is then allowed, until nothing
// is denied. That, and the commands of the scripts, must be the block.
//
// Promise: The ACL lines of [running-on.md](running-on.md) allow what the guards do, and nothing else.
func TestACLLinesAreWhatTheGuardsNeed(t *testing.T) {
	t.Parallel()
	page := readACLPage(t)
	single, cluster := &aclServers{t: t, page: page}, &aclServers{t: t, page: page}
	single.nodes = []*redistest.Server{redistest.StartServer(t)}
	if redistest.All() {
		cluster.moves = redistest.StartCluster(t)
		cluster.nodes = cluster.moves.Nodes
	}

	var names []string // from Redis 7.2 on, a client can tell its name
	if info, err := single.admin(0).Do(t.Context(), "command", "info", "client|setinfo").Slice(); err != nil {
		t.Fatal(err)
	} else if info[0] != nil {
		names = []string{"names"}
		page.want(t, "names", nil, single.denied(page.words("limits"), limitOperations))
	}
	for _, row := range []struct {
		block   string
		servers *aclServers
		before  []string
		scripts []string
		ops     func(*aclRun)
	}{
		{"limits", single, names, commandsOfScripts(t, "limit/*", "bans/*", "core/delete"),
			limitOperations},
		// go-redis sends PING on a subscription in which nothing has happened for 3 s.
		{"guards", single, append(names, "limits"), append(commandsOfScripts(t, "*/*"), "ping"), everyOperation},
		{"cluster", cluster, append(names, "limits", "guards"), nil, operationsOfACluster},
		{"acked", cluster, append(names, "limits", "guards", "cluster"), nil, ackedOperations},
	} {
		if row.servers.nodes == nil {
			continue // left to CI
		}
		before := page.words(row.before...)
		row.scripts = slices.DeleteFunc(row.scripts, func(word string) bool {
			return slices.Contains(before, word)
		})
		if !redistest.All() { // the block is enough; CI shows that nothing of it can go
			if more := single.denied(append(before, page.blocks[row.block]...), row.ops); more != nil {
				t.Errorf("docs/running-on.md: the block %q lacks %q", row.block, more)
			}
			continue
		}
		found := row.servers.denied(append(before, row.scripts...), row.ops)
		page.want(t, row.block, row.scripts, found)
	}
	for name := range page.scripts {
		if redistest.All() && !single.ran[name] && !cluster.ran[name] {
			t.Errorf("no operation has run lua/%s.lua: add one to everyOperation", name)
		}
	}
}

// aclPage is what docs/running-on.md says about ACLs.
type aclPage struct {
	first   []any               // the arguments of the first line behind the user's name
	blocks  map[string][]string // by name: the commands that it allows
	scripts map[string]string   // the SHA-1 of each script
}

// readACLPage reads the blocks that follow a comment <!-- acl: NAME -->.
func readACLPage(t *testing.T) *aclPage {
	t.Helper()
	p := &aclPage{blocks: map[string][]string{}, scripts: map[string]string{}}
	block := regexp.MustCompile("<!-- acl: (\\w+) -->\n```text\n((?:.*\n)+?)```\n")
	for _, m := range block.FindAllStringSubmatch(fileText(t, "../docs/running-on.md"), -1) {
		for line := range strings.Lines(m[2]) {
			words := strings.Fields(line)
			if len(words) < 4 || strings.Join(words[:3], " ") != "ACL SETUSER shop" {
				t.Fatalf("docs/running-on.md: %q", line)
			}
			for _, word := range words[3:] {
				if command, ok := strings.CutPrefix(word, "+"); ok {
					p.blocks[m[1]] = append(p.blocks[m[1]], command)
				} else {
					p.first = append(p.first, word)
				}
			}
		}
	}
	const want = "[reset on >SECRET ~gatehouse:* &gatehouse:*]"
	if fmt.Sprint(p.first) != want || len(p.blocks) != 5 {
		t.Fatalf("docs/running-on.md: %v in %d blocks", p.first, len(p.blocks))
	}
	for _, name := range lua.Names() {
		p.scripts[name] = shaOf(lua.Source(name))
	}
	return p
}

func fileText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func shaOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// words returns the commands that the blocks allow.
func (p *aclPage) words(blocks ...string) (words []string) {
	for _, block := range blocks {
		words = append(words, p.blocks[block]...)
	}
	return words
}

// want fails the test unless the block allows the commands of the scripts and those found, and no others.
func (p *aclPage) want(t *testing.T, block string, scripts, found []string) {
	t.Helper()
	need := slices.Concat(scripts, found)
	slices.Sort(need)
	need = slices.Compact(need)
	if has := slices.Sorted(slices.Values(p.blocks[block])); !slices.Equal(has, need) {
		t.Errorf("docs/running-on.md: the block %q is\n+%s\nand has to be\n+%s", block, strings.Join(has, " +"),
			strings.Join(need, " +"))
	}
}

// commandsOfScripts returns the commands that the scripts call.
func commandsOfScripts(t *testing.T, patterns ...string) (commands []string) {
	t.Helper()
	for _, pattern := range patterns {
		names := slices.DeleteFunc(lua.Names(), func(name string) bool {
			matched, err := path.Match(pattern, name)
			return err != nil || !matched
		})
		if len(names) == 0 {
			t.Fatalf("no script is named %s", pattern)
		}
		for _, name := range names {
			code := regexp.MustCompile(`--.*`).ReplaceAllString(lua.Source(name), "")
			for _, m := range regexp.MustCompile(`redis\.call\('(\w+)'`).FindAllStringSubmatch(code, -1) {
				commands = append(commands, strings.ToLower(m[1]))
			}
		}
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}

// aclServers are one server or a cluster with users who may do little.
type aclServers struct {
	t     *testing.T
	page  *aclPage
	nodes []*redistest.Server
	moves *redistest.ClusterServers // nil: one server
	ran   map[string]bool           // the names of the scripts that were run
}

// aclRun is one run of operations as one user.
type aclRun struct {
	*aclServers
	ctx  context.Context
	rdb  redis.UniversalClient
	gate *core.Engine
	errs []error
}

func (s *aclServers) admin(i int) *redis.Client { return s.nodes[i].Client(s.t) }

// denied runs the operations as a user who may call the commands, again and again, and allows what ACL LOG
// says was denied. It returns what had to be allowed.
func (s *aclServers) denied(allowed []string, ops func(*aclRun)) (found []string) {
	s.t.Helper()
	admins := make([]*redis.Client, len(s.nodes))
	for i := range admins {
		admins[i] = s.admin(i)
	}
	for round := range 30 {
		user := fmt.Sprintf("shop%d", round) // what the last user left to the background has no effect
		rule := append([]any{"acl", "setuser", user}, s.page.first...)
		for _, word := range slices.Concat(allowed, found) {
			rule = append(rule, "+"+word)
		}
		for _, admin := range admins {
			s.do(admin, rule...)
			s.do(admin, "acl", "log", "reset")
			if info := admin.Info(s.t.Context(), "replication").Val(); strings.Contains(info, "role:master") {
				s.do(admin, "flushall")
			}
		}
		errs := s.run(user, ops)
		var now []string
		for _, admin := range admins {
			now = append(now, s.deniedOn(admin, user)...)
			s.do(admin, "acl", "deluser", user)
		}
		if slices.Sort(now); len(now) == 0 {
			if err := errors.Join(errs...); err != nil {
				s.t.Errorf("with %q allowed and nothing denied: %v", slices.Concat(allowed, found), err)
			}
			return found
		}
		found = append(found, slices.Compact(now)...)
	}
	s.t.Fatalf("commands are still denied after 30 rounds; last %q", found)
	return nil
}

func (s *aclServers) do(admin *redis.Client, args ...any) {
	s.t.Helper()
	if err := admin.Do(s.t.Context(), args...).Err(); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}

// deniedOn returns the commands that the server denied the user.
func (s *aclServers) deniedOn(admin *redis.Client, user string) (commands []string) {
	s.t.Helper()
	entries, err := admin.ACLLog(s.t.Context(), 100).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		switch {
		case e.Username != user:
		case e.Reason == "command":
			commands = append(commands, e.Object)
		default:
			s.t.Errorf("ACL LOG: %+v", *e)
		}
	}
	return commands
}

// run runs the operations as the user and returns their errors.
func (s *aclServers) run(user string, ops func(*aclRun)) []error {
	opt := &redis.UniversalOptions{Addrs: []string{s.nodes[0].Addr()}, Username: user, Password: "SECRET",
		ReadTimeout: time.Minute, IsClusterMode: s.moves != nil}
	rdb := redis.NewUniversalClient(opt) // with the commands that go-redis sends by default
	defer func() { _ = rdb.Close() }()
	r := &aclRun{aclServers: s, ctx: s.t.Context(), rdb: rdb}
	r.gate = r.engine()
	limit.NewSlidingWindow(r.gate, "preloaded", limit.PerHour(1))
	r.must(r.gate.Preload(r.ctx))
	for i := range s.nodes {
		s.do(s.admin(i), "script", "flush")
	}
	ops(r)
	for i := range s.nodes {
		s.noteScripts(s.admin(i))
	}
	return r.errs
}

// noteScripts notes which scripts the server knows.
func (s *aclServers) noteScripts(admin *redis.Client) {
	s.t.Helper()
	if s.ran == nil {
		s.ran = map[string]bool{}
	}
	for name, sha := range s.page.scripts {
		known, err := admin.ScriptExists(s.t.Context(), sha).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		s.ran[name] = s.ran[name] || known[0]
	}
}

// engine returns an engine as another process would have it.
func (r *aclRun) engine(options ...core.Option) *core.Engine {
	return core.New(r.rdb, append(options, core.WithDeadline(time.Minute), core.WithoutBreaker(),
		core.WithRefusalMemory(0), core.WithObserver(guardtest.Ignore{}))...)
}

// must remembers an error, unless it says that something is not possible now.
func (r *aclRun) must(err error) {
	if err != nil && !errors.Is(err, core.ErrNotNow) && !errors.Is(err, core.ErrNotFound) {
		r.errs = append(r.errs, err)
	}
}

func (r *aclRun) check(g core.Guard, a core.Attempt) core.Decision {
	d, err := g.Check(r.ctx, a)
	r.must(err)
	return d
}

// settle checks an attempt and ends it.
func (r *aclRun) settle(g core.Guard, a core.Attempt, end core.Ending) {
	if d := r.check(g, a); d.Allowed {
		r.must(g.Settle(r.ctx, d, end))
	}
}

// limitOperations are all operations of rate limits and bans.
func limitOperations(r *aclRun) {
	hour, day := limit.PerHour(3), limit.PerDay(1000)
	for i, limits := range [][]limit.Limit{{hour}, {hour, day}, {day.WithResolution(1440)},
		{hour, day.WithResolution(1440)}} {
		plain := limits
		if i >= 2 { // only a sliding window counts by parts
			plain = []limit.Limit{day}
		}
		for _, g := range []interface {
			core.Guard
			Peek(ctx context.Context, a core.Attempt) (core.Decision, error)
			Wait(ctx context.Context, a core.Attempt) (core.Decision, error)
			Reset(ctx context.Context, a core.Attempt) error
			Refund(ctx context.Context, d core.Decision) error
		}{
			limit.NewSlidingWindow(r.gate, fmt.Sprint("window", i), limits[0], limits[1:]...),
			lease.New(r.gate, fmt.Sprint("lease", i), day),
			limit.NewFixedWindow(r.gate, fmt.Sprint("fixed", i), plain[0], plain[1:]...),
			limit.NewTokenBucket(r.gate, fmt.Sprint("bucket", i), plain[0], plain[1:]...),
		} {
			ann := core.Attempt{Actor: "ann"}
			for range 4 { // the last is refused
				r.check(g, ann)
			}
			_, err := g.Peek(r.ctx, ann)
			r.must(err)
			_, err = g.Wait(r.ctx, core.Attempt{Actor: "eve"})
			r.must(err)
			bob := r.check(g, core.Attempt{Actor: "bob", Cost: 2})
			r.check(g, core.Attempt{Actor: "bob"})
			r.must(g.Refund(r.ctx, bob))
			r.must(g.Refund(r.ctx, bob))
			r.settle(g, core.Attempt{Actor: "cid"}, core.Rollback)
			r.settle(g, core.Attempt{Actor: "dan"}, core.CommitCost(5))
			r.must(g.Reset(r.ctx, ann))
		}
	}
	r.must(r.gate.Drain(r.ctx)) // units in hand come back
	abuse, mallory := bans.New(r.gate, "abuse", bans.Options{Refusals: 1}), core.Attempt{Actor: "mallory"}
	for range 3 {
		_, err := abuse.Strike(r.ctx, mallory)
		r.must(err)
	}
	r.check(abuse, mallory)
	r.must(abuse.Ban(r.ctx, core.Attempt{Actor: "eve"}, time.Hour))
	_, err := abuse.Status(r.ctx, mallory)
	r.must(err)
	r.must(abuse.Unban(r.ctx, mallory))

	// Checks of the same moment, which one run decides. The last does not fit.
	_, err = r.gate.Run(r.ctx, joinedScript, []string{r.gate.Key("joined", "ann")},
		"3/3600000:", "", 1, 1, 2)
	r.must(err)

	// The script of an application, with commands that limits call too.
	own := script.New("own", "return redis.call('SET', KEYS[1], '1', 'PX', '60000')", script.Idempotent)
	_, err = r.gate.Run(r.ctx, own, []string{r.gate.Key("seen", "ann")})
	r.must(err)
}

// everyOperation has all operations of all guards.
func everyOperation(r *aclRun) {
	limitOperations(r)
	voteOperations(r)
	saleOperations(r, "sale", seckill.Options{})

	articles := quota.New(r.gate, "articles", quota.Options{Items: 2, Period: period.Every(24 * time.Hour)})
	for _, item := range []string{"a", "a", "b", "c"} {
		r.check(articles, core.Attempt{Actor: "ann", Item: item})
	}
	r.settle(articles, core.Attempt{Actor: "bob", Item: "a"}, core.Rollback)
	_, _, err := articles.Used(r.ctx, core.Attempt{Actor: "ann"})
	r.must(err)
	r.must(articles.Reset(r.ctx, core.Attempt{Actor: "ann"}))

	semaphoreOperations(r)
	lockOperations(r)
	delayOperations(r)

	pay := idempotency.New(r.gate, "pay", idempotency.Options{})
	order := core.Attempt{Actor: "ann", ID: "o1", Resource: "order"}
	r.settle(pay, order, core.Commit)
	r.check(pay, order)
	r.settle(pay, core.Attempt{Actor: "ann", ID: "o2", Resource: "order"}, core.Rollback)
	r.must(pay.Reset(r.ctx, order))

	room := waitingroom.New(r.gate, "room", waitingroom.Options{Capacity: 1,
		Secrets: [][]byte{[]byte("a secret of sixteen bytes")}})
	inside := r.check(room, core.Attempt{Actor: "ann"})
	r.check(room, core.Attempt{Actor: "bob"})
	_, err = room.Peek(r.ctx)
	r.must(err)
	r.must(room.Pause(r.ctx))
	r.must(room.Leave(r.ctx, inside))

	calls := budget.New(r.gate, "calls", budget.Options{Levels: []string{"org"},
		Find: func([]string) ([]budget.Limit, error) {
			return []budget.Limit{{Max: 2, Window: time.Hour}, {Max: 9, Period: period.Daily(time.UTC)}}, nil
		}})
	acme := core.Attempt{Actor: "acme"}
	r.must(calls.Refund(r.ctx, r.check(calls, acme)))
	_, err = calls.Ended(r.ctx, acme)
	r.must(err)
	_, _, err = calls.Export(r.ctx, acme, 0)
	r.must(err)
	_, err = calls.Restore(r.ctx, acme, time.Now(), 1, "ops", "")
	r.must(err)

	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	desk := control.New(ctx, r.gate, "desk")
	r.must(desk.Decide(r.ctx, control.Decision{Kind: control.List, Name: "l", Of: "x", Value: "in"}, "ops", ""))
	desk.Budget(calls)
	paused := control.Decision{Kind: control.Pause, Name: "calls", Of: "acme", Value: "on"}
	r.must(desk.Decide(r.ctx, paused, "ops", ""))
	for _, about := range []control.Decision{{}, paused} {
		_, err = desk.Decided(r.ctx, about)
		r.must(err)
		_, err = desk.Audit(r.ctx, about)
		r.must(err)
	}
	lost := redis.Cmdable(r.admin(0))
	if r.moves != nil {
		lost = r.moves.Client(r.t)
	}
	r.must(lost.Del(r.ctx, desk.Key("desk", "root")).Err()) // it is put back
	r.must(desk.Decide(r.ctx, control.Decision{Kind: control.List, Name: "l", Of: "y", Value: "in"}, "ops", ""))

	gifts := redpacket.New(r.gate, "gift", redpacket.Options{})
	_, err = gifts.Create(r.ctx, "p1",
		redpacket.Packet{Total: 100, Shares: 2, Expires: time.Now().Add(time.Hour)})
	r.must(err)
	for _, user := range []string{"ann", "bob", "cid"} {
		r.check(gifts, core.Attempt{Actor: user, Resource: "p1"})
	}
	_, err = gifts.Refund(r.ctx, "p1")
	r.must(err)
	_, err = gifts.Verify(r.ctx, "p1")
	r.must(err)
}

// semaphoreOperations are all operations of semaphores, those of two processes among them.
func semaphoreOperations(r *aclRun) {
	const forbidden = 5 * time.Second // for which a call is awaited that a user may be forbidden to make
	options := semaphore.Options{Max: 1, Lease: time.Second, Wait: time.Minute}
	exports, others := semaphore.New(r.gate, "exports", options), semaphore.New(r.engine(), "exports", options)
	first := r.check(exports, core.Attempt{Actor: "ann"})
	waited := make(chan core.Decision, 1)
	go func() {
		d, err := others.Check(r.ctx, core.Attempt{Actor: "bob"})
		r.must(err)
		waited <- d
	}()
	admin, often := r.admin(0), time.NewTicker(time.Millisecond)
	defer often.Stop()
	for begun := time.Now(); len(waited) == 0 && time.Since(begun) < forbidden; <-often.C {
		state, _ := exports.Peek(r.ctx, core.Attempt{}) // it may be forbidden
		if state.Waiting > 0 && len(admin.PubSubChannels(r.ctx, "*").Val()) > 0 {
			break
		}
	}
	if first.Allowed {
		r.must(exports.Settle(r.ctx, first, core.Commit))
	}
	second := <-waited
	if second.Allowed { // else a command is forbidden
		held, stop := others.Hold(r.ctx, second)
		defer stop()
		_, err := exports.Evict(r.ctx, core.Attempt{Actor: "bob"})
		r.must(err)
		select {
		case <-held.Done(): // by a renewal
		case <-time.After(forbidden):
		}
	}
	r.must(core.Drain(r.ctx))
}

// lockOperations are all operations of locks. Those of lines are as with semaphores, and need no more.
func lockOperations(r *aclRun) {
	g := lock.New(r.gate, "account", lock.Options{Lease: time.Second, Wait: 20 * time.Millisecond})
	a := core.Attempt{Actor: "ann", Resource: "a7"}
	first := r.check(g, a)
	r.check(g, core.Attempt{Actor: "bob", Resource: "a7"}) // waits
	if first.Allowed {
		_ = g.Extend(r.ctx, first) // it may be lost, where a command is forbidden
		r.must(g.Settle(r.ctx, first, core.Commit))
	}
	r.check(g, a)
	_, err := g.Peek(r.ctx, "a7")
	r.must(err)
	_, err = g.Break(r.ctx, "a7")
	r.must(err)
	r.must(core.Drain(r.ctx))
}

// delayOperations are all operations of queues.
func delayOperations(r *aclRun) {
	tasks := delay.New(r.gate, "tasks", delay.Options{MaxTries: 1})
	for _, id := range []string{"a", "b", "c", "d"} {
		_, err := tasks.Schedule(r.ctx, id, time.Time{}, []byte("payload"))
		r.must(err)
	}
	r.must(tasks.Reschedule(r.ctx, "d", time.Now().Add(time.Hour)))
	r.must(tasks.Cancel(r.ctx, "d"))
	claimed, err := tasks.Claim(r.ctx, 3, 0)
	r.must(err)
	for i, task := range claimed { // none where a command is forbidden
		task, err = tasks.Extend(r.ctx, task, time.Minute)
		r.must(err)
		if i == 0 {
			r.must(tasks.Ack(r.ctx, task, []byte("result")))
		} else {
			r.must(tasks.Nack(r.ctx, task, "no", 0))
		}
	}
	r.must(tasks.Discard(r.ctx, "b"))
	r.must(tasks.Retry(r.ctx, "c"))
	_, err = tasks.Find(r.ctx, "a")
	if !errors.Is(err, core.ErrNotFound) {
		r.must(err)
	}
	_, err = tasks.Peek(r.ctx, delay.Dead, 10)
	r.must(err)
	short, cancel := context.WithCancel(r.ctx)
	cancel()
	_, err = tasks.Claim(short, 1, 0) // it is given back
	if err == nil {
		r.must(errors.New("a claim whose context is over is no error"))
	}
	drain, cancel := context.WithTimeout(r.ctx, time.Second) // it is tried again where a command is forbidden
	defer cancel()
	_ = core.Drain(drain)
}

// voteOperations are all operations of polls, in one part and in several.
func voteOperations(r *aclRun) {
	for i, poll := range []votes.Poll{
		{Change: true, Retract: true}, {PerVoter: 3, PerDay: 2, Day: period.Daily(time.UTC)},
	} {
		g := parts.New(r.gate, fmt.Sprint("poll", i), 1+i, votes.Options{Poll: poll, Audit: true})
		for n, item := range []string{"red", "blue", "red"} {
			r.check(g, core.Attempt{Actor: "ann", Resource: "p", Item: item, ID: fmt.Sprint("o", n)})
			r.check(g, core.Attempt{Actor: fmt.Sprint("voter", n), Resource: "p", Item: item})
		}
		r.settle(g, core.Attempt{Actor: "bob", Resource: "p", Item: "red"}, core.Rollback)
		r.settle(g, core.Attempt{Actor: "cid", Resource: "p", Item: "red", ID: "kept"}, core.Commit)
		if poll.Retract {
			_, err := g.Retract(r.ctx, core.Attempt{Actor: "ann", Resource: "p", Item: "red"})
			r.must(err)
		}
		_, err := g.Tally(r.ctx, "p")
		r.must(err)
		_, err = g.Top(r.ctx, "p", 2)
		r.must(err)
		_, _, err = g.Audit(r.ctx, "p", "", 10)
		r.must(err)
		voided := 0
		_, err = g.Void(r.ctx, "p",
			votes.VoidOptions{Match: func(votes.Event) bool { voided++; return voided == 1 }})
		r.must(err)
		r.onEach("*:tally", func(admin *redis.Client, key string) { admin.HIncrBy(r.ctx, key, "red", 1) })
		_, err = g.Repair(r.ctx, "p")
		r.must(err)
	}
}

// onEach does something to all keys of a pattern, so that there is something to repair.
func (r *aclRun) onEach(pattern string, f func(admin *redis.Client, key string)) {
	for i := range r.nodes {
		admin := r.admin(i)
		for _, key := range admin.Keys(r.ctx, pattern).Val() {
			f(admin, key) // a replica refuses it
		}
	}
}

// saleOperations are all operations of sales, in one bucket and in several.
func saleOperations(r *aclRun, name string, options seckill.Options) {
	for item, kind := range map[string]func(e *core.Engine) saletest.Sales{
		"tv": func(e *core.Engine) saletest.Sales { return seckill.New(e, name, options) },
		"phone": func(e *core.Engine) saletest.Sales {
			return buckets.New(e, name+"-spread", buckets.Options{Options: options, Buckets: 2})
		},
	} {
		g := kind(r.gate)
		for range 2 {
			_, err := g.Open(r.ctx, item, seckill.Sale{Stock: 16, PerBuyer: 16})
			r.must(err)
		}
		buy := func(n int) core.Attempt {
			return core.Attempt{Actor: fmt.Sprint("buyer", n), Resource: item, ID: fmt.Sprint("o", n)}
		}
		r.settle(g, buy(0), core.Commit)
		if item == "tv" { // attempts of the same moment, which one run decides
			var keys []string
			for _, field := range []string{"sale", "buyers", "holds", "reservations", "outbox"} {
				keys = append(keys, g.Key(item, field))
			}
			if options.NoOutbox {
				keys = keys[:4]
			}
			_, err := r.gate.Run(r.ctx, reserveScript, keys, 100, "", "o90", "buyer90", 1, "c90", "o91", "buyer91", 1,
				"c91")
			r.must(err)
		}
		r.check(g, buy(4))
		// A process that finds little left of a root's TTL renews what its change does not touch.
		r.onEach(fmt.Sprintf("*:seckill:%s:{%s}:sale", g.Name(), item), func(admin *redis.Client, key string) {
			admin.PExpire(r.ctx, key, time.Hour)
		})
		_, err := kind(r.engine()).Confirm(r.ctx, buy(4))
		r.must(err)
		r.settle(g, buy(1), core.Rollback)
		r.check(g, buy(2))
		r.check(g, buy(2))
		_, err = g.Confirm(r.ctx, buy(2))
		r.must(err)
		r.check(g, buy(3))
		_, err = g.Cancel(r.ctx, buy(3))
		r.must(err)
		many := buy(5)
		many.Cost = 9 // more than half of all, so one bucket borrows
		r.check(g, many)
		for n := range 6 { // more than there are
			r.check(g, buy(10+n))
		}
		for range 2 {
			_, err = g.Restock(r.ctx, item, "r1", 3)
			r.must(err)
		}
		_, err = g.Sweep(r.ctx, item)
		r.must(err)
		_, err = g.Status(r.ctx, item)
		r.must(err)
		_, err = saletest.Verify(g, item)
		r.must(err)
		r.onEach("*:seckill:*:buyers", func(admin *redis.Client, key string) { admin.Del(r.ctx, key) })
		_, err = g.Repair(r.ctx, item)
		r.must(err)
		_, err = g.Events(r.ctx, item, "", 10)
		r.must(err)
		r.must(g.Close(r.ctx, item))
		r.must(g.Discard(r.ctx, item))
	}
}

// operationsOfACluster are every operation, and a limit while its slot moves.
func operationsOfACluster(r *aclRun) {
	everyOperation(r)
	g := limit.NewSlidingWindow(r.gate, "moves", limit.PerHour(3))
	ann := core.Attempt{Actor: "ann"}
	r.check(g, ann)
	slot := redistest.Slot("{ann}")
	from, to := r.moves.MasterOfSlot(slot), r.moves.MasterOfSlot(0)
	if from == to {
		to = r.moves.MasterOfSlot(16383)
	}
	m := r.moves.BeginMigration(r.t, slot, from, to)
	for m.MoveKeys(100) > 0 {
	}
	r.check(g, ann)
	m.Finish()
}

// ackedOperations are those of a cluster and of a sale that waits for replicas.
func ackedOperations(r *aclRun) {
	operationsOfACluster(r)
	saleOperations(r, "acked", seckill.Options{Durability: seckill.Acked})
}
