package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
)

func TestMain(m *testing.M) { clitest.Main(m, Command) }

// allRun is what the doctor says when no script was refused.
var allRun = fmt.Sprintf("%d of %[1]d run, and answer as they should", len(lua.Names()))

// visit runs the doctor, and checks its exit code and texts that it prints.
func visit(t *testing.T, environ []string, url string, code int, texts ...string) {
	t.Helper()
	a := clitest.Run(t, append(environ, "REDIS_URL="+url), "", "doctor", "-timeout", "1m")
	for _, text := range texts {
		a.Want(t, code, text, "")
	}
}

func do(t *testing.T, rdb *redis.Client, words ...any) {
	t.Helper()
	if err := rdb.Do(t.Context(), words...).Err(); err != nil {
		t.Fatalf("%v: %v", words, err)
	}
}

// allow makes the user of some blocks of ACL lines in docs/running-on.md.
func allow(t *testing.T, rdb *redis.Client, blocks ...string) (commands []string) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/running-on.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks {
		lines := regexp.MustCompile("<!-- acl: " + block + " -->\n```text\n((?:.*\n)+?)```\n").FindSubmatch(page)
		if lines == nil {
			t.Fatalf("docs/running-on.md has no block %q", block)
		}
		for line := range strings.Lines(string(lines[1])) {
			var words []any
			for _, word := range strings.Fields(line) {
				words = append(words, word)
				if command, ok := strings.CutPrefix(word, "+"); ok {
					commands = append(commands, command)
				}
			}
			do(t, rdb, words...)
		}
	}
	return commands
}

// wantClean checks that nothing is left but what the application has.
func wantClean(t *testing.T, rdb *redis.Client, keys int64) {
	t.Helper()
	if n := rdb.DBSize(t.Context()).Val(); n != keys {
		t.Errorf("%d keys, want the application's %d: %q", n, keys, rdb.Keys(t.Context(), "*").Val())
	}
}

// TestDoctorOnAServerThatIsWell: with a user of the ACL lines it sees less, and nothing is a problem. It
// calls each command that those lines allow.
func TestDoctorOnAServerThatIsWell(t *testing.T) {
	t.Parallel()
	s := redistest.StartServer(t, "--appendonly", "yes", "--maxmemory", "100mb")
	rdb := s.Client(t)
	do(t, rdb, "set", "gatehouse:window:site:{ann}:log", "of the application", "px", "600000")
	visit(t, nil, "redis://"+s.Addr(), cli.ExitOK, allRun, "noeviction", "ok       tracking     Redis tells",
		"| none | noeviction | append-only file | 0 | 10000 |")
	commands := allow(t, rdb, "limits", "guards", "acked")
	do(t, rdb, "config", "resetstat")
	visit(t, nil, "redis://shop:SECRET@"+s.Addr(), cli.ExitOK, allRun,
		"unseen   memory       INFO does not tell it: NOPERM", "note     tracking     CLIENT TRACKING, by which",
		"give the command a user of its own", "| `CLIENT TRACKING` | unseen | unseen |")
	stats := rdb.Info(t.Context(), "commandstats").Val()
	for _, command := range commands {
		if !strings.Contains(stats, "cmdstat_"+command+":") {
			t.Errorf("%s was not called", command)
		}
	}
	do(t, rdb, "acl", "setuser", "shop", "+info", "+config|get", "+acl|whoami") // as docs/command.md says
	a := clitest.Run(t, nil, "", "doctor", "-timeout", "1m", "-redis", "redis://shop:SECRET@"+s.Addr())
	a.Want(t, cli.ExitOK, "ok       user         shop", "")
	if strings.Contains(a.Out, stateUnseen) {
		t.Errorf("%s", a.Out)
	}
	wantClean(t, rdb, 1)

	var all []examined
	a = clitest.Run(t, nil, "", "doctor", "-timeout", "1m", "-json", "-redis", "redis://"+s.Addr())
	if err := json.Unmarshal([]byte(a.Out), &all); err != nil || len(all) != 1 || all[0].Address != s.Addr() {
		t.Errorf("%v in %+v", err, a)
	}
}

func TestDoctorFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		config  []string
		prepare func(t *testing.T, s *redistest.Server) (user string)
		want    []string
	}{
		{"a command that the user may not call", nil, func(t *testing.T, s *redistest.Server) string {
			allow(t, s.Client(t), "limits", "guards")
			do(t, s.Client(t), "acl", "setuser", "shop", "-xadd")
			return "shop:SECRET@"
		}, []string{" refused: XADD: ", "concerns buckets, budget, control, seckill, votes\n", "| `XADD`, `WAIT`, `CLIENT TRACKING` |"}},
		{"no scripts", nil, func(t *testing.T, s *redistest.Server) string {
			allow(t, s.Client(t), "limits", "guards")
			do(t, s.Client(t), "acl", "setuser", "shop", "-eval", "-evalsha")
			return "shop:SECRET@"
		}, []string{" refused: EVAL: NOPERM", "| 0 of ", " | `EVAL`, `EVALSHA`, `WAIT`, `CLIENT"}},
		{"a command that is renamed", []string{"--rename-command", "ZCARD", ""}, nil,
			[]string{"refused: ZCARD: ERR", "under another name", "ZCARD: ERR unknown command", "| `ZCARD` |"}},
		{"a command that not all need", []string{"--rename-command", "WAIT", ""}, nil, nil},
		{"eviction", []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, nil,
			[]string{"allkeys-lru deletes what was counted", "concerns all guards"}},
		{"a full memory", nil, func(t *testing.T, s *redistest.Server) string {
			do(t, s.Client(t), "config", "set", "maxmemory", "1")
			return ""
		}, []string{"refused: OOM", "raise maxmemory", "all of maxmemory, 1 bytes, is used", "limit, lock"}},
		{"a replica", nil, func(t *testing.T, s *redistest.Server) string {
			s.ReplicaOf(redistest.StartServer(t))
			return ""
		}, []string{"not run: this is a replica", "| 0 of "}},
		{"too few connections", []string{"--maxclients", "20"}, func(t *testing.T, s *redistest.Server) string {
			for range 17 {
				c, err := net.Dial("tcp", s.Addr())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				_, _ = c.Write([]byte("PING\r\n"))
				_, _ = c.Read(make([]byte, 7))
			}
			return ""
		}, []string{": soon others are refused"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, user, code := redistest.StartServer(t, tt.config...), "", cli.ExitProblem
			if tt.prepare != nil {
				user = tt.prepare(t, s)
			}
			if tt.want == nil { // it is not needed
				code, tt.want = cli.ExitOK, []string{"note     commands     WAIT: ERR", "sales with seckill.Acked"}
			}
			visit(t, nil, "redis://"+user+s.Addr(), code, tt.want...)
			wantClean(t, s.Client(t), 0)
		})
	}
}

// TestDoctorTriesTracking, without which gatehouse bans -follow alone does not work: a right that is missing
// is no problem.
func TestDoctorTriesTracking(t *testing.T) {
	t.Parallel()
	s := redistest.StartServer(t)
	rdb := s.Client(t)
	allow(t, rdb, "limits", "guards", "acked")
	for _, tt := range []struct {
		rule string // for the user, after those before
		want string
	}{
		{"-client", "note     tracking     CLIENT TRACKING, by which Redis tells of changes: NOPERM"},
		{"+client|id", "the 'client|tracking' command: gatehouse bans -follow does not work"},
		{"+client|tracking", "note     tracking     NOPERM this user has no permissions to access one of the channels"},
		{"&__redis__:invalidate", "ok       tracking     Redis tells which keys change"},
		{"-set", "unseen   tracking     CLIENT TRACKING is allowed; SET, which tries it: NOPERM"},
	} {
		do(t, rdb, "acl", "setuser", "shop", tt.rule)
		a := clitest.Run(t, nil, "", "doctor", "-timeout", "1m", "-redis", "redis://shop:SECRET@"+s.Addr())
		code := cli.ExitOK
		if tt.rule == "-set" { // which scripts need
			code = cli.ExitProblem
		}
		a.Want(t, code, tt.want, "")
		wantClean(t, rdb, 0)
	}
	none := redistest.StartServer(t, "--rename-command", "CLIENT", "")
	visit(t, nil, "redis://"+none.Addr(), cli.ExitOK, "note     tracking     CLIENT TRACKING, by which Redis "+
		"tells of changes: ERR unknown command", "run `gatehouse bans` without -follow", "| `CLIENT TRACKING` | noeviction |")
}

