package script_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

// retrying is a client that says how often it may send a command again.
type retrying struct {
	*scripted
	most int
}

func (c retrying) Options() *redis.Options {
	return &redis.Options{MaxRetries: c.most, ContextTimeoutEnabled: true}
}

// What a claim does after an answer.
const (
	once  = "is sent once"
	twice = "is sent again"
	while = "is sent again while it lasts"
)

// answersOnTheWire are answers of servers and proxies, as they come.
var answersOnTheWire = []struct {
	text   string
	opens  int  // how many of them in a row open a breaker; 0: any number does not
	undone bool // a claim may have been made, so it is taken back
	sent   string
	kind   string // of the event
}{
	// Redis and Valkey, to a client that they do not know
	{"NOAUTH Authentication required.", 1, false, once, "unready"},
	{"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH " +
		"<user> <pass> option can be used to authenticate the client", 1, false, once, "unready"},
	{"ERR Protocol error: unauthenticated multibulk length", 1, false, once, "unready"},
	{"ERR Protocol error: unauthenticated bulk length", 1, false, once, "unready"},
	{"WRONGPASS invalid username-password pair or user is disabled.", 1, false, once, "unready"},
	{"ERR invalid password", 1, false, once, "unready"},
	{"ERR Client sent AUTH, but no password is set", 1, false, once, "unready"},
	{"ERR AUTH <password> called without any password configured for the default user. Are you sure your " +
		"configuration is correct?", 1, false, once, "unready"},
	{"DENIED Redis is running in protected mode because protected mode is enabled", 1, false, once, "unready"},

	// what a user may not do
	{"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand", 1, false, once,
		"unready"},
	{"NOPERM this user has no permissions to run the 'evalsha' command", 1, false, once, "unready"},
	{"NOPERM User shop has no permissions to run the 'eval' command", 1, false, once, "unready"},
	{"NOPERM this user has no permissions to access one of the keys used as arguments", 0, false, once, "script"},
	{"NOPERM User shop has no permissions to access the 'eval:v:{p}' key", 0, false, once, "script"},
	{"NOPERM No permissions to access database", 0, false, once, "script"},
	{"NOPERM ACL failure in script: User shop has no permissions to run the 'hset' command script: 7baf, on " +
		"@user_script:9.", 0, true, once, "script"},
	{"ERR ACL failure in script: User shop has no permissions to run the 'hset' command script: 7baf, on " +
		"@user_script:9.", 0, true, once, "script"},
	{"ERR The user executing the script can't run this command or subcommand script: 7baf, on @user_script:9.",
		0, true, once, "script"},
	{"ERR unknown command 'evalsha', with args beginning with: '7baf' '1' 'k' ", 1, false, once, "unready"},
	{"ERR unknown command `evalsha`, with args beginning with: `7baf`, `1`, `k`, ", 1, false, once, "unready"},
	{"ERR unknown command 'hscan', with args beginning with: 'k' ", 0, false, once, "script"},
	{"ERR Unknown Redis command called from script script: 7baf, on @user_script:9.", 0, true, once, "script"},
	{"ERR Protocol error: invalid bulk length", 0, false, once, "script"},
	{"EXECABORT Transaction discarded because of previous errors.", 0, false, once, "script"},

	// what they cannot do now, before a command or at the first that writes
	{"LOADING Redis is loading the dataset in memory", 1, false, twice, "unready"},
	{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", 1, false, twice,
		"unready"},
	{"NOREPLICAS Not enough good replicas to write.", 1, false, twice, "unready"},
	{"NOREPLICAS Not enough good replicas to write. script: 7baf, on @user_script:9.", 1, false, twice,
		"unready"},
	{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", 1,
		false, once, "unready"},
	{"MISCONF Errors writing to the AOF file: No space left on device script: 7baf, on @user_script:9.", 1,
		false, once, "unready"},
	{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", 1, false, once,
		"unready"},
	{"BUSYGROUP Consumer Group name already exists", 0, true, once, "script"},
	{"READONLY You can't write against a read only replica.", 1, false, twice, "unready"},
	{"READONLY You can't write against a read only replica. script: 7baf, on @user_script:9.", 1, false, twice,
		"unready"},
	{"ERR Error running script (call to f_7baf): @user_script:9: @user_script: 9: -READONLY You can't write " +
		"against a read only replica. ", 1, false, twice, "unready"},
	{"REDIRECT 127.0.0.1:6380", 1, false, once, "unready"},
	{"ERR max number of clients reached", script.BreakerFailures, false, twice, "unready"},
	{"ERR max number of clients + cluster connections reached", script.BreakerFailures, false, twice, "unready"},
	{"OOM command not allowed when used memory > 'maxmemory'.", 0, false, once, "full"},
	{"OOM command not allowed when used memory > 'maxmemory'. script: 7baf, on @user_script:9.", 0, false, once,
		"full"},
	{"ERR Error running script (call to f_7baf): @user_script:9: @user_script: 9: -OOM command not allowed " +
		"when used memory > 'maxmemory'. ", 0, false, once, "full"},
	{"NOSCRIPT No matching script. Please use EVAL.", 0, false, twice, "script"},
	{"WRONGTYPE Operation against a key holding the wrong kind of value script: 7baf, on @user_script:9.", 0,
		true, once, "script"},
	{"ERR user_script:9: attempt to perform arithmetic on a nil value script: 7baf, on @user_script:9.", 0,
		true, once, "script"},

	// a cluster
	{"MOVED 866 127.0.0.1:7001", 0, false, while, "script"},
	{"ASK 866 127.0.0.1:7001", 0, false, while, "script"},
	{"TRYAGAIN Multiple keys request during rehashing of slot", 0, false, while, "script"},
	{"CLUSTERDOWN Hash slot not served", 0, false, while, "unready"},
	{"CLUSTERDOWN The cluster is down", script.BreakerFailures, false, while, "unready"},
	{"CLUSTERDOWN The cluster is down and only accepts read commands", script.BreakerFailures, false, while,
		"unready"},
	{"CROSSSLOT Keys in request don't hash to the same slot", 0, false, once, "script"},

	// envoy
	{"no upstream host", script.BreakerFailures, false, once, "unready"},
	{"upstream failure", script.BreakerFailures, true, twice, "unready"},
	{"upstream protocol error", script.BreakerFailures, true, twice, "unready"},
	{"ERR unknown command 'evalsha', with args beginning with: 7baf 1 k", 1, false, once, "unready"},
	{"unsupported command 'evalsha'", 1, false, once, "unready"},
	{"unsupported command 'hscan'", 0, false, once, "script"},

	// predixy, in its spelling
	{"ERR no server avaliable", script.BreakerFailures, false, once, "unready"},            //nolint:misspell // as it comes
	{"ERR no server connection avaliable", script.BreakerFailures, false, once, "unready"}, //nolint:misspell // as it comes
	{"ERR server connection close", script.BreakerFailures, true, twice, "unready"},
	{"ERR deliver request fail", script.BreakerFailures, true, twice, "unready"},
	{"ERR auth permission deny", 0, false, once, "script"},

	// codis
	{"ERR handle request, slot is not ready, may be offline", script.BreakerFailures, false, once, "unready"},
	{"ERR handle response, backend conn reset", script.BreakerFailures, true, twice, "unready"},

	// twemproxy
	{"ERR Connection refused", script.BreakerFailures, false, once, "unready"},
	{"ERR Connection timed out", script.BreakerFailures, true, twice, "unready"},
	{"ERR Connection reset by peer", script.BreakerFailures, true, twice, "unready"},
	{"ERR Broken pipe", script.BreakerFailures, true, twice, "unready"},

	// a service that sells requests
	{"ERR max daily request limit exceeded. Limit: 10000, Usage: 10000.", 1, true, once, "unready"},
	{"ERR max requests limit exceeded. Limit: 500000, Usage: 500000.", 1, true, once, "unready"},
	{"ERR max concurrent connections exceeded", script.BreakerFailures, false, once, "unready"},
}

