package waitingroom

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
)

// Draw returns the order that a seed draws for the arrivals 0 to n-1: element i is the arrival at place i.
// Arrivals are sorted by the SHA-256 of the seed and their number, as in "5eed…:17". Anybody can do that
// once the seed is published, and compare its [Commitment], which was published before.
func Draw(seed string, n int) []int {
	type drawn struct {
		key    uint64 // the first 8 bytes
		number int
	}
	all := make([]drawn, n)
	text := append([]byte(seed), ':')
	for i := range all {
		sum := sha256.Sum256(strconv.AppendInt(text, int64(i), 10))
		all[i] = drawn{binary.BigEndian.Uint64(sum[:]), i}
	}
	slices.SortFunc(all, func(a, b drawn) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.number, b.number))
	})
	order := make([]int, n)
	for i, d := range all {
		order[i] = d.number
	}
	return order
}

// Commitment returns what is told of a seed before the draw: its SHA-256, in hexadecimal digits.
func Commitment(seed string) string {
	sum := sha256.Sum256([]byte(seed))
	return hex.EncodeToString(sum[:])
}

// placesOf returns the place of each arrival in an order.
func placesOf(order []int) []uint32 {
	places := make([]uint32, len(order))
	for place, number := range order {
		places[number] = uint32(place)
	}
	return places
}
