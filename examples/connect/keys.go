package connectmw

import (
	"errors"
	"fmt"
	"net/netip"

	"connectrpc.com/connect"
)

// Key finds a text by which calls are counted. Its error is the one that the client gets.
type Key func(call Call) (string, error)

// Procedure finds the full name of the procedure, such as "/shop.Orders/Place".
func Procedure(call Call) (string, error) { return call.Procedure, nil }

// Peer finds the address that opened the connection, and for IPv6 its /64: one subscriber has at least 2^64
// addresses to choose from. Behind a proxy it is the address of the proxy, so all clients are one.
func Peer(call Call) (string, error) {
	at, err := netip.ParseAddrPort(call.Peer.Addr)
	if err != nil {
		return "", connect.NewError(connect.CodeInternal, errors.New("the peer has no address"))
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String(), nil
	}
	return netip.PrefixFrom(addr, 64).Masked().String(), nil
}

// Header finds what the client sends in a header. Check the value before the rule, in an interceptor in
// front: a client that invents one has a budget of its own for each.
func Header(name string) Key {
	return func(call Call) (string, error) {
		if values := call.Header.Values(name); len(values) == 1 && values[0] != "" {
			return values[0], nil
		}
		return "", connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("send one %s", name))
	}
}
