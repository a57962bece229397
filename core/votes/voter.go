package votes

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/gatehouse-go/gatehouse/core/script"
)

// voter is the SHA-256 of a voter's ID. A record holds its first 12 bytes.
type voter [sha256.Size]byte

// voterBytes is the length of the prefix in a record.
const voterBytes = 12

func newVoter(actor string) voter { return sha256.Sum256([]byte(actor)) }

// encodedVoter is newVoter for an actor in the encoded form of the audit stream.
func encodedVoter(encoded string) (v voter) {
	if sum, long := strings.CutPrefix(encoded, "#"); long {
		if hash, err := base64.RawURLEncoding.DecodeString(sum); err == nil && len(hash) == len(v) {
			return voter(hash)
		}
	}
	return newVoter(script.Decode(encoded))
}

func (v voter) record() string { return string(v[:voterBytes]) }

// in returns the key of the voter's duplicates in this process's memory.
func (v voter) in(poll string) string { return script.Encode(poll) + "|" + string(v[:]) }

// tag returns the hash tag of a poll's keys.
func (g *Guard) tag(poll string) string { return script.Encode(poll) + g.part }

// Keys returns the keys of a poll in the order of the scripts' KEYS: the voters, the tally, the book, and the
// audit stream if there is one. Those of operations and runs of Void are not among them.
func (g *Guard) Keys(poll string) []string {
	t := g.tag(poll)
	keys := []string{g.Key(t, "voters"), g.Key(t, "tally"), g.Key(t, "book")}
	if g.options.Audit {
		keys = append(keys, g.Key(t, "audit"))
	}
	return keys
}

// operationKeys returns the keys of an operation in a poll.
func (g *Guard) operationKeys(poll, id string) []string {
	bucket, _ := operationOf(id)
	return slices.Insert(g.Keys(poll), 3, g.Key(g.tag(poll), "op", bucket))
}
