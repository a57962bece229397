package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	rulefile "github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// asked is what nginx asks before it passes a request on.
type asked struct {
	name    string
	handler http.Handler // nil: nginx does not ask
	refused bool
}

const gatewayConnections = 64

// gatewayRules is a file with one limit.
const gatewayRules = `
guards:
  site: {fixed_window: {limits: "%s"}}
rules:
  site: [{guard: site, who: {ip: {trust_unix_socket: true}}}]
routes: {/: site}
...
`

// questions returns the handlers that nginx asks, the floor first: one that answers 204 to everything.
func questions(ctx context.Context, dir string, rdb *redis.Client) ([]asked, error) {
	all := []asked{{name: "a handler that answers 204", handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })}}
	for _, q := range []struct {
		name, limits string
		gate         *core.Engine
		refused      bool
	}{
		{"a gateway, memory", "1000000000/day", core.NewMemory(), false},
		{"a gateway, memory, refused", "1/week", core.NewMemory(), true},
		{"a gateway, Redis", "1000000000/day", core.New(rdb, core.WithDeadline(30*time.Second),
			core.WithPrefix("gateway")), false},
		{"a gateway, Redis, refused", "1/week", core.New(rdb, core.WithDeadline(30*time.Second),
			core.WithPrefix("gateway-refused")), true},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(q.name, " ", "-")+".yaml")
		if err := os.WriteFile(path, fmt.Appendf(nil, gatewayRules, q.limits), 0o600); err != nil {
			return nil, err
		}
		live, err := rulefile.Watch(ctx, q.gate, path, rulefile.ForGateway())
		if err != nil {
			return nil, err
		}
		all = append(all, asked{q.name, gateway.Handler(live, gateway.Options{From: gateway.Nginx}), q.refused})
	}
	return append(all, asked{name: "nobody"}), nil
}

// nginxConfig is a server per question. It is that of docs/guides/gateway.md, without the fields for clients.
func nginxConfig(dir, app string, ports []int, sockets []string) string {
	var conf strings.Builder
	if os.Getuid() == 0 {
		conf.WriteString("user root;\n")
	}
	fmt.Fprintf(&conf, "pid %s/pid;\nerror_log %s/errors;\nevents {}\nhttp {\naccess_log off;\n", dir, dir)
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&conf, "%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	fmt.Fprintf(&conf, "upstream app { server %s; keepalive 64; }\n", app)
	for i, port := range ports {
		fmt.Fprintf(&conf, "server {\nlisten 127.0.0.1:%d;\nlocation / {\nproxy_pass http://app;\n"+
			"proxy_http_version 1.1;\nproxy_set_header Connection \"\";\n", port)
		if sockets[i] == "" {
			conf.WriteString("}\n}\n")
			continue
		}
		fmt.Fprintf(&conf, "auth_request /ask;\nauth_request_set $refusal $upstream_http_gatehouse_refusal;\n"+
			"error_page 403 = @refusal;\n}\n"+
			"location = /ask {\ninternal;\nproxy_pass http://ask%d/check;\nproxy_http_version 1.1;\n"+
			"proxy_pass_request_body off;\nproxy_buffer_size 32k;\nproxy_buffers 4 32k;\n"+
			"proxy_set_header Connection \"\";\nproxy_set_header Content-Length \"\";\n"+
			"proxy_set_header X-Original-Method $request_method;\nproxy_set_header X-Original-URI $request_uri;\n"+
			"proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n}\n"+
			"location @refusal {\nrewrite ^ /refusal break;\nproxy_pass http://ask%d;\nproxy_http_version 1.1;\n"+
			"proxy_set_header Connection \"\";\nproxy_set_header Gatehouse-Refusal $refusal;\n}\n}\n"+
			"upstream ask%d { server unix:%s; keepalive 64; }\n", i, i, i, sockets[i])
	}
	conf.WriteString("}\n")
	return conf.String()
}

