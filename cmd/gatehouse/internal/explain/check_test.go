package explain

import (
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
)

func TestCheckReportsEveryMistake(t *testing.T) {
	t.Parallel()
	good, bad := clitest.RulesFile(t, clitest.Rules), clitest.RulesFile(t, `guards:
  site: {sliding_window: {limits: "3/fortnight"}}
rules:
  api: [{guard: sight, who: ip}]
`)
	clitest.Run(t, nil, "", "check", good).Want(t, 0, good+": ok, with 4 guards and 3 lists of rules", "")
	a := clitest.Run(t, nil, "", "check", good, bad)
	a.Want(t, 1, bad+":2:", "")
	if !strings.Contains(a.Out, bad+":4:") || !strings.Contains(a.Out, good+": ok") {
		t.Errorf("not all mistakes, or not all files: %s", a.Out)
	}
	got := clitest.Run(t, nil, "", "check", "-json", good, bad).JSON(t)["files"].([]any)
	if mistakes := got[1].(map[string]any)["mistakes"].([]any); len(got) != 2 || len(mistakes) != 2 ||
		mistakes[0].(map[string]any)["line"] != 2.0 {
		t.Errorf("check -json: %v", got)
	}
	clitest.Run(t, nil, "", "check").Want(t, 2, "", "no file is named")
	clitest.Run(t, nil, "", "check", good+".none").Want(t, 2, "", "no such file")
}

func TestFunctionsOfTheProgramAreNamedByFlags(t *testing.T) {
	t.Parallel()
	file := clitest.RulesFile(t, `guards:
  site: {sliding_window: {limits: "30/min"}}
rules:
  api: [{guard: site, who: tenant, cost: tokens}]
`)
	clitest.Run(t, nil, "", "check", file).Want(t, 1, "tenant", "")
	clitest.Run(t, nil, "", "check", file, "-key", "tenant", "-cost", "tokens").Want(t, 0, "ok", "")
	clitest.Run(t, nil, "", "check", file, "-key", "ip").Want(t, 2, "", "ip")
	clitest.Run(t, nil, "", "check", file, "-cost", "tokens=none").Want(t, 2, "", `"none" is no number of units`)
	clitest.Run(t, nil, "", "explain", file, "-key", "tenant=acme", "-cost", "tokens=20").
		Want(t, 0, "actor     acme\n    cost      20\n", "")
	clitest.Run(t, nil, "", "explain", file, "-key", "tenant", "-cost", "tokens").
		Want(t, 0, "the request gets 400 Bad Request", "")
}
