//go:build unix

package edge

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestACommandThatIsKilledLeavesNothing: what the command of -exec had started went on, and each further run left
// some more.
func TestACommandThatIsKilledLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	var data []byte
	for len(data) == 0 { // it may be killed before it has begun
		trouble := shell("sleep 300 & echo $! >"+file+"; wait", time.Second)
		if trouble != "killed after 1s: it wrote nothing" {
			t.Fatal(trouble)
		}
		data, _ = os.ReadFile(file)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	redistest.Eventually(t, patience, func() bool { return syscall.Kill(pid, 0) != nil }, "it still runs")
}
