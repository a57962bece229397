package grpcmw

import (
	"context"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Key finds a text by which calls are counted. Its error is the status that the client gets.
type Key func(ctx context.Context, method string) (string, error)

// Method finds the full name of the method, such as "/shop.Orders/Place".
func Method(_ context.Context, method string) (string, error) { return method, nil }

// Peer finds the address that opened the connection, and for IPv6 its /64: one subscriber has at least 2^64
// addresses to choose from. Behind a proxy it is the address of the proxy, so all clients are one.
func Peer(ctx context.Context, _ string) (string, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if at, err := netip.ParseAddrPort(p.Addr.String()); err == nil {
			addr := at.Addr().Unmap().WithZone("")
			if addr.Is4() {
				return addr.String(), nil
			}
			return netip.PrefixFrom(addr, 64).Masked().String(), nil
		}
	}
	return "", status.Error(codes.Internal, "the peer has no address")
}

// Metadata finds what the client sends under a name. Check the value before the rule, in an interceptor in
// front: a client that invents one has a budget of its own for each.
func Metadata(name string) Key {
	return func(ctx context.Context, _ string) (string, error) {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) == 1 && values[0] != "" {
			return values[0], nil
		}
		return "", status.Errorf(codes.Unauthenticated, "send one %s", name)
	}
}
