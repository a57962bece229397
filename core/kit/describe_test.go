package kit_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/everyguard"
)

// TestEveryGuardDescribesItself: everyguard knows each package below core that registers guards, and each
// guard describes what operators and clients need.
func TestEveryGuardDescribesItself(t *testing.T) {
	kinds, tools := everyguard.Kinds(), everyguard.Tools()
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Dir(file)
		registers := !strings.HasSuffix(file, "_test.go") && strings.Contains(string(text), ".Register(")
		if registers && kinds[folder] == nil && tools[folder] == nil {
			t.Errorf("%s makes guards, but everyguard has none of them", folder)
		}
	}
	for folder, g := range kinds {
		says := kit.DescriptionOf(g)
		if says.Kind == "" || len(says.Answers) == 0 || len(says.Operations) == 0 || len(says.Ops) == 0 {
			t.Errorf("%s: %+v", folder, says)
		}
		var reasons []core.Reason
		for _, a := range says.Answers {
			if slices.Contains(reasons, a.Reason) || a.Status < 400 || a.Title == "" ||
				!strings.HasSuffix(a.Detail, ".") || a.Type == "" {
				t.Errorf("%s: %+v", folder, a)
			}
			reasons = append(reasons, a.Reason)
		}
		wantOperations(t, folder, says.Operations)
	}
	for folder, tool := range tools {
		says := kit.DescriptionOf(tool)
		if says.Kind == "" || len(says.Answers) != 0 || len(says.Operations) == 0 || len(says.Ops) == 0 {
			t.Errorf("%s: %+v", folder, says)
		}
		wantOperations(t, folder, says.Operations)
	}
}

// wantOperations wants operations with names that differ.
func wantOperations(t *testing.T, folder string, operations []kit.Operation) {
	t.Helper()
	var names []string
	for _, o := range operations {
		if slices.Contains(names, o.Name) || !regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(o.Name) ||
			o.Run == nil {
			t.Errorf("%s: operation %q", folder, o.Name)
		}
		names = append(names, o.Name)
	}
}

// TestEveryRefusalIsDescribed: each reason has an answer, except the reasons that allow. That of a deferred
// request is not a guard's: the middleware gives it in place of one.
func TestEveryRefusalIsDescribed(t *testing.T) {
	source, err := os.ReadFile("../decision.go")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]core.Reason{}
	for _, m := range regexp.MustCompile(`(Reason\w+) Reason = "(\w+)"`).FindAllStringSubmatch(string(source),
		-1) {
		values[m[1]] = core.Reason(m[2])
	}
	answered := map[core.Reason]bool{core.ReasonOK: true, core.ReasonAgain: true, core.ReasonChanged: true,
		core.ReasonReplayed: true, core.ReasonDeferred: true}
	for _, g := range everyguard.Kinds() {
		for _, a := range kit.DescriptionOf(g).Answers {
			answered[a.Reason] = true
		}
	}
	for name, reason := range values {
		if !answered[reason] {
			t.Errorf("no guard describes %s", name)
		}
	}
	if len(values) < 20 {
		t.Errorf("found only %v", values)
	}
}

func TestStandardAnswersOfReasonsThatHaveNone(t *testing.T) {
	if _, ok := kit.StandardAnswer("own"); ok {
		t.Error("an application's own reason has a standard answer")
	}
	defer func() {
		if recover() == nil {
			t.Error("StandardAnswers returned an answer")
		}
	}()
	kit.StandardAnswers(core.ReasonQuota, "own")
}

func TestOperationsReadTheirFields(t *testing.T) {
	o := kit.Operation{Name: "all", Fields: []kit.Field{
		{Name: "actor", Required: true}, {Name: "units", Kind: kit.FieldNumber},
		{Name: "length", Kind: kit.FieldDuration},
		{Name: "share", Kind: kit.FieldPercent}, {Name: "on", Kind: kit.FieldFlag}, {Name: "resource"},
		{Name: "item"}, {Name: "id"},
	}}
	in, err := o.Read(map[string]string{
		"actor": "ann", "units": "-7", "length": "90m", "share": "12.5", "on": "true", "resource": "r", "item": "i",
		"id": "o",
	})
	if err != nil || in.Text("actor") != "ann" || in.Number("units") != -7 ||
		in.Duration("length") != 90*time.Minute ||
		in.Percent("share") != 12.5 || !in.Flag("on") {
		t.Errorf("%+v, %v", in, err)
	}
	if got, want := in.Attempt(), (core.Attempt{Actor: "ann", Resource: "r", Item: "i", ID: "o"}); got != want {
		t.Errorf("%+v", got)
	}
	in, err = o.Read(map[string]string{"actor": "ann", "units": ""})
	if err != nil || in.Number("units") != 0 || in.Duration("length") != 0 || in.Flag("on") ||
		in.Percent("share") != 0 {
		t.Errorf("left out: %+v, %v", in, err)
	}
	for want, texts := range map[string]map[string]string{
		"actor is missing":                                  {"units": "1"},
		`there is no field "unit"`:                          {"actor": "ann", "unit": "1"},
		`units is not a whole number: "1.5"`:                {"actor": "ann", "units": "1.5"},
		`length is not a duration, such as 90m: "tomorrow"`: {"actor": "ann", "length": "tomorrow"},
		`share is not a percentage: "half"`:                 {"actor": "ann", "share": "half"},
		`on is not true or false: "maybe"`:                  {"actor": "ann", "on": "maybe"},
	} {
		if _, err := o.Read(texts); err == nil || err.Error() != want || !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%v: %v, want %s", texts, err, want)
		}
	}
}
