package warn_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/warntest"
	"github.com/gatehouse-go/gatehouse/internal/warn"
)

func TestTellsOncePerSubject(t *testing.T) {
	log := warntest.Record(t)
	for range 3 {
		warn.Twice.Tell(t.Context(), nil, "site", "guard", "site")
		warn.Twice.Tell(t.Context(), nil, "poll", "guard", "poll")
		warn.Unread.Tell(t.Context(), nil, "", "header", "Forwarded")
	}
	told := log.Want(t, "GH004", "GH004", "GH001")
	if told[0]["guard"] != "site" || told[1]["guard"] != "poll" || told[2]["header"] != "Forwarded" {
		t.Errorf("told %v", told)
	}
	for _, w := range told {
		if w["level"] != "WARN" || !strings.HasPrefix(w["msg"], "gatehouse: ") ||
			w["see"] != "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/errors.md#"+strings.ToLower(w["code"]) {
			t.Errorf("told %v", w)
		}
	}
	if !warn.Twice.Told("site") || warn.Twice.Told("sale") || warn.Twice.Told("") || warn.OneBucket.Told("") {
		t.Error("it does not know what it has told")
	}
	warn.Twice.Forget()
	warn.Twice.Tell(t.Context(), nil, "site")
	log.Want(t, "GH004")
}

func TestManyGoroutinesTellOnce(t *testing.T) {
	log := warntest.Record(t)
	for range 500 {
		start := make(chan struct{})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				<-start
				warn.Twice.Tell(t.Context(), nil, "site")
			})
		}
		close(start)
		all.Wait()
		log.Want(t, "GH004")
		warn.Twice.Forget()
	}
}

func TestSubjectsAreBounded(t *testing.T) {
	log := warntest.Record(t)
	for i := range 1000 {
		warn.Twice.Tell(t.Context(), nil, fmt.Sprint(i))
	}
	if told := log.Warnings(t); len(told) != 100 {
		t.Errorf("told of %d subjects", len(told))
	}
}

func TestToldAllocatesNothing(t *testing.T) {
	warntest.Record(t)
	warn.Twice.Tell(t.Context(), nil, "site")
	for _, subject := range []string{"site", "poll", ""} {
		if n := testing.AllocsPerRun(100, func() { warn.Twice.Told(subject) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// TestTheGuideExplainsEveryWarning: docs/guides/errors.md explains each code, and no other code.
func TestTheGuideExplainsEveryWarning(t *testing.T) {
	text, err := os.ReadFile("../../docs/guides/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for _, w := range warn.All() {
		if want := fmt.Sprintf("\n| <a id=%q></a>`%s` | ", w.Anchor(), w.Code()); !strings.Contains(string(text),
			want) {
			t.Errorf("the page does not have %q", want)
		}
		if w.Anchor() != strings.ToLower(w.Code()) || anchors[w.Anchor()] {
			t.Errorf("%s has the anchor %s", w.Code(), w.Anchor())
		}
		anchors[w.Anchor()] = true
	}
	if n := strings.Count(string(text), `<a id="gh`); n != len(anchors) {
		t.Errorf("the page explains %d warnings, there are %q", n, slices.Sorted(maps.Keys(anchors)))
	}
}
