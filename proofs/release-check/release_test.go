package main

import (
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestMistakesEndAReleaseWithTheRemedy runs .ci/release in repositories with one mistake each, before
// anything is built. None of them gets a tag.
func TestMistakesEndAReleaseWithTheRemedy(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../../.ci/release")
	if err != nil {
		t.Fatal(err)
	}
	right := map[string]string{
		".ci/release": string(script), "CHANGELOG.md": "## [0.1.0] - 2026-01-02\n",
		"extra/go.mod":     "require github.com/gatehouse-go/gatehouse v0.1.0\n",
		"lua/a/one.lua":    "return 1\n",
		"lua/shared/x.lua": "", "lua/testdata/releases/v0.1.0/a/one.lua": "return 1\n",
	}
	for name, c := range map[string]struct{ file, text, git, want string }{
		"no date":      {"CHANGELOG.md", "## [0.1.0] - Unreleased\n", "", "make release-prepare VERSION=0.1.0"},
		"another date": {"CHANGELOG.md", "## [0.1.0] - 2026-01-01\n", "", "or give DATE=2026-01-01"},
		"a requirement": {"extra/go.mod", "require github.com/gatehouse-go/gatehouse v0.0.9\n", "",
			"extra/go.mod github.com/gatehouse-go/gatehouse v0.0.9"},
		"a script":         {"lua/a/one.lua", "return 2\n", "", "v0.1.0 has other scripts"},
		"not clean":        {"", "", "rm -q --cached CHANGELOG.md", "the checkout is not clean"},
		"some of the tags": {"", "", "update-ref refs/tags/v0.1.0 HEAD", "some of the tags"},
		"an older tag":     {"", "", "update-ref refs/tags/v0.1.0 HEAD~", "release the next patch version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := maps.Clone(right)
			if c.file != "" {
				files[c.file] = c.text
			}
			root := checkout(t, files)
			run := func(name string, args ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), name, args...)
				cmd.Dir = root
				cmd.Env = append(os.Environ(), "VERSION=0.1.0", "RELEASED=extra", "SKIP_CI=1", "DATE=2026-01-02",
					"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
					"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			for _, args := range []string{
				"init -q", "commit -q --allow-empty -m empty", "add -A", "commit -q -m all", c.git,
			} {
				if out, err := run("git", strings.Fields(args)...); err != nil && args != "" {
					t.Fatalf("git %s: %v\n%s", args, err, out)
				}
			}
			before, _ := run("git", "tag")
			out, err := run("bash", ".ci/release")
			after, _ := run("git", "tag")
			if err == nil || !strings.Contains(out, c.want) || before != after {
				t.Errorf("%v, tags %q, want %q in\n%s", err, after, c.want, out)
			}
		})
	}
}
