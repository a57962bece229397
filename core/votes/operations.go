package votes

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
)

// Redis keeps the stored answers to operations in hashes (the data type) of some dozen fields each. It stores
// small hashes compactly, so that an answer takes 43 bytes; in a key of its own it would take 215. A retry
// has only the ID, so the ID alone must say which hash has the answer:
//
//   - An ID that a guard makes begins with the name of its hash. A process goes on with one name for a while.
//   - Any other ID belongs to one of 256 hashes, by its SHA-256. When a poll has more than 130,000 of them,
//     these hashes have more than 512 fields. Redis then stores them less compactly, and an answer takes 80
//     bytes.

const (
	idAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // of rand.Text
	idBytes    = 26
	// nameBytes is the length of a hash's name, which has 80 random bits. Two of a million names are
	// equal with a probability of 4e-13. If they are, each ID of one equals one of the other with a probability
	// of 1e-12.
	nameBytes = 16
	// idsEach is the number of IDs that a process makes with one name: one for each character that may follow
	// the name.
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
	until time.Duration                       // for how long a name is used
	names *bounded.Map[string, operationName] // by the tag of the poll
}

type operationName struct {
	name  string
	used  int
	begun time.Time
}

// namedPolls is the number of polls for which a process keeps a name. A forgotten poll gets another name.
const namedPolls = 1 << 12

func newOperationIDs(horizon time.Duration) *operationIDs {
	return &operationIDs{until: horizon / 8, names: bounded.New[string, operationName](namedPolls)}
}

// next makes an ID for an operation of the poll with this tag. The IDs of one name differ in the character
// behind it. The rest is random, so that nobody who sees one can guess another.
func (o *operationIDs) next(tag string, now time.Time) string {
	random := rand.Text()[:idBytes-nameBytes-1]
	p := o.names.Of(tag)
	p.Lock()
	defer p.Unlock()
	n, known := p.Get(tag)
	if !known || n.used == idsEach || now.Sub(n.begun) > o.until {
		n = operationName{name: rand.Text()[:nameBytes], begun: now}
		tag = strings.Clone(tag) // it may be a part of a request
	}
	id := n.name + string(idAlphabet[n.used]) + random
	n.used++
	p.Add(tag, n)
	return id
}

// prepare checks an attempt, and gives it an ID where it has none.
func (g *Guard) prepare(a core.Attempt) (core.Attempt, error) {
	unasked := a.ID == ""
	a, err := a.PrepareClaim("the poll")
	if err == nil && unasked {
		a.ID = g.ids.next(g.tag(a.Resource), g.Engine().Now())
	}
	return a, err
}
