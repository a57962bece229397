package edge

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/proxies"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

const (
	guide     = "bans-at-the-edge.md"
	shownFile = "/var/lib/gatehouse/banned" // in the guide
	shownApp  = "127.0.0.1:8080"
)

// recipe is what the guide says for a program: its configuration, and the command beside it.
type recipe struct {
	conf    string
	follows []string // the command
}

// recipeFor reads the recipe of a format from the guide, changed by pairs of an old and a new text.
func recipeFor(t *testing.T, format, language string, changes ...string) recipe {
	t.Helper()
	page := proxies.Page(t, guide)
	command := regexp.MustCompile("(?m)^gatehouse (bans shut -follow -format " + format +
		" .*) -exec '(.*)' (-clear)$").FindStringSubmatch(page)
	if command == nil {
		t.Fatalf("%s has no command for %s", guide, format)
	}
	conf := proxies.Block(t, page, language)
	if strings.Count(conf, "\n") > 15 {
		t.Errorf("%s: the configuration is %q: want 15 lines at most", guide, conf)
	}
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(conf+strings.Join(command, " "), changes[i]) {
			t.Fatalf("%s: the recipe of %s has no %q", guide, format, changes[i])
		}
	}
	changed := strings.NewReplacer(changes...).Replace
	words := strings.Fields(command[1] + " " + command[3])
	for i := range words {
		words[i] = changed(words[i])
	}
	return recipe{changed(conf), append(words, "-exec", changed(command[2]))}
}

// front is a proxy in front of an application, configured as the guide says.
type front struct {
	t    *testing.T
	addr string
	said *guardtest.Output // by the program
}

// rejects is what nginx and HAProxy say of a configuration, or of a file in it, that they do not take.
var rejects = regexp.MustCompile(`\[emerg\]|\[ALERT\].*config`)

// startFront starts a program on a free port. prepare writes its configuration for an address, and returns the
// arguments of the program.
func startFront(t *testing.T, program, home string, prepare func(addr string) (args []string)) *front {
	t.Helper()
	f := &front{t: t, said: new(guardtest.Output)}
	t.Cleanup(func() { // when it has ended
		if said := f.said.String(); rejects.MatchString(said) {
			t.Errorf("%s wrote %s", program, said)
		}
	})
	proxies.OnPort(t, func(addr string) (answers bool) {
		said, answers := proxies.Run(t, home, addr, program, prepare(addr)...)
		if answers {
			f.addr, f.said = addr, said
		}
		return answers
	})
	return f
}

// client returns a client whose connections say, in the PROXY protocol, that they come from an address; none
// if there is no address.
func (f *front) client(from string) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, f.addr)
			if err != nil || from == "" {
				return conn, err
			}
			if netip.MustParseAddr(from).Is4() {
				_, err = fmt.Fprintf(conn, "PROXY TCP4 %s 192.0.2.1 1024 80\r\n", from)
			} else {
				_, err = fmt.Fprintf(conn, "PROXY TCP6 %s 2001:db8:ffff::1 1024 80\r\n", from)
			}
			return conn, err
		}}}
}

// status returns the status of a request with a key, or 0.
func (f *front) status(client *http.Client, key string) int {
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://"+f.addr, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	response, err := client.Do(r)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// get returns the status of a request on a connection of its own: one that is open belongs to a process of
// before the reload.
func (f *front) get(from, key string) int {
	client := f.client(from)
	defer client.CloseIdleConnections()
	return f.status(client, key)
}

// site is an application behind a proxy. It bans who asks faster than once in nearly the length of a ban.
type site struct {
	addr  string
	guard *bans.Guard
}

// strikeBan is the length of the bans of a [site].
const strikeBan = 2 * time.Second

func startSite(t *testing.T, server *redistest.Server) site {
	t.Helper()
	gate := guardtest.NewEngine(backendOf(t, server))
	guard := bans.New(gate, "shut", bans.Options{Refusals: 3, First: strikeBan, Longest: strikeBan})
	rule := pipeline.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.Per(1, strikeBan-100*time.Millisecond)), Bans: guard,
		Who: keyfuncs.IP(keyfuncs.TrustProxies("127.0.0.1"), keyfuncs.ProxyMayBeClient()),
	}
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	app := httptest.NewServer(nethttpmw.HTTP(rule)(handler))
	t.Cleanup(app.Close)
	return site{app.Listener.Addr().String(), guard}
}

// wantShutOut wants a client that asks all the time to be refused, for as long as it is banned, and then to be let
// in. How soon the program is told, [TestABanReachesTheFileAndLeavesIt] shows.
func (f *followed) wantShutOut(s site, actor string, refused, letIn func() bool) {
	f.t.Helper()
	for over := true; over; { // a ban may be over before a busy machine has told it
		f.eventually(refused, actor+" is refused")
		now := time.Now()
		status, err := s.guard.Status(f.t.Context(), core.Attempt{Actor: actor})
		if err != nil {
			f.t.Fatal(err)
		}
		f.eventually(letIn, actor+" is let in")
		over = status.Left == 0
		if began := now.Add(status.Left - strikeBan); !over && time.Since(began) < strikeBan {
			f.t.Errorf("a ban of %v lasted %v", strikeBan, time.Since(began))
		}
	}
}
