//go:build !race

package simulation

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// network connects clients to a miniredis without sockets, so that it works in a bubble of testing/synctest.
// Each connection has its own delays, so calls on different connections overtake each other.
type network struct {
	redis *miniredis.Miniredis

	mu    sync.Mutex
	rng   *rand.Rand
	links map[*link]bool
	down  bool          // no server listens
	held  chan struct{} // closed when nothing is held back any more; nil: nothing is
	calm  bool          // no delays and no losses
}

type link struct{ client, server net.Conn }

func newNetwork(m *miniredis.Miniredis, rng *rand.Rand) *network {
	return &network{redis: m, rng: rng, links: map[*link]bool{}}
}

// Dial has the form of a go-redis Dialer.
func (n *network) Dial(context.Context, string, string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	server, err := n.redis.Dial()
	if err != nil {
		return nil, err
	}
	outer, inner := net.Pipe()
	l := &link{client: inner, server: server}
	n.links[l] = true
	go n.pass(l, inner, server, 0)
	go n.pass(l, server, inner, 0.005)
	return socket{outer}, nil
}

// socket ends as a TCP connection does, whose errors go-redis knows: a connection that the peer has closed
// still accepts deadlines.
type socket struct{ net.Conn }

func (s socket) SetDeadline(t time.Time) error      { _ = s.Conn.SetDeadline(t); return nil }
func (s socket) SetReadDeadline(t time.Time) error  { _ = s.Conn.SetReadDeadline(t); return nil }
func (s socket) SetWriteDeadline(t time.Time) error { _ = s.Conn.SetWriteDeadline(t); return nil }

func (s socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = io.EOF
	}
	return n, err
}

func (s socket) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	return n, err
}

// pass copies what it reads, late. What a client has sent is delivered though the client has given up. With
// the given chance it loses what it has read, and the connection.
func (n *network) pass(l *link, from, to net.Conn, loss float64) {
	defer n.cut(l)
	buffer := make([]byte, 64<<10)
	for {
		size, err := from.Read(buffer)
		if size > 0 {
			lost, wait := n.fate(loss)
			<-time.After(wait)
			if lost {
				return
			}
			if _, err := to.Write(buffer[:size]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// fate says what happens to a message. It waits while messages are held back.
func (n *network) fate(loss float64) (lost bool, wait time.Duration) {
	n.mu.Lock()
	held := n.held
	n.mu.Unlock()
	if held != nil {
		<-held
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.calm:
		return false, 0
	case n.rng.IntN(200) == 0: // longer than the deadline
		return false, time.Duration(n.rng.IntN(300)) * time.Millisecond
	}
	return n.rng.Float64() < loss, time.Duration(n.rng.IntN(2000)) * time.Microsecond
}

func (n *network) cut(l *link) {
	_, _ = l.client.Close(), l.server.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, l)
}

// crash closes all connections and accepts no others.
func (n *network) crash() {
	n.mu.Lock()
	n.down = true
	var all []*link
	for l := range n.links {
		all = append(all, l)
	}
	n.mu.Unlock()
	for _, l := range all {
		_, _ = l.client.Close(), l.server.Close()
	}
}

// hang holds back all messages.
func (n *network) hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = make(chan struct{})
}

// heal ends a crash or a hang. With calm the network has no faults from now on.
func (n *network) heal(calm bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down, n.calm = false, calm
	if n.held != nil {
		close(n.held)
		n.held = nil
	}
}
