// Package everyscript runs every script of the package lua, each with a few calls whose answers are known: by
// hand in the tests of lua, and on a Redis that the command gatehouse doctor looks at.
package everyscript

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Step is one call of a script.
type Step struct {
	Script     string // its name, as in lua.Names
	Keys, Args []string
	// Answer is what the script replies in this place, its elements joined by spaces. X stands for any number.
	Answer string
}

// Answered reports whether a text is the step's answer.
func (s Step) Answered(text string) bool {
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(s.Answer), "X", "[0-9]+") + "$"
	return regexp.MustCompile(pattern).MatchString(text)
}

// Text returns a reply as redis-cli prints it, its lines joined by spaces.
func Text(reply any) string {
	switch r := reply.(type) {
	case nil:
		return ""
	case []any:
		texts := make([]string, len(r))
		for i := range r {
			texts[i] = Text(r[i])
		}
		return strings.Join(texts, " ")
	}
	return fmt.Sprint(reply)
}

// Steps returns the steps in their order, all of which belong together: a step finds what earlier ones have
// left. Their keys have no prefix. Moments in them lie in 1970 or in 2100, so a key may stay until then: who
// runs the steps deletes the keys.
func Steps() []Step {
	const final = "gatehouse:votes:poll:{final}:"
	poll := []string{final + "voters", final + "tally", final + "book", final + "op|00", final + "audit"}
	voiding := slices.Clone(poll)
	voiding[3] = "gatehouse:votes:poll:{final}:void|r1"
	shared := []string{"v{q}:voters", "v{q}:tally", "v{q}:book", "v{q}:audit"}
	quarter := []string{"v{q|1}:voters", "v{q|1}:tally", "v{q|1}:book", "v{q|1}:audit"}
	packet := []string{"r{p}:packet", "r{p}:shares", "r{p}:grabs", "r{p}:operations"}
	const expires, over = "4102444800000", "4102444800001" // the year 2100, and a moment later
	sale := []string{"s{tv}:sale", "s{tv}:buyers", "s{tv}:holds", "s{tv}:reservations", "s{tv}:outbox"}
	plain := []string{"p{tv}:sale", "p{tv}:buyers", "p{tv}:holds", "p{tv}:reservations"} // no outbox
	root := []string{"b{tv}:sale", "b{tv}:buyers"}
	bucket := func(n string) []string {
		return []string{
			"b{tv|5000" + n + "}:sale", "b{tv|5000" + n + "}:buyers", "b{tv|5000" + n + "}:holds",
			"b{tv|5000" + n + "}:reservations", "b{tv|5000" + n + "}:outbox",
		}
	}
	zero, one, lost := bucket("|0"), bucket("|1"), bucket("|2")
	pool := []string{"s{|}:permits", "s{|}:void|c1", "s{|}:present"}
	line := []string{"s{|}:permits", "s{|}:line", "s{|}:present", "s{|}:void|w1", "s{|}:void|w2"}
	other := []string{"s{|}:permits", "s{|}:void|c5", "s{|}:present"}
	leave := []string{"s{|}:permits", "s{|}:void|c1", "s{|}:line", "s{|}:present"}
	lock := []string{"k{a}:lock", "k{a}:void|c1", "k{a}:present"}
	queue := []string{"k{a}:lock", "k{a}:line", "k{a}:present", "k{a}:void|w1"}
	behind := []string{"k{a}:lock", "k{a}:void|c2", "k{a}:present"}
	give := []string{"k{a}:lock", "k{a}:void|c1", "k{a}:line", "k{a}:present"}
	slot := []string{"d{q|0}:head", "d{q|0}:tasks", "d{q|0}:bodies", "d{q|0}:due", "d{q|0}:running",
		"d{q|0}:done", "d{q|0}:dead"}
	with := func(key string) []string { return append(slices.Clone(slot), "d{q|0}:"+key) }
	looked := []string{slot[1], slot[3], slot[4], slot[6]}
	log := func(of string) []string { return []string{"w{" + of + "}", "{" + of + "}w"} }
	parts := func(of string) []string { return []string{"q{" + of + "}"} }
	oneLimit := func(now string, costs ...string) []string {
		return append([]string{"2/60000:", now, "2", "60000"}, costs...)
	}
	twoLimits := func(now, cost string) []string {
		return []string{"3/60000 2/3600000:", "^(%d+) (%d+) (%d+)(.*)$", now, cost, "3", "60000", "2", "3600000"}
	}
	partsLimit := func(now string, costs ...string) []string {
		return append([]string{"3/60000/1000000|", now, "1000000", "3", "60000"}, costs...)
	}
	day := func(call string) []string { return []string{"q{ann}:items", "q{ann}:operations", "q{ann}:" + call} }
	stock := []string{"x{tv}:sale", "x{tv}:buyers", "x{tv}:holds", "x{tv}:reservations", "x{tv}:outbox"}
	many, held := []string{"100", "6000"}, []string{}
	for n := range 16 {
		many = append(many, fmt.Sprint("m", n), "ann", "1", fmt.Sprint("c", n))
		held = append(held, fmt.Sprintf("ok 0 held %d 20 1000 0", 19-n))
	}
	org := []string{"u{acme}:root", "u{acme}:rows", "u{acme}:log", "u{acme}:node"}
	spend := func(now, cost, call string) []string {
		return []string{cost, call, "0", "60000", now, "acme", "!acme", "1000000 2/60000", "9 9 0 9000000"}
	}
	room := []string{"r{room}:room", "r{room}:here", "r{room}:seen", "r{room}:taken", "r{room}:inside",
		"r{room}:passes", "r{room}:called", "r{room}:left"}
	inRoom := func(now string, args ...string) []string {
		return append([]string{now, "1", "60000", "30000", "10000", "5000", "60000", "0", "0", "0 65535  s open  "},
			args...)
	}
	return []Step{
		{"limit/sliding_window", log("a")[:1], oneLimit("", "1"), "1 1 X 1 X"},
		{"limit/sliding_window", log("a")[:1], oneLimit("", "1"), "1 0 X 1 X"},
		{"limit/sliding_window", log("a")[:1], oneLimit("", "1"), "-X"},
		{"limit/sliding_window", log("b")[:1], oneLimit("5000000", "1"), "1 1 5000000 1 60000000"},
		{"limit/sliding_window", log("b")[:1], oneLimit("5000000", "2"), "0 1 60000000 1"},
		{"limit/sliding_window", log("b")[:1], oneLimit("5000000", "1"), "1 0 5000000 1 60000000"},
		{"limit/sliding_window", log("b")[:1], oneLimit("6000000", "0"), "-59000000"},
		{"limit/sliding_window", log("b")[:1], oneLimit("4000000", "1"), "2"}, // the clock was set back
		{"limit/sliding_window", log("c")[:1], oneLimit("7000000", "1", "2", "1"), "7000000 60000000 1 0 1 60000000 1 0"},
		{"limit/sliding_windows", log("v")[:1], twoLimits("", "1"), "1 1 X 2 X"},
		{"core/delete", log("v"), nil, "1"},
		{"limit/sliding_windows", log("v")[:1], twoLimits("5000000", "2"), "1 0 5000000 2 3600000000"},
		{"limit/sliding_windows", log("v")[:1], twoLimits("6000000", "1"), "0 0 3599000000 2"},
		{"limit/sliding_log", log("v"), []string{"2/60000:", "", "6000000", "1", "2", "60000", "0"}, "0 0 59000000 1"},
		{"limit/sliding_log", log("v"), []string{"5/60000:", "", "6000000", "1", "5", "60000", "0"}, "1 2 6000000 1 59000000"},
		{"limit/sliding_windows", log("v")[:1], twoLimits("6000000", "1"), "2"}, // other limits have written the header
		{"limit/sliding_log", log("v"), []string{"", "9/60000/1000000|", "7000000", "1", "9", "60000", "1000000"},
			"1 5 7000000 1 58000000"},
		{"limit/sliding_settle", []string{"v{v}r", "w{v}", "{v}w"},
			[]string{"5/60000:", "", "8000000", "1", "6000000", "name123", "0", "0"}, "1"},
		{"limit/sliding_settle", []string{"v{v}r", "w{v}", "{v}w"},
			[]string{"5/60000:", "", "8000000", "1", "6000000", "name123", "1", "0"}, "0"},
		{"limit/sliding_parts", parts("a"), partsLimit("", "1"), "1 2 X 1 X X"},
		{"limit/sliding_parts", parts("b"), partsLimit("5000001", "2"), "1 1 5000001 1 60999999 999999"},
		{"limit/sliding_parts", parts("b"), partsLimit("7000000", "0"), "1 1 7000000 1 59000000 0"},
		{"limit/sliding_parts", parts("b"), partsLimit("7000000", "2"), "0 1 59000000 1"},
		{"limit/sliding_parts", parts("b"), partsLimit("5000000", "2"), "2"}, // the clock was set back
		{"limit/sliding_settle", []string{"c{c}r", "w{c}", "{c}w"},
			[]string{"2/60000:", "", "8000000", "-5", "0", "name123", "0", "0"}, "2"},
		{"limit/sliding_window", log("c")[:1], oneLimit("9000000", "1"), "-59000000"},
		{"core/delete", log("v"), nil, "2"},
		{"core/delete", log("v"), nil, "0"},
		{"limit/fixed_window", []string{"f{a}"}, []string{"2", "60000"}, "1 1 X 1 60000000"},
		{"limit/fixed_window", []string{"f{a}"}, []string{"2", "60000", "0"}, "1 1 X 1 X"},
		{"limit/fixed_window", []string{"f{a}"}, []string{"2", "60000", "2"}, "0 1 X 1"},
		{"limit/fixed_window", []string{"f{c}"}, []string{"2", "60000", "2", "5000000"}, "1 0 5000000 1 60000000"},
		{"limit/fixed_window", []string{"f{c}"}, []string{"2", "60000", "1", "6000000"}, "-59000000"},
		{"limit/fixed_window", []string{"f{d}", "{d}f"}, []string{"3", "60000", "2", "3600000", "1", "5000000"},
			"1 1 5000000 2 3600000000"},
		{"limit/fixed_window", []string{"f{b}", "{b}f"}, []string{"3", "60000", "2", "3600000", "2", "5000000"},
			"1 0 5000000 2 3600000000"},
		{"limit/fixed_window", []string{"f{b}", "{b}f"}, []string{"3", "60000", "2", "3600000", "1", "6000000"},
			"0 0 3599000000 2"},
		{"limit/fixed_window_settle", []string{"f{b}r", "f{b}", "{b}f"},
			[]string{"3", "60000", "2", "3600000", "2", "5000000", "name123", "", "6000000"}, "2"},
		{"limit/fixed_window_settle", []string{"f{b}r", "f{b}", "{b}f"},
			[]string{"3", "60000", "2", "3600000", "2", "5000000", "name123", "1", "6000000"}, "0"},
		{"limit/fixed_window_settle", []string{"g{b}r", "g{b}", "{b}g"},
			[]string{"3", "60000", "2", "3600000", "-5", "0", "name123", "", "6000000"}, "5"},
		{"limit/fixed_window_settle", []string{"g{b}r", "g{b}", "{b}g"},
			[]string{"3", "60000", "2", "3600000", "-5", "0", "name123", "1", "6000000"}, "0"},
		{"limit/fixed_window", []string{"g{b}", "{b}g"}, []string{"3", "60000", "2", "3600000", "1", "7000000"},
			"0 -3 3599000000 2"},
		{"limit/token_bucket", []string{"t{a}"}, []string{"2", "60000"}, "1 1 X 1 30000000"},
		{"limit/token_bucket", []string{"t{a}"}, []string{"2", "60000", "0"}, "1 1 X 1 X"},
		{"limit/token_bucket", []string{"t{a}"}, []string{"2", "60000", "2"}, "0 1 X 1"},
		{"limit/token_bucket", []string{"t{c}"}, []string{"2", "60000", "2", "5000000"}, "1 0 5000000 1 30000000"},
		{"limit/token_bucket", []string{"t{c}"}, []string{"2", "60000", "1", "6000000"}, "-29000000"},
		{"limit/token_bucket", []string{"t{c}"}, []string{"2", "60000", "1", "1000000"}, "-30000000"}, // set back
		{"limit/token_bucket", []string{"t{c}"}, []string{"4", "60000", "1", "1000000"}, "-15000000"}, // another max
		{"limit/token_bucket", []string{"t{b}", "{b}t"}, []string{"3", "60000", "2", "3600000", "2", "5000000"},
			"1 0 5000000 2 1800000000"},
		{"limit/token_bucket", []string{"t{b}", "{b}t"}, []string{"3", "60000", "2", "3600000", "1", "6000000"},
			"0 0 1799000000 2"},
		{"limit/token_bucket_settle", []string{"t{b}r", "t{b}", "{b}t"},
			[]string{"3", "60000", "2", "3600000", "2", "5000000", "name123", "", "6000000"}, "2"},
		{"limit/token_bucket_settle", []string{"t{b}r", "t{b}", "{b}t"},
			[]string{"3", "60000", "2", "3600000", "2", "5000000", "name123", "1", "6000000"}, "0"},
		{"limit/token_bucket_settle", []string{"d{b}r", "d{b}", "{b}d"},
			[]string{"3", "60000", "2", "3600000", "-5", "0", "name123", "", "6000000"}, "5"},
		{"limit/token_bucket_settle", []string{"d{b}r", "d{b}", "{b}d"},
			[]string{"3", "60000", "2", "3600000", "-5", "0", "name123", "1", "6000000"}, "0"},
		{"limit/token_bucket", []string{"d{b}", "{b}d"}, []string{"3", "60000", "2", "3600000", "1", "7000000"},
			"0 -1 7199000000 2"},
		{"bans/ban", []string{"b{a}", "{a}b"}, []string{"strike", "60000", "1", "60000", "1000", "4000", "0"},
			"0 0 0 0"},
		{"bans/ban", []string{"b{a}", "{a}b"}, []string{"look", "60000", "1", "60000", "0", "0", "0"}, "0 0 0 1"},
		{"bans/ban", []string{"b{a}", "{a}b"}, []string{"strike", "60000", "1", "60000", "1000", "4000", "0"},
			"1 1000000 1 0"},
		{"bans/ban", []string{"b{a}", "{a}b"}, []string{"ban", "60000", "0", "0", "0", "0", "90000"}, "1 90000000 1 0"},
		{"bans/ban", []string{"b{a}"}, []string{"look", "60000", "0", "0", "0", "0", "0"}, "0 X 1 0"},
		{"core/delete", []string{"b{a}", "{a}b"}, nil, "1"},
		{"bans/ban", []string{"b{a}"}, []string{"look", "60000", "0", "0", "0", "0", "0"}, "0 0 0 0"},
		{"votes/vote", poll,
			[]string{"annannannann", "red", "1", "", "60000", "60000", "c1", "fo1", "ann", "o1", "192.0.2.1"},
			"ok 0 1 0 red"},
		{"votes/vote", poll,
			[]string{"annannannann", "red", "1", "", "60000", "60000", "c1", "fo1", "ann", "o1", "192.0.2.1"},
			"ok 0 1 0 red"},
		{"votes/vote", poll,
			[]string{"annannannann", "red", "1", "", "60000", "60000", "c2", "fo1", "ann", "o1", "192.0.2.1"},
			"ok 1 1 0 red"},
		{"votes/vote", poll,
			[]string{"annannannann", "blue", "1", "", "60000", "60000",
				"c2", "fo1", "ann", "o1", "192.0.2.1"},
			"conflict 0 1 0"},
		{"votes/vote", poll,
			[]string{"annannannann", "blue", "1", "", "60000", "60000",
				"c3", "fo2", "ann", "o1", "192.0.2.1"},
			"duplicate 0 1 0 red"},
		{"votes/undo", poll,
			[]string{"annannannann", "c3", "60000", "ann", "o1", "", "0", "fo1"}, "0"},
		{"votes/undo", poll,
			[]string{"annannannann", "c1", "60000", "ann", "o1", "", "0", "fo1"}, "0"},
		{"votes/undo", poll,
			[]string{"annannannann", "c2", "60000", "ann", "o1", "", "0", "fo1"}, "1"},
		{"votes/undo", poll,
			[]string{"annannannann", "c4", "60000", "ann", "o1", "", "1", "fo1"}, "0"},
		{"votes/vote", poll,
			[]string{"annannannann", "red", "1", "", "60000", "60000", "c4", "fo1", "ann", "o1", "192.0.2.1"},
			"gone 0 0 0"},
		{"votes/vote", poll,
			[]string{"annannannann", "red", "1", "1 1 0 6000 0 0 0 0", "60000", "60000",
				"c5", "fo1", "ann", "o1", "192.0.2.1", "5000"},
			"not_open 0 0 1000"},
		{"votes/vote", poll,
			[]string{"annannannann", "red", "1", "1 1 0 0 5000 0 0 0", "60000", "60000",
				"c5", "fo1", "ann", "o1", "192.0.2.1", "5000"},
			"closed 0 0 0"},
		{"votes/vote", poll,
			[]string{"annannannann", "red", "1", "3 3 0 0 0 1 5000 6000", "60000", "60000",
				"c5", "fo1", "ann", "o1", "192.0.2.1", "6000"},
			"day_rolled 0 0 6000"},
		{"votes/vote", poll,
			[]string{"annannannann", "red", "1", "3 3 0 0 0 1 5000 6000", "60000", "60000",
				"c5", "fo1", "ann", "o1", "192.0.2.1", "5000"},
			"ok 0 1 0 red"},
		{"votes/vote", poll,
			[]string{"annannannann", "red", "1", "3 3 0 0 0 1 5000 6000", "60000", "60000",
				"c6", "fo2", "ann", "o2", "192.0.2.1", "5800"},
			"quota 0 1 200 red"},
		{"votes/vote", poll,
			[]string{"annannannann", "blue", "2", "1 1 1 0 0 0 0 0", "60000", "60000",
				"c6", "fo2", "ann", "o2", "192.0.2.1"},
			"changed 0 1 0 blue"},
		{"votes/void", voiding, []string{"annannannann", "768", "0", "1", "1-1", "ann", "o2", ""}, "0"},
		{"votes/void", voiding, []string{"annannannann", "770", "0", "1", "1-1", "ann", "o2", ""}, "1"},
		{"votes/void", voiding, []string{"annannannann", "770", "0", "0", "1-1", "ann", "o2", ""}, "1"},
		{"votes/void", voiding, []string{"annannannann", "770", "0", "0", "1-1", "ann", "o2", ""}, "1"},
		{"votes/void", voiding, []string{"annannannann", "770", "0", "0", "2-1", "ann", "o2", ""}, "0"},
		{"votes/vote", poll,
			[]string{"annannannann", "red", "1", "", "60000", "60000", "c7", "fo3", "ann", "o3", "192.0.2.1"},
			"duplicate 0 1 0"},
		{"votes/vote", poll,
			[]string{"bobbobbobbob", "red", "1", "", "60000", "60000", "c8", "fo4", "bob", "o4", "192.0.2.1"},
			"ok 0 1 0 red"},
		{"votes/keep", poll[3:4],
			[]string{"annannannann", "c8", "fo4"}, "0"}, // bob's
		{"votes/keep", poll[3:4],
			[]string{"bobbobbobbob", "c9", "fo4"}, "0"},
		{"votes/keep", poll[3:4],
			[]string{"bobbobbobbob", "c8", "fo4"}, "1"},
		{"votes/keep", poll[3:4],
			[]string{"bobbobbobbob", "c9", "fo4"}, "1"},
		{"votes/tally", append(poll[:3:3], poll[4]), nil, " 0 red 1"},
		{"votes/retract", poll,
			[]string{"bobbobbobbob", "blue", "0", "60000", "c9", "fo5", "bob", "o5", ""},
			"gone 0 1 0 red"},
		{"votes/retract", poll,
			[]string{"bobbobbobbob", "red", "5000", "60000", "c9", "fo5", "bob", "o5", "", "5000"},
			"closed 0 1 0 red"},
		{"votes/retract", poll,
			[]string{"bobbobbobbob", "red", "0", "60000", "c9", "fo5", "bob", "o5", ""},
			"ok 0 0 1 "},
		{"votes/retract", poll,
			[]string{"bobbobbobbob", "red", "0", "60000", "c9", "fo5", "bob", "o5", ""},
			"ok 0 0 1 "},
		{"votes/retract", poll,
			[]string{"bobbobbobbob", "red", "0", "0", "c10", "fo5", "bob", "o5", ""},
			"ok 1 0 1 "},
		{"votes/retract", poll,
			[]string{"bobbobbobbob", "red", "0", "0", "c11", "fo4", "bob", "o4", ""},
			"conflict 0 0 0 "},
		{"votes/vote", poll[:4],
			[]string{"bobbobbobbob", "red", "1", "", "60000", "60000", "c12", "fo6", "bob", "o6", "192.0.2.1"},
			"ok 0 1 0 red"},
		{"parts/number", shared, []string{"4", "6000", "0", "60000", "1", "5000"}, "4 0"},
		{"parts/number", shared, []string{"4", "5000", "0", "60000", "0", "5000"}, "4 2"},
		{"parts/begun", shared[:1], []string{"1", "0", "60000", "1"}, "root"},
		{"parts/number", shared, []string{"4", "5000", "0", "60000", "1", "5000"}, "4 1"},
		{"parts/number", shared, []string{"8", "0", "5000", "60000", "1", "5000"}, "4 1"},
		{"parts/number", shared, []string{"8", "0", "0", "60000", "0"}, "4 1"},
		{"parts/begun", shared[:1], []string{"1", "0", "60000", "0", "5000"}, "none"},
		{"parts/begun", shared[:1], []string{"1", "0", "60000", "1", "5000"}, "known"},
		{"parts/begun", shared[:1], []string{"1", "0", "60000", "0", "5000"}, "known"},
		{"parts/begun", shared[:1], []string{"1", "0", "60000", "0", "9000"}, "stale"},
		{"parts/begun", shared[:1], []string{"1", "0", "60000", "0", "65000"}, "none"},
		{"parts/number", quarter, []string{"1", "0", "0", "60000", "0"}, "1 2"},
		{"parts/number", quarter, []string{"1", "0", "0", "60000", "1"}, "1 1"},
		{"parts/number", poll[:3], []string{"4", "0", "0", "60000", "1"}, "1 1"},
		{"votes/repair", poll[:3], []string{"2 5", "red", "5"}, "0"},
		{"votes/repair", poll[:3], []string{"2 6", "red", "5"}, "1"},
		{"votes/repair", poll[:3], []string{"2 6", "red", "5"}, "0"},
		{"seckill/open", sale, []string{"2", "0", "0", "1", "60000", "600000"}, "1"},
		{"seckill/open", sale, []string{"9", "0", "0", "1", "60000", "600000"}, "0"},
		{"idempotency/begin", []string{"i{o1}"}, []string{"f1", "c1", "60000"}, "ok "},
		{"idempotency/begin", []string{"i{o1}"}, []string{"f1", "c1", "60000"}, "ok "},
		{"idempotency/begin", []string{"i{o1}"}, []string{"f1", "c2", "60000"}, "in_progress "},
		{"idempotency/begin", []string{"i{o1}"}, []string{"f2", "c2", "60000"}, "conflict "},
		{"idempotency/finish", []string{"i{o1}"}, []string{"f1", "c2", "answer", "60000"}, "0"},
		{"idempotency/release", []string{"i{o1}"}, []string{"c2", "60000"}, "0"},
		{"idempotency/finish", []string{"i{o1}"}, []string{"f1", "c1", "a part", "60000", "50000"}, "1"},
		{"idempotency/begin", []string{"i{o1}"}, []string{"f1", "c2", "60000"}, "in_progress "},
		{"idempotency/begin", []string{"i{o1}"}, []string{"f2", "c2", "60000"}, "conflict "},
		{"idempotency/finish", []string{"i{o1}"}, []string{"f1", "c1", "a part", "60000", "60000"}, "1"},
		{"idempotency/finish", []string{"i{o1}"}, []string{"f1", "c1", "answer", "60000"}, "1"},
		{"idempotency/finish", []string{"i{o1}"}, []string{"f1", "c1", "another", "60000"}, "1"},
		{"idempotency/release", []string{"i{o1}"}, []string{"c1", "60000"}, "0"},
		{"idempotency/begin", []string{"i{o1}"}, []string{"f1", "c3", "60000"}, "done answer"},
		{"idempotency/begin", []string{"i{o1}"}, []string{"f2", "c3", "60000"}, "conflict "},
		{"idempotency/begin", []string{"i{o2}"}, []string{"f1", "c1", "60000"}, "ok "},
		{"idempotency/release", []string{"i{o2}"}, []string{"c1", "60000"}, "1"},
		{"idempotency/release", []string{"i{o2}"}, []string{"c1", "60000", "1"}, "0"},
		{"idempotency/begin", []string{"i{o2}"}, []string{"f1", "c1", "60000"}, "gone "},
		{"idempotency/begin", []string{"i{o2}"}, []string{"f1", "c2", "60000"}, "ok "},
		{"quota/quota", day("c1"), []string{"0", "9000000000000", "1000", "1", "a7", "o1", "1", "c1", "5000000"},
			"ok 0 1 5000000"},
		{"quota/quota", day("c2"), []string{"0", "9000000000000", "1000", "1", "a7", "o2", "0", "c2"}, "again 0 1 X"},
		{"quota/quota", day("c3"), []string{"0", "9000000000000", "1000", "1", "a8", "o1", "1", "c3"}, "conflict 0 1 X"},
		{"quota/quota", day("c3"), []string{"0", "9000000000000", "1000", "1", "a8", "o3", "1", "c3"}, "quota 0 1 X"},
		{"quota/quota", day("c3"), []string{"5000", "6000", "1000", "1", "a8", "o3", "1", "c3"}, "day_rolled 0 0 X"},
		{"quota/quota", day("c3"), []string{"5000", "6000", "1000", "2", "a8", "o3", "1", "c3", "4999"},
			"day_rolled 0 0 4999"},
		{"quota/quota", day("c3"), []string{"5000", "6000", "1000", "2", "a8", "o3", "1", "c3", "6000"},
			"day_rolled 0 0 6000"},
		{"quota/quota", day("c3"), []string{"5000", "6000", "1000", "2", "a8", "o3", "1", "c3", "5000"}, "ok 0 2 5000"},
		{"quota/quota", day("c3"), []string{"5000", "6000", "1000", "2", "a8", "o3", "1", "c3", "5999"}, "ok 0 2 5999"},
		{"quota/undo", day("c3"), []string{"a8", "o3", "c3", "0"}, "1"},
		{"quota/used", day("")[:1], []string{"0", "9000000000000", "5000000"}, "5000000 a7"},
		{"quota/used", day("")[:1], []string{"5000", "6000", "7000"}, "7000 "},
		{"quota/undo", day("c1"), []string{"a7", "o1", "c1", "0"}, "0"},
		{"quota/undo", day("c2"), []string{"a7", "o2", "c2", "0"}, "1"},
		{"quota/undo", day("c4"), []string{"a7", "o1", "c4", "60000"}, "0"},
		{"quota/quota", day("c4"), []string{"0", "9000000000000", "1000", "1", "a7", "o1", "1", "c4"}, "gone 0 0 X"},
		{"seckill/reserve", sale, []string{"100", "", "o1", "ann", "1", "c1"}, "ok 0 held 1 2 60000 0"},
		{"seckill/reserve", sale, []string{"1", "", "o1", "ann", "1", "c1", "o2", "ann", "1", "c2", "o2", "bob", "3",
			"c3"}, "ok 0 held 1 2 X 0 duplicate 1 2 o1 X duplicate 1 2"},
		{"seckill/confirm", sale, []string{"o1", "ann"}, "ok 0 ann 1 1 2"},
		{"seckill/reserve", sale, []string{"100", "", "o2", "bob", "1", "c2"}, "ok 0 held 0 2 60000 0"},
		{"seckill/cancel", sale, []string{"o2", "c1", "", "bob"}, "ok 1 bob 1 0 2"},
		{"seckill/cancel", sale, []string{"o2", "c2", "1", "bob"}, "ok 1 bob 1 0 2"}, // the hold stays for another call
		{"seckill/cancel", sale, []string{"o2", "c2", "", "bob"}, "ok 1 bob 1 0 2"},
		{"seckill/reserve", sale, []string{"100", "", "o2", "bob", "1", "c2"}, "gone 0  0 2 0 0"},
		{"seckill/reserve", sale, []string{"100", "", "o2", "bob", "1", "c3"}, "ok 1 held 0 2 X 0"},
		{"seckill/cancel", sale, []string{"o2", "c3", "", "ann"}, "ok 1  0 0 2"},
		{"seckill/cancel", sale, []string{"o2", "c3", "", "bob"}, "ok 0 bob 1 1 2"},
		{"seckill/reserve", sale, []string{"100", "", "o2", "ann", "1", "c4"}, "conflict 0  1 2 0 0"},
		{"seckill/confirm", sale, []string{"o2", "bob"}, "gone 0 bob 0 1 2"},
		{"seckill/confirm", sale, []string{"o1", "bob"}, "gone 0  0 1 2"},
		{"seckill/cancel", sale, []string{"o7", "c7", "", "bob"}, "ok 1  0 1 2"}, // before it comes
		{"seckill/reserve", sale, []string{"100", "", "o7", "bob", "1", "c7"}, "gone 0  1 2 0 0"},
		{"lock/acquire", lock, []string{"10000", "c1|10000|ann", "5000000"}, "ok 5000000 0"},
		{"lock/acquire", lock, []string{"10000", "c1|10000|ann", "6000000"}, "ok 5000000 0"},
		{"lock/acquire", lock, []string{"10000", "c2|10000|bob", "6000999"}, "busy 0 9000"},
		{"lock/peek", queue[:2], []string{"6000000"}, "c1|10000|ann 9000 5000000 0"},
		{"lock/renew", lock[:1], []string{"10000", "8000000", "c0|10000|ann", "c1|10000|ann"}, "1"},
		{"lock/acquire", lock, []string{"10000", "c2|10000|bob", "1000000"}, "busy 0 10000"}, // set back
		{"lock/wait", queue, []string{"p1", "10000", "0", "0", "1000000", "w1|10000|bob"}, "p1 10000  5000000"},
		{"lock/release", give, []string{"c1|10000|ann", "60000", "", "2000000"}, "1 p1"},
		{"lock/acquire", behind, []string{"10000", "c2|10000|bob", "2000000"}, "busy 0 1"}, // behind bob
		{"lock/acquire", lock, []string{"10000", "c1|10000|ann", "2000000"}, "gone 0 0"},
		{"lock/wait", queue, []string{"p1", "10000", "0", "0", "2000000", "w1|10000|bob"}, " 10000 1 5000001"},
		{"lock/wait", queue, []string{"p1", "10000", "0", "0", "2000000", "w1|10000|bob"}, " 10000 1 5000001"},
		{"lock/break", lock[:1], nil, "1"},
		{"lock/break", lock[:1], nil, "0"},
		{"lock/renew", lock[:1], []string{"10000", "3000000", "w1|10000|bob"}, "1"},
		{"lock/peek", queue[:2], []string{"3000000"}, " 0 5000001 0"},
		{"semaphore/acquire", pool, []string{"3", "2", "10000", "c1|10000|ann", "5000"}, "ok 1 0"},
		{"semaphore/acquire", pool, []string{"3", "2", "10000", "c1|10000|ann", "6000"}, "ok 1 0"},
		{"semaphore/acquire", pool, []string{"3", "2", "10000", "c2|10000|bob", "6000"}, "busy 1 9000"},
		{"semaphore/acquire", pool, []string{"3", "1", "10000", "c3|10000|cid", "7000"}, "ok 0 0"},
		{"semaphore/peek", line[:2], []string{"7000"},
			"7000 0 1|c1|10000|ann 15000 2|c1|10000|ann 15000 1|c3|10000|cid 17000"},
		{"semaphore/renew", pool[:1], []string{"10000", "8000", "c1|10000|ann", "2", "c2|10000|bob", "2"}, "2"},
		{"semaphore/renew", pool[:1], []string{"10000", "17000", "c1|10000|ann", "2", "c3|10000|cid", "1"}, "2"},
		{"semaphore/acquire", pool, []string{"2", "1", "10000", "c4|10000|dan", "1000"}, "busy 0 10000"}, // set back
		{"semaphore/release", leave, []string{"c1|10000|ann", "2", "60000"}, "1 "},
		{"semaphore/release", leave, []string{"c1|10000|ann", "2", "0", "", "1000"}, "0 "},
		{"semaphore/acquire", pool, []string{"3", "2", "10000", "c1|10000|ann", "1000"}, "gone 2 0"},
		{"semaphore/evict", pool[:1], []string{"bob"}, "0"},
		{"semaphore/evict", pool[:1], []string{"cid"}, "1"},
		{"semaphore/evict", pool[:1], nil, "0"},
		{"semaphore/acquire", other, []string{"3", "2", "10000", "c5|10000|ann", "5000"}, "ok 1 0"},
		{"semaphore/wait", line,
			[]string{"p1", "10000", "0", "0", "6000", "w1|10000|bob", "2", "3", "w2|10000|cid", "1", "3"},
			"p1 9000 "},
		{"semaphore/acquire", other, []string{"3", "1", "10000", "c6|10000|ann", "6000"}, "busy 1 9000"}, // behind bob
		{"semaphore/wait", line[:4], []string{"p2", "10000", "0", "0", "6000", "w3|10000|dan", "1", "3"}, "p1 300 "},
		{"semaphore/release", leave, []string{"c5|10000|ann", "2", "0", "", "6200"}, "1 p1"},
		{"semaphore/wait", line,
			[]string{"p1", "10000", "0", "0", "7000", "w1|10000|bob", "2", "3", "w2|10000|cid", "1", "3"},
			" 2000 1 2"},
		{"semaphore/wait", line,
			[]string{"p1", "10000", "0", "0", "7000", "w1|10000|bob", "2", "3", "w2|10000|cid", "1", "3"},
			" 2000 1 2"},
		{"semaphore/release", leave, []string{"w1|10000|bob", "2", "60000", "p1", "8000"}, "1 p2"},
		{"semaphore/wait", line[:3], []string{"p3", "10000", "0", "0", "10000"}, " 7000 "}, // p2 is gone
		{"delay/schedule", slot, []string{"a", "4102444805000", "pay", "60000", "c1", "0", "0", "4102444802000"}, "1"},
		{"delay/schedule", slot, []string{"a", "4102444805000", "pay", "60000", "c1", "0", "0", "4102444802000"}, "1"},
		{"delay/schedule", slot, []string{"a", "4102444805000", "pay", "60000", "c2", "0", "0", "4102444802000"}, "0"},
		{"delay/schedule", slot, []string{"z", "0", "pay", "60000", "cz", "805", "100", "4102444802000"}, "-1"},
		{"delay/schedule", slot, []string{"b", "0", "two", "60000", "c3", "0", "0", "4102444806000"}, "1"},
		{"delay/move", with("op1"), []string{"b", "p", "4102444807000", "60000", "4102444806000"}, "ok"},
		{"delay/move", with("op1"), []string{"b", "p", "4102444807000", "60000", "4102444806000"}, "ok"},
		{"delay/claim", with("claim1"), []string{"9", "1000", "2", "9999", "60000", "60000", "0", "4102444804000"}, "1000 0 0 0 0"},
		{"delay/claim", with("claim1"), []string{"9", "1000", "2", "9999", "60000", "60000", "0", "4102444806000"},
			"1000 0 0 0 4102444806000000 a 4102444805000 1 pay"},
		{"delay/claim", with("claim1"), []string{"9", "1000", "2", "9999", "60000", "60000", "0", "4102444806000"},
			"1000 0 0 0 4102444806000000 a 4102444805000 1 pay"},
		{"delay/extend", slot, []string{"3000", "4102444806500", "a", "4102444806000000", "b", "4102444806000000"}, "2"},
		{"delay/peek", looked, []string{"r", "9", "4102444807000"}, "1 1 1 0 a 4102444805000 1 4102444809500 "},
		{"delay/nack", slot, []string{"a", "1", "no", "500", "2", "0", "60000", "4102444807000"}, "lost"},
		{"delay/nack", slot, []string{"a", "4102444806000000", "no", "500", "2", "0", "60000", "4102444807000"}, "ok"},
		{"delay/nack", slot, []string{"a", "4102444806000000", "no", "500", "2", "0", "60000", "4102444807000"}, "ok"},
		{"delay/find", []string{slot[1], slot[2], slot[4], slot[5], slot[6]}, []string{"a", "4102444807000"},
			"p 4102444807500 1 0 no pay"},
		{"delay/claim", with("claim2"), []string{"9", "1000", "2", "9999", "60000", "60000", "0", "4102444808000"},
			"1000 0 0 0 4102444808000000 b 4102444807000 1 two a 4102444807500 2 pay"},
		{"delay/ack", slot, []string{"b", "4102444808000000", "42", "60000", "4102444808500"}, "1"},
		{"delay/ack", slot, []string{"b", "4102444808000000", "42", "60000", "4102444808500"}, "0"},
		{"delay/ack", slot, []string{"b", "4102444808000001", "42", "60000", "4102444808500"}, "-1"},
		{"delay/claim", with("claim3"), []string{"9", "1000", "2", "9999", "60000", "60000", "0", "4102444809000"},
			"-1 1 0 1 0"},
		{"delay/peek", looked, []string{"p", "9", "4102444809000"},
			"1 1 0 0 a 4102444809000 1 4102444809000 the lease was over"},
		{"delay/claim", with("claim4"), []string{"9", "1000", "2", "9999", "60000", "60000", "1", "4102444809000"},
			"1000 0 0 2 4102444809000000 a 4102444809000 2 pay"},
		{"delay/claim", with("claim4"), []string{"9", "1000", "2", "9999", "60000", "60000", "1", "4102444809000"},
			"1000 0 0 2 4102444809000000 a 4102444809000 2 pay"},
		{"delay/claim", with("claim5"), []string{"9", "1000", "2", "9999", "60000", "60000", "1", "4102444810000"},
			"-1 0 1 0 0"},
		{"delay/peek", looked, []string{"x", "9", "4102444810000"},
			"0 0 0 1 a 4102444809000 2 4102444870000 the lease was over"},
		{"delay/move", with("op2"), []string{"a", "x", "0", "60000", "4102444810000"}, "ok"},
		{"delay/claim", with("claim6"), []string{"9", "1000", "2", "9999", "60000", "60000", "0", "4102444810000"},
			"-1 0 0 1 0"},
		{"delay/claim", with("claim7"), []string{"9", "1000", "2", "9999", "60000", "60000", "1", "4102444810000"},
			"1000 0 0 2 4102444810000000 a 4102444810000 1 pay"},
		{"delay/release", with("claim7"), []string{"60000", "4102444810000"}, "1"},
		{"delay/release", with("claim7"), []string{"60000", "4102444810000"}, "0"},
		{"delay/claim", with("claim7"), []string{"9", "1000", "2", "9999", "60000", "60000", "1", "4102444810000"},
			"-1 0 0 0 0"},
		{"delay/move", with("op5"), []string{"a", "p", "4102444811000", "60000", "4102444810000"}, "ok"},
		{"delay/claim", with("claim8"), []string{"9", "1000", "2", "9999", "60000", "60000", "1", "4102444810000"},
			"1000 0 0 0 0"},
		{"delay/claim", with("claim9"), []string{"9", "1000", "2", "9999", "60000", "60000", "1", "4102444811000"},
			"1000 0 0 2 4102444811000000 a 4102444811000 1 pay"},
		{"delay/nack", slot, []string{"a", "4102444811000000", "", "0", "2", "1", "60000", "4102444811000"}, "ok"},
		{"delay/claim", with("claimA"), []string{"9", "1000", "2", "9999", "60000", "60000", "0", "4102444811000"},
			"-1 0 0 1 0"},
		{"delay/claim", with("claimB"), []string{"9", "1000", "2", "9999", "60000", "60000", "1", "4102444811000"},
			"1000 0 0 2 4102444811000001 a 4102444811000 1 pay"},
		{"delay/nack", slot, []string{"a", "4102444811000001", "", "0", "2", "0", "60000", "4102444811000"}, "ok"},
		{"delay/claim", with("claimC"), []string{"9", "1000", "2", "9999", "60000", "60000", "0", "4102444811000"},
			"1000 0 0 0 4102444811000002 a 4102444811000 2 pay"},
		{"delay/release", with("claimC"), []string{"60000", "4102444811000"}, "1"},
		{"delay/remove", with("op3"), []string{"a", "x", "60000", "4102444809000"}, "not_now"},
		{"delay/remove", with("op3"), []string{"a", "p", "60000", "4102444809000"}, "ok"},
		{"delay/remove", with("op4"), []string{"a", "p", "60000", "4102444809000"}, "not_found"},
		{"core/touch", sale[:1], nil, "1"},
		{"core/touch", []string{"nobody{tv}"}, nil, "0"},
		{"seckill/sweep", sale, []string{"100"}, "ok 0"},
		{"redpacket/create", packet, []string{"9", "1", expires, "1000", "c1", over, "4", "3", "2"}, "expired"},
		{"redpacket/create", packet, []string{"9", "1", expires, "1000", "c1", "", "4", "3", "2"}, "made"},
		{"redpacket/create", packet, []string{"9", "1", expires, "1000", "c1", "", "4", "3", "2"}, "made"},
		{"redpacket/create", packet, []string{"9", "1", expires, "1000", "c2", "", "1", "1", "7"}, "exists"},
		{"redpacket/create", packet, []string{"9", "1", expires, "1000", "c3", "", "5", "4"}, "other"},
		{"redpacket/grab", packet, []string{"o1", "ann", "c1"}, "ok 0 4 2 3"},
		{"redpacket/grab", packet, []string{"o1", "ann", "c1"}, "ok 0 4 2 3"},
		{"redpacket/grab", packet, []string{"o1", "ann", "c2"}, "ok 1 4 2 3"},
		{"redpacket/grab", packet, []string{"o2", "ann", "c3"}, "duplicate 0 4 2 3"},
		{"redpacket/grab", packet, []string{"o1", "bob", "c4"}, "conflict 0 0 2 3"},
		{"redpacket/refund", packet[:3], nil, "early 0"},
		{"redpacket/audit", packet[:3], nil, "9 1 " + expires + " 3 0 3 2 ann 4"},
		{"redpacket/refund", packet[:3], []string{over}, "ok 5"},
		{"redpacket/refund", packet[:3], []string{over}, "ok 5"},
		{"redpacket/grab", packet, []string{"o5", "cid", "c5"}, "closed 0 0 0 3"},
		{"redpacket/audit", packet[:3], nil, "9 1 " + expires + " 3 5  ann 4"},
		{"seckill/restock", sale, []string{"r1", "3"}, "ok 5 4 0 1 X"},
		{"seckill/restock", sale, []string{"r1", "3"}, "ok 5 4 0 1 X"},
		{"seckill/restock", sale, []string{"r1", "4"}, "conflict 5 4 0 1 X"},
		{"seckill/restock", sale, []string{"r2", "-5"}, "too_few 5 4 0 1 X"},
		{"seckill/restock", sale, []string{"r2", "9007199254740991"}, "too_many 5 4 0 1 X"},
		{"seckill/restock", sale, []string{"r2", "-4"}, "ok 1 0 0 1 X"},
		{"seckill/close", sale, nil, "1"},
		{"seckill/close", sale, nil, "0"},
		{"seckill/reserve", sale, []string{"100", "", "o3", "cid", "1", "c3"}, "closed 0  0 1 0 0"},
		{"seckill/reserve", plain, []string{"100", "", "o1", "ann", "1", "c1"}, "not_ready 0  0 0 0 0"},
		{"seckill/restock", plain, []string{"r1", "3"}, "not_ready 0 0 0 0 "},
		{"seckill/close", plain, nil, "-1"},
		{"seckill/open", plain, []string{"1", "0", "0", "1", "1000", "600000", "", "5000"}, "1"},
		{"seckill/reserve", plain, []string{"100", "5000", "o1", "ann", "1", "c1"}, "ok 0 held 0 1 1000 0"},
		{"seckill/sweep", plain, []string{"100", "6000"}, "ok 1"},
		{"seckill/confirm", plain, []string{"o1", "ann", "7000"}, "ok 0 ann 1 0 1"},
		{"seckill/restock", plain, []string{"r1", "3", "7000"}, "ok 4 3 0 1 5000"},
		{"seckill/close", plain, []string{"7000"}, "1"},
		{"buckets/root", root, nil, "none 0  0 0"},
		{"buckets/begin", root, []string{"2", "9", "0", "0", "1", "1000", "660000", "5000"},
			"opening 2 5000 9 0 0 1 1000 660000"},
		{"buckets/begin", root, []string{"3", "7", "0", "0", "1", "1000", "660000", "6000"},
			"opening 2 5000 9 0 0 1 1000 660000"},
		{"seckill/open", root, []string{"1", "0", "0", "1", "1000", "600000"}, "0"},
		{"seckill/open", zero, []string{"5", "0", "0", "1", "1000", "660000", "5000"}, "1"},
		{"seckill/open", one, []string{"4", "0", "0", "1", "1000", "660000", "5000"}, "1"},
		{"buckets/root", root, nil, "opening 2 5000 X 0"},
		{"buckets/root", root, []string{"4000"}, "opening 2 5000 X 0"},
		{"buckets/root", root, []string{"5000"}, "ready 2 5000 X 1"},
		{"buckets/root", root, []string{"5000"}, "ready 2 5000 X 0"},
		{"buckets/begin", root, []string{"2", "9", "0", "0", "1", "1000", "660000"},
			"ready 2 5000 9 0 0 1 1000 660000"},
		{"buckets/begin", sale, []string{"2", "9", "0", "0", "1", "1000", "660000"}, "remains 0  0 0 0 0 0 0"},
		{"buckets/root", sale, nil, "none 0  0 0"},
		{"buckets/lend", zero, []string{"0", "1", "1"}, "ok 1 2"}, // half of what is left
		{"buckets/lend", zero, []string{"0", "1", "3"}, "ok 1 2"}, // that is still on its way
		{"buckets/loans", zero, nil, "ok 3 1 0 1 1 2"},
		{"buckets/accept", one, []string{"0", "1", "1", "2"}, "1"},
		{"buckets/accept", one, []string{"0", "1", "1", "2"}, "0"},
		{"buckets/keep", zero, []string{"1", "1"}, "1"},
		{"buckets/keep", zero, []string{"1", "1"}, "0"},
		{"buckets/lend", zero, []string{"0", "1", "9"}, "ok 2 3"}, // all
		{"buckets/keep", zero, []string{"1", "1"}, "0"},
		{"buckets/accept", one, []string{"0", "1", "2", "3"}, "1"},
		{"buckets/accept", one, []string{"0", "1", "1", "2"}, "0"},
		{"buckets/keep", zero, []string{"1", "2"}, "1"},
		{"buckets/lend", zero, []string{"0", "1", "1"}, "none 0 0"},
		{"buckets/loans", zero, nil, "ok 0 2 0"},
		{"buckets/loans", one, nil, "ok 9 2 0"},
		{"seckill/reserve", one, []string{"100", "5000", "o1", "ann", "1", "c1"}, "ok 0 held 8 9 1000 0"},
		{"buckets/loans", one, []string{"6000"}, "ok 8 2 1"},
		{"seckill/sweep", one, []string{"100", "6000"}, "ok 1"},
		{"buckets/loans", one, []string{"6000"}, "ok 9 3 0"},
		{"buckets/keep", one, nil, "1"},
		{"core/delete", one[1:2], nil, "1"},
		{"seckill/reserve", one, []string{"100", "6000", "o3", "bob", "1", "c9"}, "lost buyers 0  9 9 0 0"},
		{"buckets/loans", one, nil, "lost buyers 0 0 0"},
		{"seckill/open", append([]string{"b{tv|5000|1}:none"}, one[1:]...),
			[]string{"4", "0", "0", "1", "1000", "660000", "5000"}, "-1"},
		{"seckill/repair", []string{one[0], one[1], "b{tv|5000|1}:repair|r"}, []string{"hash", "|", "5000"}, "1"},
		{"seckill/repair", []string{one[0], one[1], "b{tv|5000|1}:repair|r"}, []string{"end"}, "1"},
		{"seckill/repair", []string{one[0], one[1], "b{tv|5000|1}:repair|r"}, []string{"end"}, "0"},
		{"seckill/reserve", one, []string{"100", "6000", "o3", "bob", "1", "c9"}, "ok 0 held 8 9 1000 0"},
		{"core/delete", root[:1], nil, "1"},
		{"buckets/begin", root, []string{"2", "9", "0", "0", "1", "1000", "660000"}, "remains 0  0 0 0 0 0 0"},
		{"buckets/keep", lost, nil, "-1"},
		{"seckill/sweep", lost, []string{"100"}, "not_ready 0"},
		{"buckets/loans", lost, nil, "not_ready 0 0 0"},
		{"buckets/lend", lost, []string{"2", "1", "1"}, "not_ready 0 0"},
		{"buckets/accept", lost, []string{"0", "2", "1", "2"}, "-1"},
		{"buckets/keep", lost, []string{"1", "1"}, "-1"},
		{"buckets/root", root, nil, "none 0  0 0"},
		{"buckets/root", root, []string{"5000", "restore"}, "ready 2 5000 X 1"},
		{"bans/ban", []string{"n{a}", "{a}n"}, []string{"strike", "60000", "1", "1000", "1000", "4000", "0", "5000000"},
			"0 0 0 0"},
		{"bans/ban", []string{"n{a}", "{a}n"}, []string{"strike", "60000", "1", "1000", "1000", "4000", "0", "7000000"},
			"0 0 0 0"},
		{"seckill/open", stock, []string{"20", "0", "0", "16", "1000", "600000", "", "5000"}, "1"},
		{"seckill/reserve", stock, many, strings.Join(held, " ")},
		{"seckill/sweep", stock, []string{"100", "7000"}, "ok 16"},
		{"seckill/reserve", stock, []string{"100", "7000", "n1", "ann", "1", "d1"}, "ok 0 held 19 20 1000 0"},
		{"seckill/sweep", stock, []string{"100", "8000"}, "ok 1"}, // the first of ann's is forgotten
		{"budget/check", org, spend("5000000", "1", "call01"), "ok 5000000 5000000 2 0 0 60000000 9 0 0 8995000000"},
		{"budget/check", org, spend("6000000", "2", "call02"), "limited 6000000 0 2 1 59000000 59000000 9 1 0 8994000000"},
		{"budget/check", org, spend("35000000", "1", "call03"), "ok 35000000 35000000 2 1 0 30000000 9 1 0 8965000000"},
		{"budget/check", org, spend("65500000", "1", "call04"), "ok 65500000 65500000 2 1 0 29500000 9 2 0 8934500000"}, // the first has left the window
		{"budget/refund", org, []string{"1", "call04", "first", "65500000", "65600000", "acme"}, "1"},
		{"budget/refund", org, []string{"1", "call04", "first", "65500000", "65600000", "acme"}, "0"},
		{"budget/refund", org, []string{"1", "call05", "undo", "0", "65600000", "acme"}, "0"},
		{"budget/check", org, spend("65600000", "1", "call05"), "gone X 0 0"},
		{"budget/restore", []string{org[0], org[1], org[3], "u{acme}:audit"},
			[]string{"acme", "0", "9000000", "4", "60000", "ops", "", "acme", "65700000"}, "6"},
		{"budget/set", []string{org[0], "u{acme}:audit"},
			[]string{"!acme", "0", "ops", "", "pause", "acme", "0", "65700"}, "1"},
		{"budget/check", org, spend("65800000", "1", "call06"), "paused X 1 0"},
		{"waitingroom/join", room, inRoom("10000000", "", ""), "10000000 10000 65536 1 0"},
		{"waitingroom/enter", room, inRoom("10000100", "0", "10000", "65536", "a", "1", "0"), "in 10000100 10030100 10060100"},
		{"waitingroom/enter", room, inRoom("10000100", "0", "10000", "65537", "b", "2", "0"), "wait 10000100"},
		{"waitingroom/enter", room, inRoom("10000100", "0", "9000", "65537", "c", "3", "0"), "moved 10000100 10000 1"},
		{"waitingroom/enter", room, inRoom("10000100", "", "10000", "65536", "a", "1", "0"), "in 10000100 10030100 10060100"},
		{"waitingroom/set", room, inRoom("10000200", "", "", "2"), "open 2"},
		{"waitingroom/tick", room, inRoom("10006000", "0", "0", "1", "65537", "65536:a", "1", "10030100", "10060100"),
			"10006000 10000 65537 65536 0 1 1 0 0 1 0 open 2  s 10006000 65536 8 65537 1 10036000"},
		{"waitingroom/leave", room, inRoom("10006100", "0", "10000", "65536", "a", "1"), "1"},
		{"waitingroom/leave", room, inRoom("10006100", "", "10000", "65536", "a", "1"), "-1"},
		{"waitingroom/tick", room, inRoom("10021000", "0", "0", "0"), "10021000 10000 65537 65536 2 0 0 0 0 1 1 open 2  s 10021000 65536 8 65537 0 65536:a 10036100"},
		{"waitingroom/set", room, inRoom("10021100", "closed", "later", "0"), "closed "},
	}
}
