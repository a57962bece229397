package everyscript_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/everyscript"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestEveryScriptIsRunAndEachOfItsCommands: who adds a script, or a command to one, adds a step.
//
// Promise: `gatehouse doctor` runs every script and each of its commands, and leaves no key. It names the
// guards that a missing command concerns.
func TestEveryScriptIsRunAndEachOfItsCommands(t *testing.T) {
	rdb := redistest.StartServer(t).Client(t)
	unrun := lua.Names()
	for _, step := range everyscript.Steps() {
		take(t, rdb, step)
		unrun = slices.DeleteFunc(unrun, func(name string) bool { return name == step.Script })
	}
	if len(unrun) > 0 {
		t.Errorf("no step runs %q: add one to Steps", unrun)
	}
	stats := rdb.Info(t.Context(), "commandstats").Val()
	for _, name := range lua.Names() {
		code := regexp.MustCompile(`--.*`).ReplaceAllString(lua.Source(name), "")
		for _, m := range regexp.MustCompile(`redis\.call\('(\w+)'`).FindAllStringSubmatch(code, -1) {
			if command := strings.ToLower(m[1]); !strings.Contains(stats, "cmdstat_"+command+":") {
				t.Errorf("no step makes lua/%s.lua call %s", name, m[1])
			}
		}
	}
}

// TestEveryScriptRunsEverywhere: on a cluster, where a key that is not declared or has another tag is an error,
// and on miniredis.
func TestEveryScriptRunsEverywhere(t *testing.T) {
	t.Run("cluster", func(t *testing.T) {
		rdb := redistest.StartCluster(t).Client(t)
		for _, step := range everyscript.Steps() {
			take(t, rdb, step)
		}
	})
	t.Run("miniredis", func(t *testing.T) {
		m := miniredis.RunT(t)
		m.ClockTTL(true)
		rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		for _, step := range everyscript.Steps() { // its order of fields, and its last microsecond, are its own
			err := rdb.Eval(t.Context(), lua.Source(step.Script), step.Keys, step.Args).Err()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Errorf("%s %q: %v", step.Script, step.Args, err)
			}
		}
	})
}

// take takes a step, and compares the answer.
func take(t *testing.T, rdb redis.UniversalClient, step everyscript.Step) {
	t.Helper()
	reply, err := rdb.Eval(t.Context(), lua.Source(step.Script), step.Keys, step.Args).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%s %q: %v", step.Script, step.Args, err)
	}
	if got := everyscript.Text(reply); !step.Answered(got) {
		t.Errorf("%s %q: %q, want %q", step.Script, step.Args, got, step.Answer)
	}
	redistest.Linger(t, rdb, step.Keys...) // most steps say what time it is
}
