package redistest

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is one connection through Faults: client and server are the two sockets
// between which it passes requests and replies, whole and in order.
type link struct {
	faults *Faults
	client net.Conn
	server net.Conn

	cutOnce sync.Once
	gone    chan struct{} // closed by cut
	lost    atomic.Bool   // nothing passes any more

	mu      sync.Mutex
	waiting []request // forwarded and not yet answered
}

type request struct {
	at      time.Time
	swallow bool
}

// passRequests forwards requests until the connection ends.
func (l *link) passRequests() {
	defer l.cut()
	r := bufio.NewReader(l.client)
	for {
		msg, err := readMessage(r)
		if err != nil {
			return
		}
		if l.lost.Load() {
			continue
		}
		if l.faults.holdsBack(l.server.RemoteAddr(), msg) {
			return
		}
		l.push(request{at: time.Now(), swallow: l.faults.swallows(msg)})
		if _, err := l.server.Write(msg); err != nil {
			return
		}
	}
}

// passReplies forwards replies until the connection ends, or until a reply is to be swallowed: then the
// server has executed the request and answered in full, and the client never sees the answer.
func (l *link) passReplies() {
	defer l.cut()
	r := bufio.NewReader(l.server)
	for {
		msg, err := readMessage(r)
		if err != nil {
			return
		}
		if !isPush(msg) {
			req := l.pop()
			if req.swallow {
				l.faults.swallowed.Add(1)
				return
			}
			if !l.hold(req) {
				return
			}
		}
		if l.lost.Load() {
			continue
		}
		if _, err := l.client.Write(msg); err != nil {
			return
		}
	}
}

// hold waits as long as the reply is to be delayed and reports whether it may
// be passed on then.
func (l *link) hold(req request) bool {
	if d := time.Duration(l.faults.delay.Load()); d > 0 {
		timer := time.NewTimer(time.Until(req.at.Add(d)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.gone:
			return false
		}
	}
	if over := l.faults.hanging(); over != nil {
		select {
		case <-over:
		case <-l.gone:
		}
		return false
	}
	return true
}

func (l *link) push(req request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, req)
}

func (l *link) pop() request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return request{at: time.Now()} // a message of RESP2's publish/subscribe
	}
	req := l.waiting[0]
	l.waiting = l.waiting[1:]
	return req
}

// cut closes both sides. It may be called more than once.
func (l *link) cut() {
	l.cutOnce.Do(func() {
		close(l.gone)
		_ = l.client.Close()
		_ = l.server.Close()
		l.faults.forget(l)
	})
}
