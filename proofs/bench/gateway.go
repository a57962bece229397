package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/proxies"
	rulefile "github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// asked is what a proxy asks before it passes a request on.
type asked struct {
	name    string
	handler http.Handler // nil: it does not ask
	refused bool
}

const gatewayConnections = 64

// gatewayRules is a file with one limit.
const gatewayRules = `
guards:
  site: {fixed_window: {limits: "%s"}}
rules:
  site: [{guard: site, who: ip}]
routes: {/: site}
...
`

// questions returns the handlers that a proxy asks, the floor first: one that answers 204 to everything.
func questions(ctx context.Context, dir string, rdb *redis.Client, from gateway.From) ([]asked, error) {
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
			core.WithPrefix("gateway-"+from.String())), false},
		{"a gateway, Redis, refused", "1/week", core.New(rdb, core.WithDeadline(30*time.Second),
			core.WithPrefix("gateway-refused-"+from.String())), true},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(q.name, " ", "-")+".yaml")
		if err := os.WriteFile(path, fmt.Appendf(nil, gatewayRules, q.limits), 0o600); err != nil {
			return nil, err
		}
		live, err := rulefile.Watch(ctx, q.gate, path, rulefile.ForGateway())
		if err != nil {
			return nil, err
		}
		all = append(all, asked{q.name, gateway.Handler(live, gateway.Options{From: from}), q.refused})
	}
	return append(all, asked{name: "nobody"}), nil
}

// gateways measures proxies that ask, configured as docs/guides/gateway.md says, beside ones that ask a
// handler of one line.
func gateways(t *testing.T, rdb *redis.Client, c config, out *report) error {
	for _, program := range proxies.All {
		from := program.From
		all, err := questions(t.Context(), t.TempDir(), rdb, from)
		if err != nil {
			return err
		}
		urls := make([]string, len(all))
		for i, q := range all {
			edits := slices.Clone(keptConnections[from])
			if q.handler == nil {
				q.handler, edits = http.NotFoundHandler(), append(edits, noQuestion[from]...)
			}
			urls[i] = proxies.Start(t, program, q.handler, edits...).URL
		}
		measured, err := askInTurn(t.Context(), all, urls, c)
		if err != nil {
			return err
		}
		out.gateways(program.Name, all, measured)
	}
	return nil
}

// keptConnections are the lines with which a proxy keeps connections to the page, so that the question is
// what costs. noQuestion are those without which it does not ask.
var (
	keptConnections = map[gateway.From][]string{gateway.Nginx: {
		"upstream gatehouse {", "upstream app { server 127.0.0.1:8080; keepalive 64; }\nupstream gatehouse {",
		"proxy_pass http://127.0.0.1:8080;", "proxy_pass http://app;\nproxy_http_version 1.1;\n" +
			"proxy_set_header Connection \"\";",
	}}
	noQuestion = map[gateway.From][]string{
		gateway.Nginx:   {"auth_request /gatehouse-check;", ""},
		gateway.Caddy:   {"reverse_proxy unix", "reverse_proxy /never unix"},
		gateway.HAProxy: {"http-request lua.gatehouse", ""},
	}
)

// asking is what wrk saw in the turns of a question.
type asking struct{ rate, p99 []float64 }

// askInTurn lets wrk request each server in turn. The first round is a warm-up.
func askInTurn(ctx context.Context, all []asked, urls []string, c config) ([]asking, error) {
	measured, order := make([]asking, len(all)), rand.New(rand.NewPCG(c.seed, 1))
	for round := range c.rounds + 1 {
		for _, i := range order.Perm(len(all)) {
			seconds := strconv.Itoa(max(int(c.page/time.Second), 1)) + "s"
			b, err := exec.CommandContext(ctx, "wrk", "-t", "1", "-c", strconv.Itoa(gatewayConnections), "-d", seconds,
				"--latency", urls[i]+"/").CombinedOutput()
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

// gateways writes what the question of a proxy costs.
func (r *report) gateways(proxy string, all []asked, measured []asking) {
	r.line(`
## %s asks before it passes a request on

Requests per second and p99 of wrk with %d connections, through %s to a page. Ratios are to %s that
asks a handler of one line in each round.`, proxy, gatewayConnections, proxy, proxy)
	r.head(proxy+" asks", "per second", "×", "p99, ms", "×")
	for i, q := range all {
		m, floor := measured[i], measured[0]
		r.row(q.name, fmt.Sprintf("%.0f", median(m.rate)), times(m.rate, floor.rate),
			fmt.Sprintf("%.2f", median(m.p99)), times(m.p99, floor.p99))
	}
}
