package recipes

import (
	"context"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// SoldOut is the Over of the waiting room in front of an item's sale. What is held is not sold: it may come
// back.
func SoldOut(sale *seckill.Guard, item string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		s, err := sale.Status(ctx, item)
		if err != nil || s.Left+s.Held > 0 {
			return "", err
		}
		return "sold out", nil
	}
}

// FlashSale is [PayLater] for more visitors than the shop bears: a limit by address, then the waiting room,
// then the sale.
func FlashSale(gate *core.Engine, room *waitingroom.Guard, sale *seckill.Guard,
	proxies ...keyfuncs.IPOption) http.Handler {
	// A middleware of its own: a rule beside the room's would get its units back from all who have to wait.
	front := ratelimit.PerIP(gate, limit.PerMinute(300), proxies...)
	visitors := ratelimit.Rule{Guard: room, Who: keyfuncs.Visitor()}
	// A buyer who has paid makes room for the next visitor.
	paid := func(r *http.Request) {
		pass := core.Decision{Token: ratelimit.TokenOf(r, room.Name())}
		_ = room.Leave(r.Context(), pass) // an error: the place is free after Idle
	}

	shop, mux := PayLater(sale, paid), http.NewServeMux()
	mux.Handle("/", ratelimit.HTTP(visitors)(shop))
	// A buyer who holds a unit may pay, also when their pass has ended, or when the room is closed.
	mux.Handle("POST /sales/{sku}/payments", shop)
	return front(mux)
}
