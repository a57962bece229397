package redpacket

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

// secureRandom draws from the operating system's generator: what a share is can not be foreseen. It is safe for concurrent use.
var secureRandom = rand.New(secureSource{})

type secureSource struct{}

func (secureSource) Uint64() uint64 {
	var b [8]byte
	_, _ = cryptorand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// split cuts total into so many shares of least or more. It has to be at least shares times least.
//
// Each share is drawn evenly from least to twice the mean of what is left, the "double mean" that red packets are known for:
// luck decides, and still hardly anybody takes it all. Most shares are below twice the mean; the last that are drawn may be
// several times the mean. Drawn one after the other, the shares have different means, from rounding down, and different
// spreads, from what luck has left. So they are shuffled at the end: then every position has the same chances.
func split(rng *rand.Rand, total int64, shares int, least int64) []int64 {
	amounts := drawShares(rng, total, shares, least)
	rng.Shuffle(len(amounts), func(i, j int) { amounts[i], amounts[j] = amounts[j], amounts[i] })
	return amounts
}

// drawShares is split in the order drawn.
func drawShares(rng *rand.Rand, total int64, shares int, least int64) []int64 {
	amounts := make([]int64, shares)
	rest := total - int64(shares)*least // what luck decides about
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
