package docs_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestAScriptThatHangs is what docs/operations/redis.md does about one: a script that only reads is killed; one
// that has written is not, and a restart loses its writes, and without an append-only file all that is not in
// a snapshot.
func TestAScriptThatHangs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ aof, want string }{{"yes", "before"}, {"no", ""}} {
		s := redistest.StartServer(t, "--busy-reply-threshold", "10", "--appendonly", tt.aof)
		client := func() *redis.Client { // which sends a script once, and waits for it
			options := redistest.OptionsOf(s.Addr()).Simple()
			options.MaxRetries, options.ReadTimeout = -1, 2*time.Minute
			c := redis.NewClient(options)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		admin := client()
		if err := admin.Set(t.Context(), "before", "before", 10*time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		hang := func(before string) (ended chan error) {
			ended, caller := make(chan error, 1), client()
			go func() {
				ended <- caller.Eval(context.Background(), before+" while true do end", []string{"during"}).Err()
			}()
			redistest.Eventually(t, time.Minute, func() bool {
				select {
				case err := <-ended:
					t.Fatalf("the script has ended before anybody got BUSY: %v", err)
				default:
				}
				err := admin.Ping(t.Context()).Err()
				return err != nil && strings.HasPrefix(err.Error(), "BUSY")
			}, "others get BUSY")
			return ended
		}

		replica := redistest.StartServer(t)
		replica.ReplicaOf(s)
		has := func(key string) bool { return replica.Client(t).Exists(t.Context(), key).Val() == 1 }

		ended := hang("")
		if err := admin.ScriptKill(t.Context()).Err(); err != nil {
			t.Fatalf("SCRIPT KILL of a script that only reads: %v", err)
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("the caller of the killed script: %v", err)
		}
		slow, err := admin.SlowLogGet(t.Context(), -1).Result() // a busy machine makes others slow, too
		if err != nil || !slices.ContainsFunc(slow, func(call redis.SlowLog) bool {
			return strings.Contains(strings.Join(call.Args, " "), "while true")
		}) {
			t.Errorf("SLOWLOG GET after SCRIPT KILL: %+v, %v", slow, err)
		}

		ended = hang("redis.call('SET', KEYS[1], '1', 'PX', 600000)")
		if err := admin.ScriptKill(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "UNKILLABLE") {
			t.Errorf("SCRIPT KILL of a script that has written: %v", err)
		}
		if !has("before") || has("during") {
			t.Errorf("a replica has %v, %v", has("before"), has("during"))
		}
		_ = admin.ShutdownNoSave(t.Context()).Err() // the server ends without an answer
		if err := <-ended; err == nil {
			t.Error("the script has ended")
		}
		redistest.Eventually(t, time.Minute, func() bool { return !s.Running() }, "the server has ended")
		s.Start()
		if got := admin.Get(t.Context(), "before").Val(); got != tt.want {
			t.Errorf("appendonly %s: what was answered before is %q, want %q", tt.aof, got, tt.want)
		}
		if n := admin.Exists(t.Context(), "during").Val(); n != 0 {
			t.Errorf("appendonly %s: what the script wrote is there", tt.aof)
		}
	}
}
