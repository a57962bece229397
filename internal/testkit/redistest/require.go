package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// RequireEnv names the environment variable that, when not empty, turns the
// skips for a missing program into failures. CI sets it. So does GATEHOUSE_ALL.
const RequireEnv = "GATEHOUSE_REQUIRE_REDIS"

const howToInstall = "install it (Debian, Ubuntu: apt-get install redis-server curl nginx caddy haproxy " +
	"nftables iproute2; " +
	"macOS: brew install redis nginx caddy haproxy), or what it proves stays unproven"

var bannerOnce sync.Once

// has reports whether a program is installed.
func has(program string) bool { return Path(program) != "" }

// Path returns where a program is, or "" if it is not installed. Debian has nginx where only root's PATH
// leads.
func Path(program string) string {
	for _, name := range []string{program, "/usr/sbin/" + program} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Need skips the test, or fails it (see [RequireEnv]), unless the programs are installed.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if has(program) {
			continue
		}
		Lacks(t, program+" NOT FOUND: "+howToInstall)
	}
}

// Lacks skips the test, or fails it (see [RequireEnv]), since this machine does not have what it needs.
func Lacks(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(RequireEnv) != "" || All() {
		t.Fatalf("%s (%s or GATEHOUSE_ALL is set)", what, RequireEnv)
	}
	bannerOnce.Do(func() {
		line := strings.Repeat("*", 78)
		fmt.Fprintf(os.Stderr, "%s\n* TESTS ARE SKIPPED: %s\n%s\n", line, what, line)
	})
	t.Skip("SKIPPED: " + what)
}
