package seckill

import (
	"context"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// knownMost is for how many items a process remembers that they were on sale.
const knownMost = 1 << 12

// missed tells the log of sales that buyers miss: those that have gone from Redis, and those of which a part
// is lost. Items that this process has never seen on sale are not logged, since clients make names up.
type missed struct {
	known *bounded.Map[string, struct{}]
	told  warn.Sample[string]
}

func newMissed() *missed { return &missed{known: bounded.New[string, struct{}](knownMost)} }

// found notes that the item is on sale.
func (m *missed) found(item string) {
	p := m.known.Of(item)
	p.Lock()
	defer p.Unlock()
	if _, ok := p.Get(item); !ok {
		p.Add(strings.Clone(item), struct{}{})
	}
}

// discarded notes that the item is not on sale any more, as somebody wants it.
func (m *missed) discarded(item string) {
	p := m.known.Of(item)
	p.Lock()
	defer p.Unlock()
	p.Remove(item)
}

func (m *missed) knows(item string) bool {
	p := m.known.Of(item)
	p.Lock()
	defer p.Unlock()
	return p.Contains(item)
}

// tell logs the decision about an attempt if the item should be on sale and is not.
func (g *Guard) tell(ctx context.Context, d core.Decision) {
	item, part := d.Attempt.Resource, LostPart(d)
	switch {
	case d.Allowed:
		g.missed.found(item)
		return
	case d.Reason != core.ReasonNotReady, part == "" && !g.missed.knows(item):
		return
	}
	skipped, due := g.missed.told.Due(item)
	if !due {
		return
	}
	if part != "" {
		g.Logger().ErrorContext(ctx, "gatehouse: buyers are refused, because Redis has lost a part of a sale: "+
			"call Repair", "guard", g.Name(), "item", item, "part", part, "refusals_not_logged", skipped)
		return
	}
	g.Logger().ErrorContext(ctx, "gatehouse: buyers are refused, because a sale is not in Redis any more: "+
		"call Open with the stock that your orders have left", "guard", g.Name(), "item", item,
		"refusals_not_logged", skipped)
}
