package shared_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/lua/internal/shared"
)

func TestUpdateWritesBlocksAtTheirIndent(t *testing.T) {
	sources := map[string]string{"clock": "if not now then\n  now = 1\n\n  late = 2\nend\n"}
	got, err := shared.Update(map[string]string{
		"a.lua": "-- A.\n\n-- shared clock\nan old text\n-- end clock\nreturn now",
		"b.lua": "-- B.\n\nif late then\n  -- shared clock\n  -- end clock\nend\n",
		"c.lua": "-- C shares nothing; -- shared clock\n",
	}, sources)
	want := map[string]string{
		"a.lua": "-- A.\n\n-- shared clock\nif not now then\n  now = 1\n\n  late = 2\nend\n-- end clock\nreturn now",
		"b.lua": "-- B.\n\nif late then\n  -- shared clock\n" +
			"  if not now then\n    now = 1\n\n    late = 2\n  end\n  -- end clock\nend\n",
		"c.lua": "-- C shares nothing; -- shared clock\n",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("%q, %v", got, err)
	}
	again, err := shared.Update(got, sources)
	if err != nil || !maps.Equal(again, want) {
		t.Errorf("a second run changes what the first has written: %q, %v", again, err)
	}
}

func TestUpdateReportsEveryMistake(t *testing.T) {
	const used = "-- shared clock\n-- end clock\n"
	for _, c := range []struct{ script, want string }{
		{used + "-- shared cloak\n-- end cloak\n", "a.lua: block cloak is unknown"},
		{used + "-- shared clock\nreturn\n", "a.lua: block clock does not end"},
		{used + "-- end clock\n", "a.lua: block clock ends without a beginning"},
		{"-- shared clock\n-- shared clock\n-- end clock\n", "a.lua: block clock begins inside block clock"},
		{"-- shared clock\n-- end cloak\n-- end clock\n", "a.lua: block cloak ends without a beginning"},
		{"return\n", "block clock is used by 1 scripts"},
	} {
		scripts := map[string]string{"a.lua": c.script, "b.lua": used}
		got, err := shared.Update(scripts, map[string]string{"clock": "now = 1\n"})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.script, err, c.want)
		}
		if got["a.lua"] != c.script {
			t.Errorf("%q has become %q in spite of its mistake", c.script, got["a.lua"])
		}
	}
	_, err := shared.Update(map[string]string{"a.lua": used, "b.lua": used}, map[string]string{"clock": ""})
	if err == nil || !strings.Contains(err.Error(), "block clock has no text") {
		t.Errorf("an empty source: %v", err)
	}
}
