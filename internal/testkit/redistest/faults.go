package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Faults breaks the traffic of the clients that dial through it: give its Dial to a client as the Dialer,
// or use [Backend.NewClientWith]. It works for single servers and for clusters, with real sockets. At first
// it breaks nothing. It is safe for concurrent use, also while clients are at work.
type Faults struct {
	swallowed atomic.Int64
	delay     atomic.Int64 // nanoseconds
	pairing   sync.Mutex
	ln        *net.TCPListener
	pumps     sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool
	rules   []*swallowRule
	late    []string // in lower case: what the next requests to hold back contain
	held    []heldRequest
	hung    chan struct{} // closed when hanging is over; nil: not hanging
	away    bool          // nothing arrives
	refuses bool
	closed  bool
}

type swallowRule struct {
	match []byte // in lower case
	left  int    // replies still to swallow; used when rng is nil
	p     float64
	rng   *rand.Rand
}

// NewFaults returns Faults whose connections are cut when the test ends.
func NewFaults(t testing.TB) *Faults {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	f := &Faults{ln: ln, links: make(map[*link]bool)}
	t.Cleanup(f.close)
	return f
}

// Dial connects to addr, through the faults. It has the form of a go-redis Dialer.
func (f *Faults) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	f.mu.Lock()
	refuses := f.refuses || f.closed
	f.mu.Unlock()
	if refuses {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	if err := f.arrive(ctx, network); err != nil {
		return nil, err
	}
	server, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	outer, inner, err := f.pair()
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	l := &link{faults: f, client: inner, server: server, gone: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errors.Join(net.ErrClosed, outer.Close(), inner.Close(), server.Close())
	}
	f.links[l] = true
	f.pumps.Go(l.passRequests)
	f.pumps.Go(l.passReplies)
	return outer, nil
}

// Vanish with true loses from now on all that clients and servers send: nobody hears that a connection is of
// no use. Dials get no answer either. With false it ends that for new connections; those that were there stay
// dead and open. A dial that has begun meanwhile asks again after 1, 3 and 7 s, as a kernel does.
func (f *Faults) Vanish(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = on
	if !on {
		return
	}
	for l := range f.links {
		l.lost.Store(true)
	}
}

// arrive returns when a dial gets through.
func (f *Faults) arrive(ctx context.Context, network string) error {
	for wait := time.Second; ; wait *= 2 {
		f.mu.Lock()
		away := f.away
		f.mu.Unlock()
		if !away {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
		}
	}
}

// pair returns the two ends of a new TCP connection.
func (f *Faults) pair() (outer, inner net.Conn, err error) {
	f.pairing.Lock()
	defer f.pairing.Unlock()
	outer, err = net.Dial("tcp", f.ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	for {
		inner, err = f.ln.Accept()
		if err != nil {
			return nil, nil, errors.Join(err, outer.Close())
		}
		if inner.RemoteAddr().String() == outer.LocalAddr().String() {
			return outer, inner, nil
		}
		_ = inner.Close() // a stranger's connection
	}
}

// SwallowReply arms one shot: the server executes the next request that contains match, in upper or lower
// case; Faults reads and drops its whole reply, and then cuts the connection. Shots queue up. The server
// may also execute later requests of the same pipeline, whose replies are lost with the connection.
//
// An EVALSHA of an unknown script also uses the shot up: load the script first.
func (f *Faults) SwallowReply(match string) { f.SwallowReplies(match, 1) }

// SwallowReplies arms n shots of [Faults.SwallowReply].
func (f *Faults) SwallowReplies(match string, n int) {
	f.arm(&swallowRule{match: bytes.ToLower([]byte(match)), left: n})
}

// SwallowEvery swallows from now on the reply to each request that contains match with probability p, drawn
// from rng, which belongs to Faults from then on.
func (f *Faults) SwallowEvery(match string, p float64, rng *rand.Rand) {
	f.arm(&swallowRule{match: bytes.ToLower([]byte(match)), p: p, rng: rng})
}

// HoldBack arms one shot: the next request that contains match, in upper or lower case, does not reach the
// server, and its connection to the client is cut. To the client it looks like a lost reply. [Faults.Deliver]
// lets the request arrive later. Shots queue up.
func (f *Faults) HoldBack(match string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = append(f.late, strings.ToLower(match))
}

// heldRequest is a request that HoldBack took, and the server that it was meant for.
type heldRequest struct {
	server net.Addr
	msg    []byte
}

// holdsBack reports whether the request is one that does not arrive yet, and keeps it then.
func (f *Faults) holdsBack(server net.Addr, msg []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.late) == 0 || !bytes.Contains(bytes.ToLower(msg), []byte(f.late[0])) {
		return false
	}
	f.late = f.late[1:]
	f.held = append(f.held, heldRequest{server, msg})
	return true
}

