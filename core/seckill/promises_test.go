package seckill_test

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/salemodel"
	"github.com/gatehouse-go/gatehouse/internal/testkit/saletest"
)

// What follows holds for sales of several buckets as well: see core/seckill/buckets.

// Promise: Left, held and sold add up to the stock, in every script, under faults.
func TestSeckillAgainstModel(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		salemodel.AgainstModel(t, b, seckill.Options{})
	})
}

// TestAckedSeckillAgainstModel: while all replicas are up, an Acked sale behaves like any other.
func TestAckedSeckillAgainstModel(t *testing.T) {
	acked := seckill.Options{Durability: seckill.Acked, AckWithin: 9 * time.Second}
	salemodel.AgainstModel(t, redistest.Cluster(t), acked)
}

func TestSeckillManyBuyersAndFaults(t *testing.T) {
	redistest.Each(t, saletest.One().ManyBuyersAndFaults)
}

// Promise: A hold lasts for each call that got ok, however many share an ID. While 16 have not settled, the
// next gets `in_progress`.
func TestTheSeventeenthTryIsCountedOrNotToldYes(t *testing.T) {
	saletest.One().TheSeventeenthTryIsCountedOrNotToldYes(t)
}

func TestWhoAsksAgainIsToldOfAReplay(t *testing.T) { saletest.One().WhoAsksAgainIsToldOfAReplay(t) }

func TestAReplayWhoseReplyWasLostIsAReplay(t *testing.T) {
	saletest.One().AReplayWhoseReplyWasLostIsAReplay(t)
}

// Promise: A lost part of a sale is noticed: attempts get `not_ready`, calls by name `ErrLost`. `Repair`
// restores it, or its error names what is missing.
func TestLostPartsAreNoticedAndRestored(t *testing.T) {
	saletest.One().LostPartsAreNoticedAndRestored(t)
}

// Promise: Open does not sell again over the remains of a sale.
func TestOpenDoesNotSellAgainOverRemains(t *testing.T) {
	saletest.One().OpenDoesNotSellAgainOverRemains(t)
}

func TestASaleThatHasLostAPartIsClosedAndKept(t *testing.T) {
	saletest.One().ASaleThatHasLostAPartIsClosedAndKept(t)
}

// Promise: A sale that Redis has lost, whole or in part, is logged once a minute and item. Names that clients
// invent are not logged.
func TestSalesThatBuyersMissAreLogged(t *testing.T) { saletest.One().SalesThatBuyersMissAreLogged(t) }

// Promise: Confirm after a cancel is `gone`, also where the hold was over before the cancel.
func TestWhatIsCancelledAfterItsHoldIsNotSold(t *testing.T) {
	saletest.One().WhatIsCancelledAfterItsHoldIsNotSold(t)
}
