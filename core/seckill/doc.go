// Package seckill sells a limited stock in a flash sale (seckill) and never sells more than there is.
//
// # In a rule
//
// Most callers make a [Guard] with [New], open the sale with [Guard.Open], and use the guard in a rule, whose
// Who is the buyer, What the item and Cost the quantity:
//
//	sale := seckill.New(gate, "sale", seckill.Options{})
//	opened, err := sale.Open(ctx, "tv-55", seckill.Sale{Stock: 100, PerBuyer: 1, Hold: 5 * time.Minute})
//
// # Holds
//
// [Guard.Check] holds units for the buyer. [core.Commit] sells them, [core.Rollback] gives them back, and a
// hold that nobody settles ends by itself. left + held + sold = stock, before and after every script. A
// handler that takes the reservation confirms it later by name, with [Guard.Confirm] or [Guard.Cancel].
//
// # Operating
//
// [Guard.Status], [Guard.Restock], [Guard.Close], [Guard.Sweep] and [Guard.Verify] are for operators. An
// order system reads the outbox, a Redis stream of all changes: [Guard.OutboxKey] and [ParseEvent], or
// [Guard.Events].
//
// # Failovers and hot items
//
// [Options].Durability says what a failover may lose: see [Fast] and [Acked]. Package
// [github.com/gatehouse-go/gatehouse/core/seckill/buckets] spreads one hot item over several slots of a
// cluster.
package seckill
