package redpacket

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
)

func TestSplitKeepsTheTotalAndTheLeast(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		shares := rapid.IntRange(1, 50).Draw(rt, "shares")
		if rapid.IntRange(0, 9).Draw(rt, "many") == 0 {
			shares = rapid.IntRange(51, maxShares).Draw(rt, "shares")
		}
		least := rapid.Int64Range(1, 1000).Draw(rt, "least")
		if rapid.Bool().Draw(rt, "large") {
			least = rapid.Int64Range(1, core.MaxAmount/int64(shares)).Draw(rt, "least")
		}
		total := rapid.Int64Range(least*int64(shares), core.MaxAmount).Draw(rt, "total")
		if rapid.IntRange(0, 3).Draw(rt, "tight") == 0 {
			total = least * int64(shares)
		}
		wantSplit(rt, total, shares, least)
	})
}

func TestSplitAtTheBounds(t *testing.T) {
	for _, p := range []Packet{
		{Total: 1, Shares: 1, Min: 1}, {Total: core.MaxAmount, Shares: 1, Min: 1},
		{Total: core.MaxAmount, Shares: 1, Min: core.MaxAmount},
		{Total: core.MaxAmount, Shares: 2, Min: 1}, {Total: core.MaxAmount, Shares: maxShares, Min: 1},
		{Total: maxShares, Shares: maxShares, Min: 1},
		{Total: 10, Shares: 3, Min: 3}, {Total: maxShares + 1, Shares: maxShares, Min: 1},
	} {
		wantSplit(t, p.Total, p.Shares, p.Min)
	}
}

func wantSplit(t rapid.TB, total int64, shares int, least int64) {
	t.Helper()
	amounts := split(secureRandom, total, shares, least)
	sum := int64(0)
	for _, amount := range amounts {
		sum += amount
	}
	if len(amounts) != shares || sum != total || slices.Min(amounts) < least {
		t.Fatalf("split(%d, %d, %d): %d shares, the sum is %d, the least %d", total, shares, least, len(amounts),
			sum, slices.Min(amounts))
	}
}

// TestSplitGivesEveryPositionTheSameChances compares the means of the positions and the position of the
// largest share. Shares in the order of drawing must fail the same test.
//
// Promise: Every position has the same chances.
func TestSplitGivesEveryPositionTheSameChances(t *testing.T) {
	for _, p := range []Packet{{Total: 15, Shares: 10, Min: 1}, {Total: 100_000, Shares: 10, Min: 5}} {
		means, largest := unevenness(split, p)
		t.Logf("%d over %d: means %.1f, largest %.1f", p.Total, p.Shares, means, largest)
		if means > impossible || largest > impossible {
			t.Errorf("%+v: means %.1f, largest %.1f: above %d", p, means, largest, impossible)
		}
		means, largest = unevenness(drawShares, p)
		t.Logf("%d over %d in the order drawn: means %.1f, largest %.1f", p.Total, p.Shares, means, largest)
		if means <= impossible && largest <= impossible {
			t.Errorf("%+v: in the order drawn: means %.1f, largest %.1f: does the test see anything?", p, means,
				largest)
		}
	}
}

// impossible is the chi-square with 9 degrees of freedom that fair positions exceed once in 80 million runs.
const impossible = 55

// unevenness splits a packet of ten shares many times. It returns two chi-squares with 9 degrees of freedom:
// of the means of the positions, and of how often each has the largest share, where there is only one.
func unevenness(split func(*rand.Rand, int64, int, int64) []int64, p Packet) (means, largest float64) {
	const rounds = 30_000
	sums, firsts := make([]float64, p.Shares), make([]float64, p.Shares)
	mean, squares, decided := float64(p.Total)/float64(p.Shares), 0.0, 0.0
	for range rounds {
		amounts := split(secureRandom, p.Total, p.Shares, p.Min)
		for i, amount := range amounts {
			sums[i] += float64(amount)
			squares += (float64(amount) - mean) * (float64(amount) - mean)
		}
		most := slices.Max(amounts)
		if at := slices.Index(amounts, most); !slices.Contains(amounts[at+1:], most) {
			firsts[at]++
			decided++
		}
	}
	// Fair positions have one variance, and one covariance of -variance/(n-1), since their sum is fixed.
	n := float64(p.Shares)
	variance := squares / (n * rounds)
	for i := range sums {
		off := sums[i]/rounds - mean
		means += off * off * rounds / variance * (n - 1) / n
		off = firsts[i] - decided/n
		largest += off * off / (decided / n)
	}
	return means, largest
}

// TestSplitIsLuckWithinReason: the shares vary, and few are far above the mean.
func TestSplitIsLuckWithinReason(t *testing.T) {
	const rounds, shares, mean = 2_000, 100, 1000
	below, far := 0, 0
	for range rounds {
		for _, amount := range split(secureRandom, shares*mean, shares, 1) {
			if amount < mean/2 {
				below++
			}
			if amount > 3*mean {
				far++
			}
		}
	}
	t.Logf("of %d shares %d are below half the mean, %d above three times the mean", rounds*shares, below, far)
	if below < rounds*shares/5 || below > rounds*shares/3 { // a quarter, and 50 standard deviations or more
		t.Errorf("%d of %d shares are below half the mean", below, rounds*shares)
	}
	if far > rounds*shares/100 {
		t.Errorf("%d of %d shares are above three times the mean", far, rounds*shares)
	}
}

func BenchmarkSplit(b *testing.B) {
	for range b.N {
		split(secureRandom, core.MaxAmount, maxShares, 1)
	}
}
