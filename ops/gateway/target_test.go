package gateway_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// TestClientsHearOfNoOption: a client was told to see Options.EncodedSlashes, which it cannot set. The operator is
// told of it, once a minute, whatever clients send.
func TestClientsHearOfNoOption(t *testing.T) {
	for target, c := range map[string]struct{ client, operator string }{
		"/a%2Fb":  {`the path "/a%2Fb" has an encoded slash, which some read as a slash.`, "Options.EncodedSlashes, -encoded-slashes"},
		"/a;b":    {`the path "/a;b" has a semicolon, at which some end a segment.`, "Options.PathParameters, -path-parameters"},
		"/a%5Cb":  {`the path "/a%5Cb" has a backslash, which some read as a slash.`, ""},
		"/a%00":   {`the path "/a%00" has a control character or a space.`, ""},
		"/a%zz":   {`the path "/a%zz" has a % that is no escape.`, ""},
		"/a#b":    {`the path "/a#b" has a #, at which some end the path.`, ""},
		"no path": {`the path "no path" does not begin with a slash.`, ""},
	} {
		var logged guardtest.Output
		logger := slog.New(slog.NewTextHandler(&logged, nil))
		live, _ := watch(t, core.NewMemory(core.WithLogger(logger)), memoryRules)
		p := &proxy{gateway.HAProxy, gateway.Handler(live, gateway.Options{From: gateway.HAProxy})}
		for range 3 {
			resp := p.ask("GET", target)
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusBadRequest || string(body) != "Bad Request: "+c.client+"\n" {
				t.Errorf("%s: %d %q", target, resp.StatusCode, body)
			}
		}
		if text := logged.String(); c.operator == "" && text != "" ||
			c.operator != "" && (strings.Count(text, "\n") != 1 || !strings.Contains(text, c.operator)) {
			t.Errorf("%s: %q: want %q", target, text, c.operator)
		}
	}
}

const memoryRules = `
guards:
  site: {sliding_window: {limits: "1000/h"}}
rules:
  site:
    - {guard: site, who: ip}
routes:
  /: site
...
`
