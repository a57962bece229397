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

func TestTheSeventeenthTryIsCountedOrNotToldYes(t *testing.T) {
	saletest.One().TheSeventeenthTryIsCountedOrNotToldYes(t)
}

func TestWhoAsksAgainIsToldOfAReplay(t *testing.T) { saletest.One().WhoAsksAgainIsToldOfAReplay(t) }

func TestAReplayWhoseReplyWasLostIsAReplay(t *testing.T) {
	saletest.One().AReplayWhoseReplyWasLostIsAReplay(t)
}

func TestLostPartsAreNoticedAndRestored(t *testing.T) {
	saletest.One().LostPartsAreNoticedAndRestored(t)
}

func TestOpenDoesNotSellAgainOverRemains(t *testing.T) {
	saletest.One().OpenDoesNotSellAgainOverRemains(t)
}

func TestASaleThatHasLostAPartIsClosedAndKept(t *testing.T) {
	saletest.One().ASaleThatHasLostAPartIsClosedAndKept(t)
}

func TestSalesThatBuyersMissAreLogged(t *testing.T) { saletest.One().SalesThatBuyersMissAreLogged(t) }
