package saletest

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// Sales is a guard of sales, of one slot or of several buckets.
type Sales interface {
	core.Guard
	Engine() *core.Engine
	Key(tag string, fields ...string) string
	Open(ctx context.Context, item string, sale seckill.Sale) (bool, error)
	Confirm(ctx context.Context, a core.Attempt) (core.Decision, error)
	Cancel(ctx context.Context, a core.Attempt) (core.Decision, error)
	Sweep(ctx context.Context, item string) (int, error)
	Status(ctx context.Context, item string) (seckill.Status, error)
	Restock(ctx context.Context, item, id string, units int64) (seckill.Status, error)
	Close(ctx context.Context, item string) error
	Repair(ctx context.Context, item string) ([]string, error)
	Discard(ctx context.Context, item string) error
	Events(ctx context.Context, item, after string, count int) ([]seckill.Event, error)
}

// Kind makes guards of one kind, for the promises that both kinds keep.
type Kind struct {
	// New makes a guard on an engine.
	New func(e *core.Engine, options seckill.Options) Sales
	// Buckets is the number of buckets of its sales.
	Buckets int
	// Lend leaves units on their way from one bucket to another; nil: there is one.
	Lend func(t testing.TB, g Sales, item string)
	// Keep renews the TTLs of the buckets of a sale; nil: there is one.
	Keep func(t testing.TB, g Sales, item string)
}

// One is the kind of sales in one slot.
func One() Kind {
	return Kind{
		New:     func(e *core.Engine, options seckill.Options) Sales { return seckill.New(e, "s", options) },
		Buckets: 1,
	}
}

// Verified is the result of a method Verify.
type Verified interface {
	Consistent() bool
	Differences() []string
	String() string
}

// Verify calls the guard's method of that name, whose result differs between the kinds.
func Verify(g Sales, item string) (Verified, error) {
	out := reflect.ValueOf(g).MethodByName("Verify").Call(
		[]reflect.Value{reflect.ValueOf(context.Background()), reflect.ValueOf(item)})
	err, _ := out[1].Interface().(error)
	return out[0].Interface().(Verified), err
}

// Keys returns a key of each bucket of a sale: "sale", "buyers", "holds", "reservations" or "outbox".
func Keys(t testing.TB, g Sales, item, field string) []string {
	t.Helper()
	var outboxes []string
	switch g := g.(type) {
	case interface{ OutboxKey(item string) string }:
		outboxes = []string{g.OutboxKey(item)}
	case interface {
		OutboxKeys(ctx context.Context, item string) ([]string, error)
	}:
		var err error
		if outboxes, err = g.OutboxKeys(t.Context(), item); err != nil {
			t.Fatal(err)
		}
	}
	for i, key := range outboxes {
		outboxes[i] = strings.TrimSuffix(key, "outbox") + field
	}
	return outboxes
}

// Lose deletes keys of a sale, in each of its buckets.
func Lose(t testing.TB, b redistest.Backend, g Sales, item string, fields ...string) {
	t.Helper()
	var keys []string
	for _, field := range fields {
		keys = append(keys, Keys(t, g, item, field)...)
	}
	for _, key := range keys {
		if n := b.Client.Del(t.Context(), key).Val(); n != 1 {
			t.Fatalf("there was no %s to lose", key)
		}
	}
}
