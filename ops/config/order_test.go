package config_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// TestALimitInFrontOfANarrowerOneIsToldOfFiles: as of rules in Go.
func TestALimitInFrontOfANarrowerOneIsToldOfFiles(t *testing.T) {
	const guards = "guards:\n  org: {sliding_window: {limits: 9/s}}\n  user: {sliding_window: {limits: 2/s}}\n"
	const org, user = "{guard: org, who: {user: org}}", "{guard: user, who: {join: [{user: org}, {user: uid}]}}"
	for rules, lines := range map[string]int{org + ", " + user: 1, user + ", " + org: 0} {
		c, err := config.Parse("rules.yaml", []byte(guards+"rules:\n  api: ["+rules+"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		if _, err := c.Build(gate); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "GH012"); n != lines {
			t.Errorf("%s: %d lines, want %d: %s", rules, n, lines, &log)
		}
	}
}
