package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Ports are drawn from below 32768, where the common systems begin to number outgoing connections, so that
// no outgoing connection can take the port of a server that is briefly down. The cluster bus is at the port
// plus 10000.
const (
	lowestPort = 10240
	portCount  = 12000
	busOffset  = 10000
)

var ports struct {
	sync.Mutex
	used map[int]bool // never handed out twice: a killed server comes back
}

// freePort returns a port that is free now, together with its cluster bus port. Another process may still
// take it first: see launch.
func freePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.used == nil {
		ports.used = make(map[int]bool)
	}
	for range 200 {
		port := lowestPort + rand.IntN(portCount)
		if ports.used[port] || !isFree(port) || !isFree(port+busOffset) {
			continue
		}
		ports.used[port] = true
		return port, nil
	}
	return 0, errors.New("redistest: no free port found on 127.0.0.1")
}

// FreePort returns a port that is free now, for a program that a test starts. Another process may still take
// it first.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// ClosedAddress returns an address on which nobody listens until the test ends: its port is the one from
// which a connection of the test comes.
func ClosedAddress(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", address(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().String()
}

func isFree(port int) bool {
	ln, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return ln.Close() == nil
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
