package shared_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/lua/internal/shared"
)

func TestUpdateWritesBlocksAtTheirIndent(t *testing.T) {
	sources := map[string]string{"shared/clock": "if not now then\n  now = 1\n\n  late = 2\nend\n"}
	got, err := shared.Update(map[string]string{
		"ban/a.lua":  "-- A.\n\n-- shared clock\nan old text\n-- end clock\nreturn now",
		"vote/b.lua": "-- B.\n\nif late then\n  -- shared clock\n  -- end clock\nend\n",
		"vote/c.lua": "-- C shares nothing; -- shared clock\n",
	}, sources)
	want := map[string]string{
		"ban/a.lua": "-- A.\n\n-- shared clock\nif not now then\n  now = 1\n\n  late = 2\nend\n-- end clock\nreturn now",
		"vote/b.lua": "-- B.\n\nif late then\n  -- shared clock\n" +
			"  if not now then\n    now = 1\n\n    late = 2\n  end\n  -- end clock\nend\n",
		"vote/c.lua": "-- C shares nothing; -- shared clock\n",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("%q, %v", got, err)
	}
	again, err := shared.Update(got, sources)
	if err != nil || !maps.Equal(again, want) {
		t.Errorf("a second run changes what the first has written: %q, %v", again, err)
	}
}

// A guard's own block comes before that of all guards, and no other guard's script has it.
func TestABlockOfTheFolderComesFirst(t *testing.T) {
	const used = "-- shared clock\n-- end clock\n"
	sources := map[string]string{"shared/clock": "now = 1\n", "vote/shared/clock": "now = 2\n"}
	scripts := map[string]string{"ban/a.lua": used, "ban/b.lua": used, "vote/a.lua": used, "vote/b.lua": used}
	got, err := shared.Update(scripts, sources)
	if err != nil || !strings.Contains(got["ban/a.lua"], "now = 1") ||
		!strings.Contains(got["vote/a.lua"], "now = 2") {
		t.Errorf("%q, %v", got, err)
	}
	delete(sources, "shared/clock")
	const want = "ban/a.lua: block clock is unknown"
	if _, err := shared.Update(scripts, sources); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	sources["shared/clock"] = "now = 1\n"
	delete(scripts, "vote/b.lua")
	const once = "block vote/shared/clock is used by 1 scripts"
	if _, err := shared.Update(scripts, sources); err == nil || !strings.Contains(err.Error(), once) {
		t.Errorf("%v, want %q", err, once)
	}
}

func TestUpdateReportsEveryMistake(t *testing.T) {
	const used = "-- shared clock\n-- end clock\n"
	for _, c := range []struct{ script, want string }{
		{used + "-- shared cloak\n-- end cloak\n", "vote/a.lua: block cloak is unknown"},
		{used + "-- shared clock\nreturn\n", "vote/a.lua: block clock does not end"},
		{used + "-- end clock\n", "vote/a.lua: block clock ends without a beginning"},
		{"-- shared clock\n-- shared clock\n-- end clock\n", "vote/a.lua: block clock begins inside block clock"},
		{"-- shared clock\n-- end cloak\n-- end clock\n", "vote/a.lua: block cloak ends without a beginning"},
		{"return\n", "block shared/clock is used by 1 scripts"},
	} {
		scripts := map[string]string{"vote/a.lua": c.script, "vote/b.lua": used}
		got, err := shared.Update(scripts, map[string]string{"shared/clock": "now = 1\n"})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.script, err, c.want)
		}
		if got["vote/a.lua"] != c.script {
			t.Errorf("%q has become %q in spite of its mistake", c.script, got["vote/a.lua"])
		}
	}
	_, err := shared.Update(map[string]string{"vote/a.lua": used, "vote/b.lua": used},
		map[string]string{"shared/clock": ""})
	if err == nil || !strings.Contains(err.Error(), "block shared/clock has no text") {
		t.Errorf("an empty source: %v", err)
	}
}
