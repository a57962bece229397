package waitingroom

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strconv"
	"sync"
)

// A ticket is what a visitor keeps: a number in the line, or a pass. It is signed, so Redis need not know who
// waits.
type ticket struct {
	base  int64   // the moment at which the room was made that gave the number
	opens int64   // the opening of that room
	index int64   // in the order of arrival
	place int64   // in the line; 0: the room was not open yet
	id    [6]byte // tells visitors apart whose number is the same, which a failover may give twice
	who   [8]byte // of the actor
	// until is the time to which a pass is valid, or a number keeps its place, unless it is renewed. A pass
	// can be renewed up to end. A number has end 0. All in milliseconds of the room's clock.
	until, end int64
}

// newTicket makes one for a number.
func newTicket(base, opens, index int64, actor string) ticket {
	t := ticket{base: base, opens: opens, index: index, who: whoOf(actor)}
	_, _ = rand.Read(t.id[:]) // cannot fail
	return t
}

func whoOf(actor string) [8]byte {
	sum := sha256.Sum256([]byte(actor))
	return [8]byte(sum[:])
}

func (t *ticket) isPass() bool { return t.end > 0 }

// mark is the byte by which Redis remembers who has used a number.
func (t *ticket) mark() int64 { return 1 + int64(t.id[0])%127 }

// name is the visitor's id in Redis.
func (t *ticket) name() string { return base64.RawURLEncoding.EncodeToString(t.id[:]) }

// member is what sets of those inside have for the visitor.
func (t *ticket) member(place int64) string { return strconv.FormatInt(place, 10) + ":" + t.name() }

// The sizes of a ticket: id and who, and six numbers; and of its code.
const (
	sizeOfTicket = 6 + 8 + 6*8
	sizeOfMAC    = 16
)

// signer signs tickets and reads them.
type signer struct {
	macs []*sync.Pool // of hash.Hash; the first one signs
}

func newSigner(room string, secrets [][]byte) signer {
	var s signer
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte("gatehouse waiting room " + room))
		key := mac.Sum(nil) // of this room alone, whatever else the secret signs
		s.macs = append(s.macs, &sync.Pool{New: func() any { return hmac.New(sha256.New, key) }})
	}
	return s
}

// sum appends the code of a text by one of the secrets.
func (s *signer) sum(i int, text, to []byte) []byte {
	mac, _ := s.macs[i].Get().(hash.Hash)
	defer s.macs[i].Put(mac)
	mac.Reset()
	mac.Write(text)
	var sum [sha256.Size]byte
	return append(to, mac.Sum(sum[:0])[:sizeOfMAC]...)
}

// sign returns the ticket as text.
func (s *signer) sign(t *ticket) string {
	b := append(append(make([]byte, 0, sizeOfTicket+sizeOfMAC), t.id[:]...), t.who[:]...)
	for _, n := range [...]int64{t.base, t.opens, t.index, t.place, t.until, t.end} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return base64.RawURLEncoding.EncodeToString(s.sum(0, b, b))
}

// read returns the ticket of a text that one of the secrets has signed.
func (s *signer) read(text string) (t ticket, ok bool) {
	var room [sizeOfTicket + sizeOfMAC]byte
	if base64.RawURLEncoding.DecodedLen(len(text)) != len(room) {
		return t, false
	}
	if _, err := base64.RawURLEncoding.Strict().Decode(room[:], []byte(text)); err != nil {
		return t, false
	}
	b, code := room[:sizeOfTicket], room[sizeOfTicket:]
	for i := range s.macs {
		var sum [sizeOfMAC]byte
		if hmac.Equal(s.sum(i, b, sum[:0]), code) {
			t.id, t.who = [6]byte(b), [8]byte(b[6:])
			for i, n := range [...]*int64{&t.base, &t.opens, &t.index, &t.place, &t.until, &t.end} {
				*n = int64(binary.BigEndian.Uint64(b[14+8*i:]))
			}
			return t, true
		}
	}
	return t, false
}
