package shared_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/lua/internal/shared"
)

const clock = "-- Reads the clock.\n-- needs: now, late\n-- gives: now\n\n" +
	"if not now then\n  now = 1\n\n  late = 2\nend\n"

func TestUpdateWritesBlocksAtTheirIndent(t *testing.T) {
	sources := map[string]string{"shared/clock.lua": clock}
	got, err := shared.Update(map[string]string{
		"ban/a.lua": "-- A.\n\nlocal now, late\n-- shared clock\nan old text\n-- end clock\nreturn now",
		"vote/b.lua": "-- B.\n\nlocal now, late, log\nif late then\n  -- shared clock\n  -- end clock\n" +
			"  log = now\nend\n",
		"vote/c.lua": "-- C shares nothing; -- shared clock\n",
	}, sources)
	want := map[string]string{
		"ban/a.lua": "-- A.\n\nlocal now, late\n-- shared clock\nif not now then\n  now = 1\n\n  late = 2\n" +
			"end\n-- end clock\nreturn now",
		"vote/b.lua": "-- B.\n\nlocal now, late, log\nif late then\n  -- shared clock\n  if not now then\n" +
			"    now = 1\n\n    late = 2\n  end\n  -- end clock\n  log = now\nend\n",
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
	const used = "local now\n-- shared clock\n-- end clock\nreturn now\n"
	source := func(moment string) string {
		return "-- Says when.\n-- needs: now\n-- gives: now\n\nnow = " + moment + "\n"
	}
	sources := map[string]string{"shared/clock.lua": source("1"), "vote/shared/clock.lua": source("2")}
	scripts := map[string]string{"ban/a.lua": used, "ban/b.lua": used, "vote/a.lua": used, "vote/b.lua": used}
	got, err := shared.Update(scripts, sources)
	if err != nil || !strings.Contains(got["ban/a.lua"], "now = 1") ||
		!strings.Contains(got["vote/a.lua"], "now = 2") {
		t.Errorf("%q, %v", got, err)
	}
	delete(sources, "shared/clock.lua")
	const want = "ban/a.lua:2: block clock is unknown"
	if _, err := shared.Update(scripts, sources); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	sources["shared/clock.lua"] = source("1")
	delete(scripts, "vote/b.lua")
	const once = "vote/shared/clock.lua:1: the block is used by 1 scripts"
	if _, err := shared.Update(scripts, sources); err == nil || !strings.Contains(err.Error(), once) {
		t.Errorf("%v, want %q", err, once)
	}
}

// TestEveryMistakeHasItsPlace. A source of {} and a script of {} stand for those that are right; a script has
// its own text before the block, and behind it.
func TestEveryMistakeHasItsPlace(t *testing.T) {
	const (
		head   = "-- Counts.\n-- needs: key, most\n-- gives: count, note\n-- returns: yes\n\n"
		text   = "local count = redis.call('GET', key)\nlocal function note(n)\n  return n .. key\nend\n"
		ending = "if count == most then\n  return note(count)\nend\n"
		source = head + text + ending
		before = "local key, most = KEYS[1], ARGV[1]\n"
		block  = "-- shared count\n-- end count\n"
		script = before + block + "return count or note(0)\n"
	)
	for name, c := range map[string]struct{ source, script, want string }{
		"right": {source, script, ""},

		"an unknown block": {
			source, script + "-- shared cont\n-- end cont\n", "vote/a.lua:5: block cont is unknown",
		},
		"a block without an end": {
			source, before + "-- shared count\nreturn\n", "vote/a.lua:3: block count does not end",
		},
		"an end without a beginning": {
			source, script + "-- end count\n", "vote/a.lua:5: block count ends without a beginning",
		},
		"a block inside a block": {
			source, before + "-- shared count\n-- shared count\n-- end count\n",
			"vote/a.lua:3: block count begins inside block count",
		},
		"an end of another": {
			source, before + "-- shared count\n-- end cont\n-- end count\n",
			"vote/a.lua:3: block cont ends without a beginning",
		},
		"a block that one script has": {source, "return 1\n", "vote/shared/count.lua:1: the block is used by 1 scripts"},
		"no text":                     {head, script, "vote/shared/count.lua:1: the block has no text"},
		"no Lua":                      {source + "end\n", script, "vote/shared/count.lua:13: syntax error"},
		"a script that is no Lua":     {source, script + "end\n", "vote/a.lua:12: syntax error"},

		"a name that it was not given": {
			head + strings.ReplaceAll(text, "'GET', key", "'GET', log") + ending, script,
			"vote/shared/count.lua:6: the block uses log, which is not among what it needs",
		},
		"a name that it was not given, in a function": {
			head + strings.ReplaceAll(text, "n .. key", "n .. log") + ending, script,
			"vote/shared/count.lua:8: the block uses log, which is not among what it needs",
		},
		"an assignment to what it was not given": {
			source + "changed = true\n", script,
			"vote/shared/count.lua:13: the block uses changed, which is not among what it needs",
		},
		"a need that it does not use": {
			strings.Replace(source, "key, most", "key, most, log", 1), script,
			"vote/shared/count.lua:1: the block needs log and does not use it",
		},
		"a gift that it does not make": {
			strings.Replace(source, "count, note", "count, note, n", 1), script,
			"vote/shared/count.lua:1: the block gives n and neither declares nor assigns it",
		},
		"a gift that nobody takes": {
			source, before + block + "return count\n",
			"vote/shared/count.lua:1: the block gives note, which no script uses",
		},
		"a return that the head does not say": {
			strings.Replace(source, "-- returns: yes\n", "", 1), script,
			"vote/shared/count.lua:1: the block returns: true, its head says false",
		},
		"a head that says of a return in vain": {
			head + text, script, "vote/shared/count.lua:1: the block returns: false, its head says true",
		},

		"what the block needs is not declared": {
			source, "local key = KEYS[1]\n" + block + "return count or note(0)\n",
			"vote/a.lua:7: block count needs most, which is declared nowhere before",
		},
		"what the block needs is declared behind it": {
			source, "local key = KEYS[1]\n" + block + "local most = 1\nreturn count or note(most)\n",
			"vote/a.lua:7: block count needs most, which is declared nowhere before",
		},
		"what the block needs is declared in another scope": {
			source, "local key = KEYS[1]\nif key then\n  local most = 1\n  key = most\nend\n" + block +
				"return count or note(0)\n",
			"vote/a.lua:11: block count needs most, which is declared nowhere before",
		},
		"the script uses what the block has for itself": {
			strings.Replace(source, "count, note", "count", 1), script,
			"vote/a.lua:11: the script uses note of block count, which does not give it",
		},
		"the script uses what the block changes": {
			source + "most = 1\n", before + block + "return count or note(most)\n",
			"vote/a.lua:12: the script uses most of block count, which does not give it",
		},
		"nothing uses what the block gives": {
			"-- Counts.\n-- needs: key\n-- gives: count, note\n\n" + text,
			before + block + "return key\n", "vote/a.lua:2: nothing uses what block count gives",
		},
		"the script uses what nothing declares": {
			source, before + block + "return count or note(last)\n", "vote/a.lua:11: last is declared nowhere before",
		},
		"the script sets a global variable": {
			source, before + block + "last = note(count)\n", "vote/a.lua:11: last is declared nowhere before",
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripts := map[string]string{"vote/a.lua": c.script, "vote/b.lua": script}
			if strings.HasPrefix(name, "a gift that nobody") {
				scripts["vote/b.lua"] = c.script
			}
			got, err := shared.Update(scripts, map[string]string{"vote/shared/count.lua": c.source})
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains("\n"+err.Error(), "\n"+c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if strings.HasPrefix(c.want, "vote/a.lua") && got["vote/a.lua"] != c.script {
				t.Errorf("it has become %q in spite of its mistake", got["vote/a.lua"])
			}
		})
	}
}

// TestABlockThatActsNeedsNoReader: it writes to Redis, or into a table of the script.
func TestABlockThatActsNeedsNoReader(t *testing.T) {
	for _, text := range []string{"redis.call('DEL', key)\n", "key.field[1] = 2\n"} {
		script := "local key = {}\n-- shared act\n-- end act\n"
		_, err := shared.Update(map[string]string{"vote/a.lua": script, "vote/b.lua": script},
			map[string]string{"vote/shared/act.lua": "-- Acts.\n-- needs: key\n\n" + text})
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"redis.call('GET', key)\n", "local own = {key}\nown[2] = 2\n"} {
		script := "local key = {}\n-- shared act\n-- end act\n"
		_, err := shared.Update(map[string]string{"vote/a.lua": script, "vote/b.lua": script},
			map[string]string{"vote/shared/act.lua": "-- Acts.\n-- needs: key\n\n" + text})
		const want = "vote/a.lua:2: nothing uses what block act gives"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestNamesAreFoundByTheRulesOfScope: the script is right, in every form that has a scope of its own.
func TestNamesAreFoundByTheRulesOfScope(t *testing.T) {
	const script = `local a, list = 1, {b = 2, [ARGV[1]] = 3, 4}
local function again(n, ...)
  return n > 0 and again(n - 1, select('#', ...)) or -n
end
for i = 1, #list, a do
  local i = i
  list[i] = not i
end
for _, value in ipairs(list) do
  a = value
end
while a do
  local b = a
  a = b
  break
end
repeat
  local done = again(1)
until done
do
  local c = a
  list.c = c
end
if a then
  local d = a
  a = d
elseif list then
  a = function(e) return e .. string.upper(e) end
else
  a = ("x"):rep(2)
end
return a
`
	if _, err := shared.Update(map[string]string{"vote/a.lua": script}, nil); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ script, want string }{
		{"for i = 1, 2 do\n  local a = i\nend\nreturn a", "4: a"},
		{"repeat\n  local a = 1\nuntil a\nreturn a", "4: a"},
		{"local a = a", "1: a"},
		{"local function f(a)\n  return a\nend\nreturn f(a)", "4: a"},
		{"local t = {}\nfunction t.f()\n  return u\nend", "3: u"},
		{"if KEYS then\n  local a\nelse\n  return a\nend", "4: a"},
	} {
		_, err := shared.Update(map[string]string{"vote/a.lua": c.script}, nil)
		if want := "vote/a.lua:" + c.want + " is declared nowhere before"; err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", c.script, err, want)
		}
	}
}
