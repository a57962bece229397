package redpacket

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// secureRandom draws from the operating system's generator, so nobody can predict a share. It is safe for
// concurrent use.
var secureRandom = rand.New(secureSource{})

type secureSource struct{}

func (secureSource) Uint64() uint64 {
	var b [8]byte
	_, _ = cryptorand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// split divides total into the given number of shares of not less than least each. total must be at least
// shares times least.
//
// It draws each share uniformly from least to twice the mean of the rest, the "double mean" method that is
// common for red packets: amounts vary, yet hardly any share takes almost everything. Most shares are below
// twice the mean. The last ones drawn may be several times the mean. The order of drawing gives the shares
// different means, by rounding down, and different variances. Shuffling them gives every position the same
// chances.
func split(rng *rand.Rand, total int64, shares int, least int64) []int64 {
	amounts := drawShares(rng, total, shares, least)
	rng.Shuffle(len(amounts), func(i, j int) { amounts[i], amounts[j] = amounts[j], amounts[i] })
	return amounts
}

// drawShares returns the shares in the order drawn, before the shuffle.
func drawShares(rng *rand.Rand, total int64, shares int, least int64) []int64 {
	amounts := make([]int64, shares)
	rest := total - int64(shares)*least // the part that is random
	for i := range amounts {
		extra := rest
		if waiting := int64(shares - i); waiting > 1 {
			extra = rng.Int64N(2*rest/waiting + 1)
		}
		amounts[i] = least + extra
		rest -= extra
	}
	return amounts
}
