package seckill

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/saleops"
)

// Describe implements kit.Describer.
func (g *Guard) Describe() kit.Description {
	return saleops.Describe[Status, Verification](g,
		func(ctx context.Context, item string) (any, error) { return g.shownStatus(ctx, item) })
}

// shownStatus is the operator's view of a sale: its units, and the terms it was opened with.
type shownStatus struct {
	Status
	State    string     `json:"state"` // "opens later", "open", "sold out" or "closed"
	Opens    *time.Time `json:"opens,omitempty"`
	Closes   *time.Time `json:"closes,omitempty"`
	PerBuyer int64      `json:"per_buyer"`
	Hold     string     `json:"hold"`
}

// shownStatus reads what an operator sees of a sale.
func (g *Guard) shownStatus(ctx context.Context, item string) (shownStatus, error) {
	if item == "" {
		return shownStatus{}, errNoItem
	}
	now, err := g.stockOf(item).look(ctx)
	if err != nil {
		return shownStatus{}, err
	}
	return g.shown(item, now)
}

// shown says by the clock of this process whether the sale is open.
func (g *Guard) shown(item string, now state) (s shownStatus, err error) {
	s.Status = now.Status
	var opens, closes, hold int64 // in milliseconds
	if _, err = fmt.Sscan(now.terms, &opens, &closes, &s.PerBuyer, &hold); err != nil {
		return s, fmt.Errorf("status of %.100q: its terms %.100q: %w", item, now.terms, err)
	}
	s.Hold = (time.Duration(hold) * time.Millisecond).String()
	moment := func(ms int64) *time.Time {
		if ms == 0 {
			return nil
		}
		at := time.UnixMilli(ms).UTC()
		return &at
	}
	s.Opens, s.Closes = moment(opens), moment(closes)
	switch now := g.Engine().Now().UnixMilli(); {
	case closes != 0 && closes <= now:
		s.State = "closed"
	case opens > now:
		s.State = "opens later"
	case s.Left == 0:
		s.State = "sold out"
	default:
		s.State = "open"
	}
	return s, nil
}
