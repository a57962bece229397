package votes

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// Redis keeps the answers to operations in hashes of some dozen fields, which it stores without pointers: an
// answer takes 43 bytes, and 215 in a key of its own. The hash of an ID must follow from the ID alone, so
// that a retry finds it:
//
//   - An ID that a guard makes begins with the name of its hash. A process goes on with one name for a while.
//   - Any other ID belongs to one of 256 hashes, by its SHA-256. Beyond 130,000 of them in a part of a poll
//     these hashes have more than 512 fields, with pointers, and an answer takes 80 bytes.

const (
	idAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // of rand.Text
	idBytes    = 26
	// nameBytes is the length of a hash's name. 80 bits: two of a million names are equal with a probability
	// of 4e-13, and then two IDs with one of 1e-12 each time.
	nameBytes = 16
	// idsEach is the number of IDs that a process makes with one name: one for each character that may follow
	// on it.
	idsEach = 32
)

// operationOf returns the last part of the key in which the answer to an operation is kept, and the field.
func operationOf(id string) (bucket, field string) {
	if len(id) == idBytes && strings.Trim(id, idAlphabet) == "" {
		return id[:nameBytes], id[nameBytes:]
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:1]), string(sum[1:13])
}

func fieldOf(id string) string {
	_, field := operationOf(id)
	return field
}

// operationIDs makes the IDs of operations. It is safe for concurrent use.
type operationIDs struct {
	seed  maphash.Seed
	until time.Duration // for how long a name is used
	mutex sync.Mutex
	names [256]operationName // by the poll and the part of the poll
}

type operationName struct {
	place uint64 // the hash of the poll and the part
	name  string
	used  int
	begun time.Time
}

func newOperationIDs(horizon time.Duration) *operationIDs {
	return &operationIDs{seed: maphash.MakeSeed(), until: horizon / 8}
}

// next makes an ID for an operation of a poll, in a part of it. The IDs of one name differ in a
// character. The rest is random, so that nobody who sees one can guess another.
func (o *operationIDs) next(poll string, part int, now time.Time) string {
	place := maphash.String(o.seed, poll) + uint64(part)
	random := rand.Text()[:idBytes-nameBytes-1]
	o.mutex.Lock()
	n := &o.names[place%uint64(len(o.names))]
	if n.place != place || n.used == idsEach || now.Sub(n.begun) > o.until || n.name == "" {
		*n = operationName{place: place, name: rand.Text()[:nameBytes], begun: now}
	}
	name, used := n.name, n.used
	n.used++
	o.mutex.Unlock()
	return name + string(idAlphabet[used]) + random
}

// prepare checks an attempt, and gives it an ID where it has none.
func (g *Guard) prepare(a core.Attempt) (core.Attempt, error) {
	unasked := a.ID == ""
	a, err := a.PrepareClaim("the poll")
	if err == nil && unasked {
		a.ID = g.ids.next(a.Resource, newVoter(a.Actor).part(g.options.Spread), time.Now())
	}
	return a, err
}