// gateways measures nginx that asks, beside nginx that asks a handler of one line.
func gateways(t *testing.T, rdb *redis.Client, c config, out *report) error {
	ctx := t.Context()
	dir, err := os.MkdirTemp("", "gateway")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	all, err := questions(ctx, dir, rdb)
	if err != nil {
		return err
	}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(hello))
	}))
	defer app.Close()
	ports, sockets := make([]int, len(all)), make([]string, len(all))
	for i, q := range all {
		if ports[i], err = freePort(ctx); err != nil {
			return err
		}
		if q.handler == nil {
			continue
		}
		sockets[i] = filepath.Join(dir, strconv.Itoa(i))
		l, err := new(net.ListenConfig).Listen(ctx, "unix", sockets[i])
		if err != nil {
			return err
		}
		server := &http.Server{Handler: q.handler, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(l) }()
		defer func() { _ = server.Close() }()
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := nginxConfig(dir, strings.TrimPrefix(app.URL, "http://"), ports, sockets)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return err
	}
	nginx := exec.CommandContext(context.WithoutCancel(ctx), "nginx", "-p", dir, "-e", "stderr",
		"-g", "daemon off;", "-c", conf)
	if err := nginx.Start(); err != nil {
		return err
	}
	defer func() { _, _ = nginx.Process.Signal(syscall.SIGTERM), nginx.Wait() }() // its workers end, too
	redistest.Eventually(t, time.Minute, func() bool {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[0]))
		return err == nil && resp.Body.Close() == nil
	}, "nginx does not answer")
	measured, err := askInTurn(ctx, all, ports, c)
	if err != nil {
		return err
	}
	out.gateways(all, measured)
	return nil
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// asking is what wrk saw in the turns of a question.
type asking struct{ rate, p99 []float64 }

// askInTurn lets wrk request each server in turn. The first round is a warm-up.
func askInTurn(ctx context.Context, all []asked, ports []int, c config) ([]asking, error) {
	measured, order := make([]asking, len(all)), rand.New(rand.NewPCG(c.seed, 1))
	for round := range c.rounds + 1 {
		for _, i := range order.Perm(len(all)) {
			seconds := strconv.Itoa(max(int(c.page/time.Second), 1)) + "s"
			b, err := exec.CommandContext(ctx, "wrk", "-t", "1", "-c", strconv.Itoa(gatewayConnections), "-d", seconds,
				"--latency", fmt.Sprintf("http://127.0.0.1:%d/", ports[i])).CombinedOutput()
			if err != nil {
				return nil, fmt.Errorf("wrk: %w: %s", err, b)
			}
			rate, _, err := readWrk(string(b), all[i].refused)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].name, err)
			}
			late, err := latency(string(b))
			if err != nil {
				return nil, err
			}
			if round > 0 {
				measured[i].rate, measured[i].p99 = append(measured[i].rate, rate), append(measured[i].p99, late)
			}
		}
	}
	return measured, nil
}

var wrkP99 = regexp.MustCompile(`(?m)^\s+99%\s+(\S+)$`)

// latency returns the p99 of an output of wrk, in milliseconds.
func latency(out string) (float64, error) {
	m := wrkP99.FindStringSubmatch(out)
	if m == nil {
		return 0, errors.New("wrk tells no p99: " + out)
	}
	d, err := time.ParseDuration(m[1])
	return float64(d) / float64(time.Millisecond), err
}

// gateways writes what a question costs.
func (r *report) gateways(all []asked, measured []asking) {
	r.line(`
## nginx asks before it passes a request on

Requests per second and p99 of wrk with %d connections, through nginx to a page. Ratios are to nginx that asks
a handler of one line in each round.`, gatewayConnections)
	r.head("nginx asks", "per second", "×", "p99, ms", "×")
	for i, q := range all {
		m, floor := measured[i], measured[0]
		r.row(q.name, fmt.Sprintf("%.0f", median(m.rate)), times(m.rate, floor.rate),
			fmt.Sprintf("%.2f", median(m.p99)), times(m.p99, floor.p99))
	}
}
