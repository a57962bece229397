package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

const (
	// countedCalls is how many calls of a subject are counted together.
	countedCalls = 200
	// countedCallers is how many callers there are where calls of one moment are counted.
	countedCallers = 16
	// countedUnits is the limit of the keys whose calls are counted.
	countedUnits = 100
)

// instructions writes how many instructions redis-server executes per call, all of it included: reading the
// command, the script, the reply. valgrind counts them, so nothing else on the machine matters.
func instructions(t *testing.T, _ config, out *report) error {
	withAOF, err := startCounted(t, "--appendonly", "yes", "--appendfsync", "no")
	if err != nil {
		return err
	}
	counted, err := startCounted(t)
	if err != nil {
		return err
	}
	ctx, rdb := t.Context(), counted.rdb
	if err := counted.limits(ctx, out, "On Redis"); err != nil {
		return err
	}
	if err := withAOF.limits(ctx, out, "On Redis with an AOF"); err != nil {
		return err
	}
	for _, g := range []group{saleClaims(ctx, rdb), voteClaims(ctx, rdb), budgets(rdb)} {
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			return err
		}
		out.line("\n## %s", g.name)
		out.head("thousands of instructions of redis-server per call", "allowed", "refused")
		for i, s := range g.subjects(countedUnits, time.Hour) {
			allowed, refused, err := counted.subject(ctx, g, s, fmt.Sprintf("counted-%02d-", i))
			if err != nil {
				return err
			}
			out.row(s.name, unlessZero("%.1f", allowed/1e3), unlessZero("%.1f", refused/1e3))
		}
	}
	if err := counted.moment(ctx, out); err != nil {
		return err
	}
	return counted.steps(ctx, out)
}

// limits writes the instructions per call of limits: of those that are allowed, of those that are refused,
// and of those that are allowed while a unit leaves with each.
func (s *countedServer) limits(ctx context.Context, out *report, name string) error {
	if err := s.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	g := onRedis(ctx, s.rdb)
	steady := g.subjects(countedUnits, steadyWindow)
	out.line("\n## %s", name)
	out.head("thousands of instructions of redis-server per call", "allowed", "refused", "steady")
	for i, of := range g.subjects(countedUnits, time.Hour) {
		allowed, refused, err := s.subject(ctx, g, of, fmt.Sprintf("counted-%02d-", i))
		if err != nil {
			return err
		}
		each := 0.0
		if of.max == countedUnits {
			if each, err = s.steady(ctx, steady[i]); err != nil {
				return err
			}
		}
		out.row(of.name, unlessZero("%.1f", allowed/1e3), unlessZero("%.1f", refused/1e3),
			unlessZero("%.1f", each/1e3))
	}
	return nil
}

// steadyWindow is the window in which half of countedUnits are taken, one after the other.
const steadyWindow = time.Second

// steady counts the instructions per call of a caller who takes units as fast as they leave.
func (s *countedServer) steady(ctx context.Context, of subject) (float64, error) {
	pace := time.NewTicker(2 * steadyWindow / countedUnits)
	defer pace.Stop()
	paced := of
	paced.allow = func(ctx context.Context, key string) (bool, error) {
		<-pace.C
		return of.allow(ctx, key)
	}
	for range countedUnits {
		if err := paced.call(ctx, "steady", true); err != nil {
			return 0, err
		}
	}
	return s.count(ctx, 1, paced, true, func() string { return "steady" })
}

// moment writes the instructions per call of several callers at a time, who are all allowed.
func (s *countedServer) moment(ctx context.Context, out *report) error {
	if err := s.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	g := ofOneMoment(ctx, s.rdb)
	out.line("\n## %s", g.name)
	out.head("thousands of instructions of redis-server per call", strconv.Itoa(countedCallers)+" callers")
	for _, of := range g.subjects(0, 0) {
		if by := strings.Contains(of.name, "shared by"); by || strings.HasPrefix(of.name, "1,000 keys") {
			continue
		}
		each, err := s.count(ctx, countedCallers, of, true, func() string { return hotKey })
		if err != nil {
			return err
		}
		out.row(of.name, fmt.Sprintf("%.1f", each/1e3))
	}
	return nil
}

// steps are what scripts of limits do.
var steps = []struct{ name, do string }{
	{"nothing", ""},
	{"`TIME`, and a number of it", "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2]"},
	{"`LRANGE` of two numbers", "redis.call('LRANGE', KEYS[1], '0', '1')"},
	{"`LINDEX`", "redis.call('LINDEX', KEYS[1], '-1')"},
	{"`LLEN`", "redis.call('LLEN', KEYS[1])"},
	{"`RPUSH`", "redis.call('RPUSH', KEYS[2], '1234567')"},
	{"`GET`", "redis.call('GET', KEYS[3])"},
	{"`SET` with `KEEPTTL`", "redis.call('SET', KEYS[3], '1795406987262836 12', 'KEEPTTL')"},
	{"`SET` with `PX`", "redis.call('SET', KEYS[3], '1795406987262836 12', 'PX', '60000')"},
}

