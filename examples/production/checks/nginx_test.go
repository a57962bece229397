package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNginxTellsTheAppWhoTheClientIs: what a client says about itself does not get through, the blocks are
// closed, and each directive ends. Where nginx is installed, it reads the file itself.
func TestNginxTellsTheAppWhoTheClientIs(t *testing.T) {
	text := read(t, "../nginx/nginx.conf")
	var code []string
	depth := 0
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		code = append(code, line)
		switch line[len(line)-1] {
		case '{':
			depth++
		case '}':
			depth--
		case ';':
		default:
			t.Errorf("line %d does not end: %s", i+1, line)
		}
		if depth < 0 {
			t.Fatalf("line %d closes what is not open", i+1)
		}
	}
	if depth != 0 {
		t.Errorf("%d blocks are not closed", depth)
	}
	all := strings.Join(code, "\n")
	for _, need := range []string{
		"proxy_set_header X-Forwarded-For $remote_addr;", // not $proxy_add_x_forwarded_for: that keeps what clients say
		`proxy_set_header Forwarded "";`, "proxy_pass http://shop;", "proxy_next_upstream error timeout;",
	} {
		if !strings.Contains(all, need) {
			t.Errorf("nginx.conf lacks %s", need)
		}
	}
	if strings.Contains(all, "non_idempotent") {
		t.Error("nginx sends orders again that an app may have begun")
	}
	apps := regexp.MustCompile(`server (app\d):8080 `).FindAllStringSubmatch(all, -1)
	project := system(t)
	for _, app := range apps {
		if _, there := project.Services[app[1]]; !there {
			t.Errorf("compose.yaml has no %s", app[1])
		}
	}
	if len(apps) != 2 {
		t.Errorf("%d apps are behind nginx", len(apps))
	}

	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Log("nginx is not installed, so only the structure was checked")
		return
	}
	local := strings.NewReplacer("app1:", "127.0.0.1:", "app2:", "127.0.0.2:").Replace(text) // it resolves names
	folder := t.TempDir()
	own := "http {\n" // temporary files where this user may write
	for _, module := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		own += module + "_temp_path " + filepath.Join(folder, module) + ";\n"
	}
	local = strings.Replace(local, "http {", own, 1)
	local = strings.Replace(local, "/tmp/nginx.pid", filepath.Join(folder, "pid"), 1)
	file := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(file, []byte(local), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), nginx, "-t", "-c", file).CombinedOutput(); err != nil {
		t.Errorf("nginx -t: %v\n%s", err, out)
	}
}
