package control

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestADecisionAboutAnUnboundNameIsTold: a deny list with a slip in its name was accepted, and denied nobody.
func TestADecisionAboutAnUnboundNameIsTold(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := start(t, b.NewClient(t), b.Prefix, 10*time.Millisecond)
		const line = "a decision is about what this process has not bound"
		p.decide(bobIn)
		p.decide(Decision{Kind: List, Name: "bloked", Of: "203.0.113.7", Value: "in"})
		p.decide(Decision{Kind: Limits, Name: "apis", Value: "100/h"})
		eventually(t, "it is logged", func() bool { return p.log.count(line) == 2 })
		if n := p.log.count("blocked"); n != 1 {
			t.Errorf("%d lines have the names of lists, want 1:\n%s", n, p.log.String())
		}
		p.decide(eveOut)
		eventually(t, "it is read again", func() bool { return !p.has("eve") })
		if n := p.log.count(line); n != 2 {
			t.Errorf("%d lines, want 2", n)
		}
	})
}
