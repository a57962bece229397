package edge

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/gatehouse-go/gatehouse/internal/testkit/proxies"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// startNginx starts nginx with a configuration in which it listens on port 80. dir is its folder.
func startNginx(t *testing.T, dir, conf string) *front {
	t.Helper()
	return startFront(t, "nginx", dir, func(addr string) []string {
		text := proxies.NginxConf(dir, strings.Replace(conf, "listen 80", "listen "+addr, 1))
		if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return append(nginxArgs(dir), "-g", "daemon off;")
	})
}

func nginxArgs(dir string) []string {
	return []string{"-p", dir, "-c", filepath.Join(dir, "nginx.conf")}
}

// TestNginxShutsABotOut: the recipe of docs/guides/bans-at-the-edge.md, with a real nginx in front of an
// application.
//
// Promise: Behind `gatehouse bans -follow` nginx refuses a client within a second of its last strike, and
// lets it in within a second of the end of the ban.
func TestNginxShutsABotOut(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	redistest.Need(t, "nginx")
	server := redistest.StartServer(t)
	s := startSite(t, server)
	dir := t.TempDir()
	file := filepath.Join(dir, "banned")
	recipe := recipeFor(t, "nginx-geo", "nginx", shownFile, file, shownApp, s.addr, "nginx -s reload",
		redistest.Path("nginx")+" "+strings.Join(nginxArgs(dir), " ")+" -s reload")
	f := (&followed{t: t, file: file}).start(environOf(server), recipe.follows...)
	n := startNginx(t, dir, recipe.conf)
	refused := func() bool { return n.get("", "") == http.StatusForbidden }
	f.wantShutOut(s, "127.0.0.1", refused, func() bool { return n.get("", "") == http.StatusOK })
	f.eventually(refused, "nginx refuses the bot again")
	f.wantCleared(func() bool { return !refused() })
}

// TestNginxReadsWhatUsersChoose: each actor of a map is refused, and nobody else, whatever characters they have.
func TestNginxReadsWhatUsersChoose(t *testing.T) {
	t.Parallel()
	redistest.Need(t, "nginx")
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	p := formatNamed("nginx-map").page(bansOf(evil...), len(evil), time.Now())
	dir := t.TempDir()
	file := filepath.Join(dir, "banned")
	if err := replace(file, p.text); err != nil {
		t.Fatal(err)
	}
	n := startNginx(t, dir, recipeFor(t, "nginx-geo", "nginx", shownFile, file, shownApp,
		app.Listener.Addr().String(), "geo $banned", "map_hash_bucket_size 128;\nmap $http_x_api_key $banned").conf)
	tried := 0
	for actor := range inPage(t, formatNamed("nginx-map"), p.text) {
		ascii := !strings.ContainsFunc(actor, func(r rune) bool { return r > unicode.MaxASCII })
		if !ascii || strings.TrimSpace(actor) != actor {
			continue // not in a header
		}
		tried++
		if status := n.get("", actor); status != http.StatusForbidden {
			t.Errorf("%q: status %d", actor, status)
		}
	}
	for _, key := range []string{"", "ann", "x", "1", "x.example", `\\default`, "0"} {
		if status := n.get("", key); status != http.StatusOK {
			t.Errorf("%q, who is not banned: status %d", key, status)
		}
	}
	if tried < 25 {
		t.Errorf("only %d actors were tried", tried)
	}
}
