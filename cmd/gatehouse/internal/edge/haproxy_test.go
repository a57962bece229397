package edge

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// startHAProxy starts HAProxy with the frontend of the guide, as its systemd unit does: with a master, which
// reloads on SIGUSR2. It takes the addresses of clients from the PROXY protocol.
func startHAProxy(t *testing.T, dir, conf, app string) *front {
	t.Helper()
	own := "defaults\n    mode http\n    timeout connect 5s\n    timeout client 1m\n    timeout server 1m\n" +
		"backend app\n    server app " + app + "\n"
	return startFront(t, "haproxy", dir, func(addr string) []string {
		text := own + strings.Replace(conf, "bind :80", "bind "+addr+" accept-proxy", 1)
		path := filepath.Join(dir, "haproxy.cfg")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"-W", "-f", path, "-p", filepath.Join(dir, "pid")}
	})
}

// recipeOfHAProxy is the recipe of the guide for the HAProxy of a folder, and the file of the bans.
func recipeOfHAProxy(t *testing.T) (dir, file string, r recipe) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "banned")
	return dir, file, recipeFor(t, "haproxy-acl", "haproxy", shownFile, file,
		"systemctl reload haproxy", "kill -USR2 $(cat "+filepath.Join(dir, "pid")+")")
}

// reloading has HAProxy reload every few seconds until a condition holds. HAProxy 2.6 forgets a reload that is asked
// for during another one, which on a busy machine takes longer than -every.
func reloading(t *testing.T, dir string, cond func() bool) func() bool {
	t.Helper()
	since := time.Now()
	return func() bool {
		if cond() {
			return true
		}
		if time.Since(since) > 4*time.Second { // longer than a ban of the site, and a second
			since = time.Now()
			pid := 0
			text, err := os.ReadFile(filepath.Join(dir, "pid"))
			if _, bad := fmt.Sscan(string(text), &pid); err == nil && bad == nil { // else it reloads now
				_ = syscall.Kill(pid, syscall.SIGUSR2)
			}
		}
		return false
	}
}

// TestHAProxyShutsBotsOut: the recipe of docs/guides/bans-at-the-edge.md, with a real HAProxy in front of an
// application, for clients of IPv4 and IPv6.
//
// Promise: Behind `gatehouse bans -follow` HAProxy refuses a client within a second of its last strike, and
// lets it in within a second of the end of the ban.
func TestHAProxyShutsBotsOut(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	redistest.Need(t, "haproxy")
	server := redistest.StartServer(t)
	s := startSite(t, server)
	dir, file, recipe := recipeOfHAProxy(t)
	f := (&followed{t: t, file: file}).start(environOf(server), recipe.follows...)
	p := startHAProxy(t, dir, recipe.conf, s.addr)
	for _, bot := range []struct{ from, actor, sameClient, other string }{
		{"203.0.113.7", "203.0.113.7", "203.0.113.7", "203.0.113.8"},
		{"2001:db8::5", "2001:db8::/64", "2001:db8::6", "2001:db8:0:1::5"},
	} {
		is := func(from string, status int) func() bool {
			return reloading(t, dir, func() bool { return p.get(from, "") == status })
		}
		same, other := 0, 0
		f.wantShutOut(s, bot.actor, is(bot.from, http.StatusForbidden), is(bot.from, http.StatusOK))
		for refused := false; !refused; refused = is(bot.from, http.StatusForbidden)() { // else the ban is over
			f.eventually(is(bot.from, http.StatusForbidden), "the bot is refused again")
			same, other = p.get(bot.sameClient, ""), p.get(bot.other, "")
		}
		if same != 403 || other != 200 && other != 429 {
			t.Errorf("%s is banned: %s got %d, %s got %d", bot.actor, bot.sameClient, same, bot.other, other)
		}
	}

	// a connection that stays open belongs to a process of before the reload
	persistent := p.client("203.0.113.9")
	defer persistent.CloseIdleConnections()
	passed := 0
	f.eventually(reloading(t, dir, func() bool {
		status := p.status(persistent, "")
		if f.text() == "203.0.113.9\n" && status == http.StatusTooManyRequests {
			passed++
		}
		return status == http.StatusForbidden
	}), "the client with one connection is refused")
	t.Logf("%d requests passed after the ban was in the file", passed)

	f.wantCleared(reloading(t, dir, func() bool { return p.get("203.0.113.9", "") != http.StatusForbidden }))
}

// TestHAProxyRefusesWhoIsBanned, and nobody else: addresses and networks, with actors beside them that users
// have chosen, and with more bans than the file may have.
func TestHAProxyRefusesWhoIsBanned(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	redistest.Need(t, "haproxy")
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	server := redistest.StartServer(t)
	g := shut(t, backendOf(t, server))
	dir, file, recipe := recipeOfHAProxy(t)
	networks := append(append([]string{}, good...), "192.0.2.0/25")
	f := (&followed{t: t, file: file}).start(environOf(server),
		append(recipe.follows, "-most", "6", "-every", "1s")...)
	p := startHAProxy(t, dir, recipe.conf, app.Listener.Addr().String())
	if status := p.get("203.0.113.7", ""); status != http.StatusOK || f.text() != "" {
		t.Fatalf("nobody is banned: status %d, the file %q", status, f.text())
	}
	for _, actor := range evil {
		if actor != "203.0.113.7/32" { // else the text of nobody's address
			ban1(t, g, actor, 2*time.Hour)
		}
	}
	for _, actor := range networks {
		ban1(t, g, actor, 3*time.Hour)
	}
	ban1(t, g, "198.18.0.1", time.Hour) // is beyond the most
	f.says("left out: 1 ban that end before", 1)
	banned := []string{"203.0.113.7", "198.51.100.0", "198.51.100.255", "2001:db8::1", "2001:db8::ffff:0:0:1",
		"2001:db8:1::5", "64:ff9b::cb00:7107", "192.0.2.127"}
	for _, from := range banned {
		f.eventually(reloading(t, dir, func() bool { return p.get(from, "") == http.StatusForbidden }),
			from+" is refused")
	}
	for _, from := range []string{"203.0.113.6", "203.0.113.8", "198.51.99.255", "198.51.101.0",
		"2001:db8:0:1::1", "2001:db8:1::4", "64:ff9b::cb00:7108", "192.0.2.128", "198.18.0.1", "0.0.0.1", "::2", "203.0.112.7"} {
		if status := p.get(from, ""); status != http.StatusOK {
			t.Errorf("%s, who is not banned: status %d", from, status)
		}
	}
	for _, actor := range networks {
		if err := g.Unban(t.Context(), core.Attempt{Actor: actor}); err != nil {
			t.Fatal(err)
		}
	}
	f.becomes("198.18.0.1\n")
	for _, from := range banned {
		f.eventually(reloading(t, dir, func() bool { return p.get(from, "") == http.StatusOK }), from+" is let in")
	}
	if status := p.get("198.18.0.1", ""); status != http.StatusForbidden {
		t.Errorf("the ban that has a place now: status %d", status)
	}
}
