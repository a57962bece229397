package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

// Sale is the command sale.
var Sale = cli.Command{Name: "sale", Args: "status|verify|open|restock|close [flags] ITEM",
	Does: "look at a sale, open it, change it", Run: sale}

// saleFlags are the flags of the command sale.
type saleFlags struct {
	guardFlags
	terms         seckill.Sale
	opens, closes string
	id            string
	units         int64
}

func sale(ctx context.Context, e *cli.Env) error {
	var f saleFlags
	f.register(e.Flags, "seckill")
	f.registerYes(e.Flags)
	e.Flags.Int64Var(&f.terms.Stock, "stock", 0, "open: the number of `units` to sell")
	e.Flags.Int64Var(&f.terms.PerBuyer, "per-buyer", 1, "open: the number of `units` that one buyer may have")
	e.Flags.DurationVar(&f.terms.Hold, "hold", 5*time.Minute,
		"open: how long a reservation waits for its confirmation")
	e.Flags.StringVar(&f.opens, "opens", "",
		"open: when the sale opens, such as 2030-11-11T00:00:00+08:00 (default now)")
	e.Flags.StringVar(&f.closes, "closes", "", "open: when the sale closes (default never)")
	e.Flags.Int64Var(&f.units, "units", 0, "restock: the number of `units` to add, or to take away if negative")
	e.Flags.StringVar(&f.id, "id", "", "restock: the `ID` of the delivery; the same one is counted once")
	operands, err := e.Operands()
	if err != nil {
		return err
	}
	actions := []string{"status", "verify", "open", "restock", "close"}
	if len(operands) != 2 || !slices.Contains(actions, operands[0]) {
		return cli.Usagef("the operands are %q: name an action (%s) and one item", operands,
			strings.Join(actions, ", "))
	}
	action, item := operands[0], operands[1]
	f.Looks = action == "status" || action == "verify"
	if f.terms.Opens, err = moment("-opens", f.opens); err != nil {
		return err
	}
	if f.terms.Closes, err = moment("-closes", f.closes); err != nil {
		return err
	}
	if action == "open" {
		return f.openSale(ctx, e, item)
	}
	texts := map[string]string{"item": item}
	if action == "restock" {
		texts["id"], texts["units"] = f.id, fmt.Sprint(f.units)
	}
	result, err := f.run(ctx, e, texts, action)
	if err != nil {
		return err
	}
	return writeSale(e, result)
}

// moment reads a time of RFC 3339. Empty is the zero time.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, cli.Usagef("%s is %q: write a time such as 2030-11-11T00:00:00+08:00", name, text)
	}
	return t, nil
}

// opened is the result of opening a sale.
type opened struct {
	Opened bool `json:"opened"`
	seckill.Status
}

// sales is a guard of the package seckill, or of buckets.
type sales interface {
	core.Guard
	Open(ctx context.Context, item string, sale seckill.Sale) (bool, error)
	Status(ctx context.Context, item string) (seckill.Status, error)
}

func (f *saleFlags) openSale(ctx context.Context, e *cli.Env, item string) error {
	guard, done, err := f.open(ctx, e)
	if err != nil {
		return err
	}
	defer done()
	g, ok := guard.(sales)
	if !ok {
		return cli.Usagef("the guard %q sells nothing", guard.Name())
	}
	if f.terms.Stock < 1 {
		return cli.Usagef("-stock is %d: pass the number of units to sell", f.terms.Stock)
	}
	err = f.confirm(e, fmt.Sprintf("open of guard %q, item %q, stock %d", g.Name(), item, f.terms.Stock))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	isNew, err := g.Open(ctx, item, f.terms)
	if err != nil {
		return err
	}
	status, err := g.Status(ctx, item)
	if err != nil {
		return err
	}
	return e.Write(opened{isNew, status}, func(w *strings.Builder) {
		if !isNew {
			fmt.Fprintln(w, "the sale was open already, and stays as it was")
		}
		writeStatus(w, status)
	})
}

// writeSale writes the result of an operation on a sale. Parts that do not agree are a problem.
func writeSale(e *cli.Env, result any) error {
	switch r := result.(type) {
	case seckill.Status:
		return e.Write(r, func(w *strings.Builder) { writeStatus(w, r) })
	case interface { // a Verification
		Consistent() bool
		String() string
	}:
		if err := e.Write(r, func(w *strings.Builder) { w.WriteString(r.String()) }); err != nil {
			return err
		}
		if !r.Consistent() {
			return cli.ErrProblem
		}
		return nil
	}
	return writeResult(e, result)
}

func writeStatus(w *strings.Builder, s seckill.Status) {
	fmt.Fprintf(w, "stock %d: left %d, held %d, sold %d\n", s.Stock, s.Left, s.Held, s.Sold)
}
