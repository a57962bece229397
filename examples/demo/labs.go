package main

import (
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
)

// labs are the guards of the scenarios. Those of the guarded app are not touched by them, except by the
// traffic while Redis comes and goes.
type labs struct {
	sliding *limit.SlidingWindow
	bucket  *limit.TokenBucket
	sale    *seckill.Guard
	page    *limit.SlidingWindow
	tokens  *limit.SlidingWindow
	traffic *limit.SlidingWindow
	stuffed stuffing
}

const (
	pageUnits    = 5
	pageWindow   = 10 * time.Second
	tokenUnits   = 100
	tokenWindow  = time.Minute
	trafficUnits = 5
)

func newLabs(gate *core.Engine, z sizes) labs {
	attacked := limit.Per(z.Limit, z.Window)
	return labs{
		sliding: limit.NewSlidingWindow(gate, "attacked-window", attacked),
		bucket:  limit.NewTokenBucket(gate, "attacked-bucket", attacked),
		sale:    seckill.New(gate, "race", seckill.Options{}),
		page:    limit.NewSlidingWindow(gate, "page", limit.Per(pageUnits, pageWindow)),
		tokens:  limit.NewSlidingWindow(gate, "tokens", limit.Per(tokenUnits, tokenWindow)),
		traffic: limit.NewSlidingWindow(gate, "traffic", limit.PerSecond(trafficUnits)),
		stuffed: newStuffing(gate, z),
	}
}

// workers have guards of the same names, on engines of their own.
func (w *worker) sale() *seckill.Guard { return seckill.New(w.gate, "race", seckill.Options{}) }

func (w *worker) room(name string, z sizes, opens time.Time, secret string) *waitingroom.Guard {
	return waitingroom.New(w.gate, name, waitingroom.Options{Capacity: z.Capacity, Pass: z.Pass, Poll: z.Poll,
		Opens: opens, Draw: true, Secrets: [][]byte{[]byte(secret)}, Keep: longestRun})
}

func (w *worker) permits(lease time.Duration) *semaphore.Guard {
	return semaphore.New(w.gate, "desks", semaphore.Options{Max: 2, Lease: lease})
}

func (w *worker) lock(lease time.Duration) *lock.Guard {
	return lock.New(w.gate, "ledger", lock.Options{Lease: lease})
}

func (w *worker) queue(lease time.Duration) *delay.Queue {
	return delay.New(w.gate, "mails", delay.Options{Lease: lease, Keep: time.Minute})
}