// steps writes the instructions of single steps of the scripts, and those of the reply to a check.
func (s *countedServer) steps(ctx context.Context, out *report) error {
	keys := []string{"steps{a}", "pushed{a}", "text{a}"}
	if err := errors.Join(s.rdb.FlushAll(ctx).Err(), s.rdb.RPush(ctx, keys[0], 1795406987262836, 0, 1, 2).Err(),
		s.rdb.Set(ctx, keys[2], "1795406987262836 12", time.Hour).Err()); err != nil {
		return err
	}
	run := func(script string) (float64, error) {
		step := redis.NewScript(script)
		return s.count(ctx, 1, subject{name: script, allow: func(ctx context.Context, _ string) (bool, error) {
			return true, step.Run(ctx, s.rdb, keys).Err()
		}}, true, func() string { return hotKey })
	}
	const times = 20
	out.line("\n## Steps of a script")
	out.head("thousands of instructions of redis-server", "each")
	nothing := 0.0
	for i, step := range steps {
		took, err := run(fmt.Sprintf("for _ = 1, %d do %s end return 1", times, step.do))
		if err != nil {
			return err
		}
		if i == 0 {
			nothing = took
			continue
		}
		out.row(step.name, fmt.Sprintf("%.1f", (took-nothing)/times/1e3))
	}
	one, err := run("return 1")
	if err != nil {
		return err
	}
	five, err := run("return {1, 99, 1795406987262836, 1, 59723948}")
	if err != nil {
		return err
	}
	out.row("a reply of five numbers, in place of one", fmt.Sprintf("%.1f", (five-one)/1e3))
	return nil
}

// countedServer is a redis-server whose instructions valgrind counts. It writes a file of counts at each
// ECHO, of what it has executed since the one before.
type countedServer struct {
	rdb   *redis.Client
	files string // their names, without their numbers
	read  int
	echo  float64 // instructions of an ECHO itself
}

func startCounted(t *testing.T, flags ...string) (*countedServer, error) {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		return nil, err
	}
	program, dir := redistest.Program(), t.TempDir()
	s := &countedServer{files: filepath.Join(dir, "counts")}
	server := filepath.Join(dir, "redis-server")
	script := fmt.Sprintf("#!/bin/sh\nexec %s --tool=callgrind --dump-before=echoCommand "+
		"--callgrind-out-file=%s %s \"$@\"\n", valgrind, s.files, program)
	if err := os.WriteFile(server, []byte(script), 0o700); err != nil {
		return nil, err
	}
	t.Setenv(redistest.ServerEnv, server)
	s.rdb = redis.NewClient(&redis.Options{
		Addr:        redistest.StartServer(t, append(flags, "--hz", "1")...).Addr(), // hardly any work but ours
		ReadTimeout: 30 * time.Second, PoolSize: 1, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = s.rdb.Close() })
	t.Setenv(redistest.ServerEnv, program) // for the next one
	for range 2 {                          // the first one counts the start as well
		if s.echo, err = s.lap(t.Context()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// subject counts the instructions per call that is allowed, and per call that is refused; zero for those that
// a subject does not refuse within reach.
func (s *countedServer) subject(
	ctx context.Context, g group, of subject, key string,
) (allowed, refused float64, err error) {
	uses := countedUnits / 2
	if g.claims {
		uses = 1
	}
	calls := 0
	allowed, err = s.count(ctx, 1, of, true, func() string { calls++; return key + strconv.Itoa(calls/uses) })
	if err != nil || of.max == 0 || of.max > countedUnits {
		return allowed, 0, err
	}
	for range of.max {
		if _, err := of.allow(ctx, hotKey); err != nil {
			return 0, 0, err
		}
	}
	refused, err = s.count(ctx, 1, of, false, func() string { return hotKey })
	return allowed, refused, err
}

// count calls, and returns the instructions per call. With several callers, key must be safe for concurrent
// use.
func (s *countedServer) count(
	ctx context.Context, callers int, of subject, want bool, key func() string,
) (float64, error) {
	if err := of.call(ctx, key(), want); err != nil { // loads the script
		return 0, err
	}
	if _, err := s.lap(ctx); err != nil {
		return 0, err
	}
	errs := make(chan error, callers)
	for range callers {
		go func() {
			var err error
			for n := 0; n < countedCalls && err == nil; n++ {
				err = of.call(ctx, key(), want)
			}
			errs <- err
		}()
	}
	var failed error
	for range callers {
		failed = cmp.Or(failed, <-errs)
	}
	if failed != nil {
		return 0, failed
	}
	executed, err := s.lap(ctx)
	return max(executed-s.echo, 0) / float64(countedCalls*callers), err
}

// lap returns how many instructions the server has executed since the lap before.
func (s *countedServer) lap(ctx context.Context) (float64, error) {
	if err := s.rdb.Echo(ctx, "lap").Err(); err != nil {
		return 0, err
	}
	s.read++
	name := s.files + "." + strconv.Itoa(s.read)
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("valgrind counts nothing (does this redis-server have symbols?): %w", err)
	}
	return readCounts(text)
}

var countsTotal = regexp.MustCompile(`(?m)^totals: (\d+)$`)

// readCounts returns the total of a file of callgrind's.
func readCounts(text []byte) (float64, error) {
	total := countsTotal.FindSubmatch(text)
	if total == nil {
		return 0, fmt.Errorf("no totals in %d bytes of callgrind's", len(text))
	}
	return strconv.ParseFloat(string(total[1]), 64)
}
