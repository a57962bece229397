// Package lostsales tells the log of sales that buyers miss: sales that have gone from Redis, and sales that
// have lost a part.
package lostsales

import (
	"context"
	"log/slog"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// knownMost is for how many items a process remembers that they were on sale.
const knownMost = 1 << 12

// Items are the items that a process has seen on sale. Others are not logged, since clients make names up.
// A nil *Items logs nothing.
type Items struct {
	known *bounded.Map[string, struct{}]
	told  warn.Sample[string]
}

// New returns no items.
func New() *Items { return &Items{known: bounded.New[string, struct{}](knownMost)} }

// Found notes that the item is on sale.
func (m *Items) Found(item string) {
	if m == nil {
		return
	}
	p := m.known.Of(item)
	p.Lock()
	defer p.Unlock()
	if _, ok := p.Get(item); !ok {
		p.Add(strings.Clone(item), struct{}{})
	}
}

// Discarded notes that the item is not on sale any more, as somebody wants it.
func (m *Items) Discarded(item string) {
	if m == nil {
		return
	}
	p := m.known.Of(item)
	p.Lock()
	defer p.Unlock()
	p.Remove(item)
}

func (m *Items) knows(item string) bool {
	p := m.known.Of(item)
	p.Lock()
	defer p.Unlock()
	return p.Has(item)
}

// Tell logs the decision about an attempt if the item should be on sale and is not. The part is what was lost
// of the sale, empty if it is gone as a whole.
func (m *Items) Tell(ctx context.Context, logger *slog.Logger, d core.Decision, part string) {
	item := d.Attempt.Resource
	switch {
	case m == nil:
		return
	case d.Allowed:
		m.Found(item)
		return
	case d.Reason != core.ReasonNotReady, part == "" && !m.knows(item):
		return
	}
	skipped, due := m.told.Due(item)
	if !due {
		return
	}
	if part != "" {
		logger.ErrorContext(ctx, "gatehouse: buyers are refused, because Redis has lost a part of a sale: "+
			"call Repair", "guard", d.Guard, "item", item, "part", part, "refusals_not_logged", skipped)
		return
	}
	logger.ErrorContext(ctx, "gatehouse: buyers are refused, because a sale is not in Redis any more: "+
		"call Open with the stock that your orders have left", "guard", d.Guard, "item", item,
		"refusals_not_logged", skipped)
}
