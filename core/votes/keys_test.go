package votes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// FuzzKeys: different votes have different keys, and all keys of a poll, or of a part, have the one expected
// tag.
func FuzzKeys(f *testing.F) {
	for i, text := range guardtest.Hostile {
		f.Add(text, guardtest.Hostile[(i+1)%len(guardtest.Hostile)])
	}
	f.Add("a", "a|b")
	f.Add("a|b", "b")
	g := New(core.New(guardtest.NoClient{}), "v", Options{})
	f.Fuzz(func(t *testing.T, a, b string) {
		meant := map[string]string{}
		note := func(what, tag string, keys ...string) {
			t.Helper()
			for i, key := range keys {
				before, rest, _ := strings.Cut(key, "{")
				found, after, _ := strings.Cut(rest, "}")
				if found != tag || strings.ContainsAny(before+found+after, "{}") {
					t.Errorf("%q: want one tag, %q", key, tag)
				}
				what := fmt.Sprintf("key %d of %s", i, what)
				if other, taken := meant[key]; taken && other != what {
					t.Errorf("%q is %s and %s", key, what, other)
				}
				meant[key] = what
			}
		}
		for _, poll := range []string{a, b} {
			if poll == "" { // no guard accepts it as a poll
				continue
			}
			for _, id := range []string{a, b, ""} {
				whole, part := g.operationKeys(poll, id), g.Part(7, 9).operationKeys(poll, id)
				note(fmt.Sprintf("poll %q", poll), script.Encode(poll), whole[:3]...)
				note(fmt.Sprintf("operation %q of poll %q", id, poll), script.Encode(poll), whole[3])
				note(fmt.Sprintf("part of poll %q", poll), script.Encode(poll)+"|7", part[:3]...)
				note(fmt.Sprintf("operation %q in a part of poll %q", id, poll), script.Encode(poll)+"|7", part[3])
			}
		}
	})
}

// TestKeysOfAPollShareASlot checks the slots of keys with hostile text. Other tests run all calls on a real
// cluster.
func TestKeysOfAPollShareASlot(t *testing.T) {
	g := New(core.New(guardtest.NoClient{}), "v", Options{})
	for _, text := range guardtest.Hostile {
		for _, of := range []*Guard{g, g.Part(255, 256)} {
			keys := of.operationKeys(text, text)
			for _, key := range keys {
				if redistest.Slot(key) != redistest.Slot(keys[0]) {
					t.Errorf("%q and %q are in different slots", key, keys[0])
				}
			}
		}
	}
}