// TestDoctorOfAServerThatTellsNothing: a proxy may accept CLIENT TRACKING, and then pass on nothing.
func TestDoctorOfAServerThatTellsNothing(t *testing.T) {
	t.Parallel()
	s := redistest.StartServer(t)
	subscription := s.Client(t).Subscribe(t.Context(), "nothing")
	defer func() { _ = subscription.Close() }()
	if _, err := subscription.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := hears(ctx, subscription, "key"); !strings.Contains(fmt.Sprint(err), "changes are not told") {
		t.Error(err)
	}
	_ = subscription.Close()
	if err := hears(t.Context(), subscription, "key"); err == nil {
		t.Error("a closed subscription was heard")
	}
}

func TestDoctorOfAServerThatLoads(t *testing.T) {
	t.Parallel()
	o := redistest.StartOutages(t)
	defer o.Begin("loading")()
	clitest.Run(t, nil, "", "doctor", "-timeout", "1m", "-redis", "redis://"+o.Addr()).
		Want(t, cli.ExitFailed, "", "LOADING")
}

func TestDoctorComparesTheClocks(t *testing.T) {
	t.Parallel()
	s := redistest.StartServer(t)
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		e := &cli.Env{Now: func() time.Time { return time.Now().Add(off) }}
		clitest.Here(t, e, Command, "-timeout", "1m", "-redis", "redis://"+s.Addr()).
			Want(t, cli.ExitProblem, "problem  clock        at least 1h0m0s", "")
	}
}

// TestDoctorOfACluster: each master is examined, with keys in its own slots, by a user of the ACL lines.
func TestDoctorOfACluster(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	c := redistest.StartCluster(t)
	for _, node := range c.Nodes {
		allow(t, node.Client(t), "limits", "guards", "cluster", "acked")
	}
	url := "redis://shop:SECRET@" + c.Nodes[0].Addr()
	a := clitest.Run(t, nil, "", "doctor", "-timeout", "1m", "-cluster", "-redis", url)
	a.Want(t, cli.ExitOK, "Redis", "")
	visit(t, nil, "redis://"+c.Nodes[0].Addr()+"?addr="+c.Nodes[1].Addr(), cli.ExitOK,
		"| none | noeviction | none or snapshots | 1 | 10000 |")
	masters := []*redistest.Server{c.MasterOfSlot(0), c.MasterOfSlot(8000), c.MasterOfSlot(16383)}
	for _, m := range masters {
		a.Want(t, cli.ExitOK, m.Addr()+"\n  ok       server       ", "")
		wantClean(t, m.Client(t), 0)
	}
	if n := strings.Count(a.Out, allRun); n != len(masters) {
		t.Errorf("%d servers were examined", n)
	}
	visit(t, nil, "redis://"+masters[0].Addr(), cli.ExitProblem, "MOVED", "pass -cluster")
	do(t, masters[1].Client(t), "acl", "setuser", "shop", "-asking")
	a = clitest.Run(t, nil, "", "doctor", "-timeout", "1m", "-cluster", "-redis", url)
	a.Want(t, cli.ExitProblem, "problem  commands     ASKING: NOPERM", "")
}

func TestDoctorAsksSentinels(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	s := redistest.StartSentinels(t, 1)
	visit(t, nil, "redis://"+s.Sentinels[0].Addr()+"?master_name=gatehouse", cli.ExitOK,
		"note     replicas     1, and min-replicas-to-write 0", allRun)
}

func TestDoctorOverTLS(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: certificate}, "key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := clitest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	cert, secretKey := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	redistest.StartServer(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", secretKey,
		"--tls-auth-clients", "no")
	visit(t, []string{"SSL_CERT_FILE=" + cert}, "rediss://"+address, cli.ExitOK, allRun)
}

// TestWhatIsTooOld: 6.0 has neither XADD NOMKSTREAM nor ZMSCORE.
func TestWhatIsTooOld(t *testing.T) {
	t.Parallel()
	var old []string
	for _, version := range []string{"5.0.14", "6.0.16", "6.2.0", "6.2", "7.0.15", "10.0.0", "unknown", "6"} {
		if tooOld("Redis", version) {
			old = append(old, version)
		}
	}
	if !slices.Equal(old, []string{"5.0.14", "6.0.16"}) || tooOld("Valkey", "1.0") {
		t.Errorf("too old: %q", old)
	}
}
