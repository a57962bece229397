package redistest

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

func TestMissingRedisSkipsLoudlyOrFails(t *testing.T) {
	run := func(env ...string) (string, error) {
		cmd := child(t, "TestPausedServerNeverAnswers")
		cmd.Env = append(cmd.Env, append(env, "PATH=", ServerEnv+"=", "GATEHOUSE_ALL=", "GATEHOUSE_SOAK=")...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run(RequireEnv + "=")
	if err != nil || !strings.Contains(out, "TESTS ARE SKIPPED: redis-server NOT FOUND") ||
		!strings.Contains(out, "apt-get install redis-server") {
		t.Errorf("not required: %v\n%s", err, out)
	}
	out, err = run(RequireEnv + "=1")
	if exit := new(exec.ExitError); !errors.As(err, &exit) || !strings.Contains(out, "redis-server NOT FOUND") ||
		strings.Contains(out, "SKIP") {
		t.Errorf("required: %v\n%s", err, out)
	}
}
