package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

const (
	heldStock   = 10
	heldByDying = 4
)

// holdsStep is one step of the sale whose cashier dies.
type holdsStep struct {
	Step string         `json:"step"`
	MS   int64          `json:"ms"` // since the reservations
	Sale seckill.Status `json:"sale"`
}

// killTheCashier lets a worker reserve tickets and die. Its tickets are held for their time, and then on sale
// again. Events: "step" and "done", with a holdsStep.
func killTheCashier(ctx context.Context, in *instance, send func(string, any)) error {
	item := in.fresh("held")
	if _, err := in.labs.sale.Open(ctx, item, seckill.Sale{Stock: heldStock, Hold: in.sizes.Hold}); err != nil {
		return err
	}
	defer func() { _ = in.labs.sale.Discard(context.WithoutCancel(ctx), item) }() // else it expires by itself
	begin := time.Now()
	say := func(event, text string) (seckill.Status, error) {
		s, err := in.labs.sale.Status(ctx, item)
		if err != nil {
			return s, err
		}
		s.Epoch = 0
		send(event, holdsStep{text, time.Since(begin).Milliseconds(), s})
		return s, nil
	}
	if _, err := say("step", fmt.Sprintf("%d tickets are on sale.", heldStock)); err != nil {
		return err
	}

	cashier := in.store.hire()
	defer cashier.kill()
	sale := cashier.sale()
	begin = time.Now()
	for i := range heldByDying {
		if _, err := take(ctx, sale, core.Attempt{Actor: fmt.Sprint("buyer-", i), Resource: item}); err != nil {
			return err
		}
	}
	cashier.kill() // neither confirmed nor given back
	text := fmt.Sprintf("A worker has reserved %d for its buyers, and was killed before they paid.", heldByDying)
	if _, err := say("step", text); err != nil {
		return err
	}
	for {
		if err := pause(ctx, in.sizes.Hold/10); err != nil {
			return err
		}
		if _, err := in.labs.sale.Sweep(ctx, item); err != nil {
			return err
		}
		s, err := say("step", "The tickets of the dead worker are held for nobody.")
		if err != nil {
			return err
		}
		if s.Held == 0 {
			break
		}
	}
	_, err := say("done", fmt.Sprintf("Their time is over, and all %d can be bought again.", heldStock))
	return err
}