// TestWhatAnswersMean: votes without a login were sent and undone as if they might have been counted, since
// the answer to their long commands was not known.
//
// Promise (Outages): A claim that Redis refused before any change is not undone. A claim whose reply may be
// lost is undone.
func TestWhatAnswersMean(t *testing.T) {
	quiet(t)
	seen := map[int]bool{}
	for _, c := range answersOnTheWire {
		seen[script.AnswerOf(answered(c.text))] = true
		t.Run(c.text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBreakerScene(t)
				s.set(fails(answered(c.text)))
				for i := range 10 * script.BreakerFailures {
					err := s.check(t)
					if open := errors.Is(err, core.ErrBreakerOpen); open != (c.opens > 0 && i >= c.opens) {
						t.Fatalf("call %d: %v", i, err)
					}
				}
				if got := s.Events[0].ErrorKind(); got != c.kind {
					t.Errorf("kind %q, want %q", got, c.kind)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				server := &scripted{server: fails(answered(c.text))}
				claim := func(rdb script.Client) (sent int64, err error) {
					before := server.calls.Load()
					e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithoutBreaker())
					s := script.New("claim", "return 1", script.Idempotent)
					_, err = e.Run(t.Context(), s, []string{"{p}"})
					return server.calls.Load() - before, err
				}
				if _, err := claim(retrying{server, -1}); script.NotRun(err) == c.undone {
					t.Errorf("a claim is undone: %t, want %t", !script.NotRun(err), c.undone)
				}
				want := map[string][2]int64{once: {1, 1}, twice: {2, 2}, while: {3, 1000}}[c.sent]
				if sent, _ := claim(retrying{server, 3}); sent < want[0] || sent > want[1] {
					t.Errorf("sent %d times; a claim %s", sent, c.sent)
				}
			})
		})
	}
	for i := range script.Answers() {
		if !seen[i] {
			t.Errorf("no text is answer %d of the table", i)
		}
	}
}
