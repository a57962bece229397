package lives

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/everyguard"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestEveryGuardHasALife: a guard or tool without an alphabet and a definition fails here.
func TestEveryGuardHasALife(t *testing.T) {
	known := map[string]bool{}
	for _, l := range all {
		for _, name := range l.of {
			known[name] = true
		}
		if len(l.events) == 0 || len(l.events) > 40 || l.world == nil {
			t.Errorf("%s: a life has a world and 1 to 40 events", l.name)
		}
		for _, e := range l.events {
			if strings.ContainsAny(e.name, " '") {
				t.Errorf("%s: event %q has a space or a quote, which EXPLORE cannot have", l.name, e.name)
			}
		}
	}
	for name := range everyguard.Kinds() {
		if !known[name] {
			t.Errorf("%s has no life: write internal/testkit/lives/%s_test.go",
				name, strings.ReplaceAll(name, "/", "_"))
		}
	}
	for name := range everyguard.Tools() {
		if !known[name] {
			t.Errorf("%s has no life: write internal/testkit/lives/%s_test.go", name, name)
		}
	}
}

var update = flag.Bool("update", false, "write the table of lives in docs/contracts.md")

// TestTableOfLives: docs/contracts.md has the rows of the definitions.
func TestTableOfLives(t *testing.T) {
	rows := []string{}
	for _, l := range all {
		if r := l.row; r != (row{}) {
			rows = append(rows,
				fmt.Sprintf("| %s | %s | %s | %s | %s |\n", l.name, r.over, r.remembers, r.forgets, r.back))
		}
	}
	slices.Sort(rows)
	table := "| | when a life is over | remembered in the next | forgotten | what a client brings back |\n" +
		"|---|---|---|---|---|\n" + strings.Join(rows, "")
	guardtest.WantOnPage(t, "../../../docs/contracts.md", "lives", table, *update)
}

// counter is a toy: a counter that can be closed, opened again and given back to. It has the defects of its
// field.
type counter struct {
	p      *place
	name   string
	defect string

	// the definition: what was taken in this life
	taken int
}

func (c *counter) begin(name string) { c.name, c.taken = name, 0 }
func (c *counter) end() error        { return nil }

func (c *counter) do(event string) (string, error) {
	ctx := context.Background()
	switch event {
	case "take":
		n, err := c.p.rdb.Eval(ctx, "redis.call('INCR', KEYS[1]) return redis.call('PEXPIRE', KEYS[1], 1000) and "+
			"redis.call('GET', KEYS[1])", []string{c.name}).Int()
		if c.taken++; err != nil || n != c.taken {
			return "", broken("The count is what was taken", "%d, want %d: %v", n, c.taken, err)
		}
	case "close":
		if c.taken = 0; c.defect != "close remembers" {
			c.p.rdb.Del(ctx, c.name)
		}
	case "again":
		if c.p.Sent() == 0 || c.defect != "again" {
			return "", errImpossible
		}
		return "", c.p.Again(c.p.Sent() - 1)
	case "second":
		c.p.Pass(time.Second)
		c.taken = 0
	case "bare":
		if c.defect == "bare" {
			c.p.rdb.Set(ctx, c.name, 0, 0)
		}
		c.taken = 0
	}
	return "", nil
}

// TestExplorerFindsTheShortestSequence: each defect of a toy is found by its shortest sequences, and nothing
// without one.
func TestExplorerFindsTheShortestSequence(t *testing.T) {
	server := redistest.StartServer(t)
	for defect, want := range map[string]string{
		"": "", "close remembers": "take close take", "again": "take again take", "bare": "bare",
	} {
		l := &life{name: "counter", events: alphabet("take bare", "close again second"),
			world: func(p *place) world { return &counter{p: p, defect: defect} }}
		if defect != "bare" {
			l.events = slices.Delete(l.events, 1, 2)
		}
		x := newExplorer(t, l, server, 2)
		alive := []sequence{""}
		for range 3 {
			alive = x.all(l.next(alive, x.dead), 1000)
		}
		got := ""
		for _, found := range x.found {
			slices.SortFunc(found, func(a, b finding) int { return len(a.sequence) - len(b.sequence) })
			got = l.text(found[0].sequence)
			t.Log(l.string(found[0], "none"))
		}
		if got != want {
			t.Errorf("defect %q: found %q, want %q", defect, got, want)
		}
	}
}