// Deliver lets the requests that HoldBack took arrive now, in their order, and returns the servers' replies
// as they came over the wire. The test fails when there are other than n.
func (f *Faults) Deliver(t testing.TB, n int) (replies []string) {
	t.Helper()
	f.mu.Lock()
	held := f.held
	f.held = nil
	f.mu.Unlock()
	if len(held) != n {
		t.Fatalf("redistest: %d requests were held back, want %d", len(held), n)
	}
	for _, request := range held {
		reply, err := request.deliver()
		if err != nil {
			t.Fatal(err)
		}
		replies = append(replies, reply)
	}
	return replies
}

func (r heldRequest) deliver() (string, error) {
	server, err := net.Dial(r.server.Network(), r.server.String())
	if err != nil {
		return "", err
	}
	defer func() { _ = server.Close() }()
	if err := server.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := server.Write(r.msg); err != nil {
		return "", err
	}
	reply, err := readMessage(bufio.NewReader(server))
	return string(reply), err
}

func (f *Faults) arm(r *swallowRule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
}

// swallows reports whether the reply to this request is to be swallowed.
func (f *Faults) swallows(msg []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.rules) == 0 {
		return false
	}
	msg = bytes.ToLower(msg)
	for _, r := range f.rules {
		switch {
		case !bytes.Contains(msg, r.match):
		case r.rng != nil:
			if r.rng.Float64() < r.p {
				return true
			}
		case r.left > 0:
			r.left--
			return true
		}
	}
	return false
}

// Swallowed returns how many replies have been swallowed so far.
func (f *Faults) Swallowed() int { return int(f.swallowed.Load()) }

// Delay lets each reply, from now on, arrive d after its request at the earliest,
// also those of the handshake of a new connection. 0 ends it.
func (f *Faults) Delay(d time.Duration) { f.delay.Store(int64(d)) }

// Hang with true passes requests to the server, which executes them, and holds their replies back from now
// on. With false it cuts the connections whose replies are held back, and lets the others work again. (For
// a server that does not execute what it gets, see [Server.Pause].)
func (f *Faults) Hang(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case on && f.hung == nil:
		f.hung = make(chan struct{})
	case !on && f.hung != nil:
		close(f.hung)
		f.hung = nil
	}
}

func (f *Faults) hanging() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hung
}

// CutAll closes all present connections. New ones can be made.
func (f *Faults) CutAll() {
	f.mu.Lock()
	links := make([]*link, 0, len(f.links))
	for l := range f.links {
		links = append(links, l)
	}
	f.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
}

func (f *Faults) forget(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.links, l)
}

// Refuse with true makes new dials fail as if no server listened; present connections stay. With false it
// ends that.
func (f *Faults) Refuse(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuses = on
}

// Heal ends everything that was switched on or armed.
func (f *Faults) Heal() {
	f.Delay(0)
	f.Hang(false)
	f.Refuse(false)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = false
	f.rules, f.late = nil, nil
}

func (f *Faults) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	_ = f.ln.Close()
	f.CutAll()
	f.pumps.Wait()
}
