// Package buckets sells one item that is too hot for one server: it spreads a sale over several slots of a
// Redis Cluster. Nearly all sales need [seckill.New] instead.
//
//	sale := buckets.New(gate, "sale", buckets.Options{Buckets: 8})
//	opened, err := sale.Open(ctx, "tv-55", seckill.Sale{Stock: 100_000, PerBuyer: 1})
//
// A [Guard] has the methods of a [seckill.Guard], and keeps the same promises. Each bucket is a small sale of
// package seckill. A buyer always has the same bucket, so PerBuyer is exact. A bucket that runs out of stock
// borrows from the others, and the item is sold out only when all of them together are.
//
// Check, Confirm, Cancel and Settle usually take one call to Redis, with any number of buckets. To find out
// that the item is sold out takes a call to each bucket. So do Status, Restock, Close, Sweep, Verify and
// Events.
package buckets
