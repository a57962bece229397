package main

import (
	"strings"
	"testing"
)

func TestCheckReportsEveryMistake(t *testing.T) {
	t.Parallel()
	good, bad := rulesFile(t, someRules), rulesFile(t, `guards:
  site: {sliding_window: {limits: "3/fortnight"}}
rules:
  api: [{guard: sight, who: ip}]
`)
	gatehouse(t, nil, "", "check", good).want(t, 0, good+": ok, with 4 guards and 3 lists of rules", "")
	a := gatehouse(t, nil, "", "check", good, bad)
	a.want(t, 1, bad+":2:", "")
	if !strings.Contains(a.out, bad+":4:") || !strings.Contains(a.out, good+": ok") {
		t.Errorf("not all mistakes, or not all files: %s", a.out)
	}
	got := gatehouse(t, nil, "", "check", "-json", good, bad).parse(t)["files"].([]any)
	if mistakes := got[1].(map[string]any)["mistakes"].([]any); len(got) != 2 || len(mistakes) != 2 ||
		mistakes[0].(map[string]any)["line"] != 2.0 {
		t.Errorf("check -json: %v", got)
	}
	gatehouse(t, nil, "", "check").want(t, 2, "", "no file is named")
	gatehouse(t, nil, "", "check", good+".none").want(t, 2, "", "no such file")
}

func TestFunctionsOfTheProgramAreNamedByFlags(t *testing.T) {
	t.Parallel()
	file := rulesFile(t, `guards:
  site: {sliding_window: {limits: "30/min"}}
rules:
  api: [{guard: site, who: tenant, cost: tokens}]
`)
	gatehouse(t, nil, "", "check", file).want(t, 1, "tenant", "")
	gatehouse(t, nil, "", "check", file, "-key", "tenant", "-cost", "tokens").want(t, 0, "ok", "")
	gatehouse(t, nil, "", "check", file, "-key", "ip").want(t, 2, "", "ip")
	gatehouse(t, nil, "", "check", file, "-cost", "tokens=none").want(t, 2, "", `"none" is no number of units`)
	gatehouse(t, nil, "", "explain", file, "-key", "tenant=acme", "-cost", "tokens=20").
		want(t, 0, "actor     acme\n    cost      20\n", "")
	gatehouse(t, nil, "", "explain", file, "-key", "tenant", "-cost", "tokens").
		want(t, 0, "the request gets 400 Bad Request", "")
}
