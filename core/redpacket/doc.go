// Package redpacket splits an amount at random among the first users who ask, one share per user.
//
// # In a rule
//
// Most callers make a [Guard] with [New], create a packet with [Guard.Create], and use the guard in a rule,
// whose Who is the user and What the packet. [Amount] returns the share of a decision:
//
//	packets := redpacket.New(gate, "packets", redpacket.Options{})
//	created, err := packets.Create(ctx, "party", redpacket.Packet{Total: 1000, Shares: 20, Expires: tomorrow})
//
// # Shares
//
// Amounts are integers in minor units, such as cents. [Guard.Create] draws the shares with crypto/rand and
// shuffles them, so each place in the queue has the same chances. A user who asks again gets the same
// amount. A grabbed share stays with its user, however the request ends.
//
// # Operating
//
// [Guard.Refund] takes out the rest once the packet has expired. [Guard.Verify] checks that
// left + grabbed + refunded = total.
package redpacket
