package votes

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestJoinedVotesAreDecidedAsOneAfterTheOther compares the script for several attempts with the script for one,
// called once for each at the same moment: answers, records, sums, stored answers and times of expiry, while
// votes are kept and taken back, also before they come. What the former leaves undecided comes last.
func TestJoinedVotesAreDecidedAsOneAfterTheOther(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		seed, cases := rand.Uint64(), 12
		if guardtest.Soak() {
			cases = 500
		}
		if b.Mini != nil {
			cases = 3 // its Lua is slow
		}
		t.Logf("seed %d", seed)
		seen := map[string]int{}
		for n := range cases {
			c := newJoinedCase(t, b, rand.New(rand.NewPCG(seed, uint64(n))), n)
			for range 12 {
				c.step(seen)
				if t.Failed() {
					return
				}
			}
		}
		for _, reason := range []string{"ok", "duplicate", "quota", "closed", "undecided"} {
			if seen[reason] == 0 && b.Mini == nil {
				t.Errorf("%s was not seen: %v", reason, seen)
			}
		}
	})
}

// joinedCase is a poll that is kept twice: one vote after the other, and joined.
type joinedCase struct {
	t        *testing.T
	b        redistest.Backend
	rng      *rand.Rand
	g        *Guard
	rules    string
	remember int
	voters   int
	now      int64
	calls    int
	made     []joinedVote
}

// joinedVote has the arguments of an attempt.
type joinedVote struct{ voter, choice, weight, call, hash, field string }

func newJoinedCase(t *testing.T, b redistest.Backend, rng *rand.Rand, n int) *joinedCase {
	t.Helper()
	now := time.Now().UnixMilli()
	return &joinedCase{
		t: t, b: b, rng: rng, g: New(guardtest.NewEngine(b), strconv.FormatUint(rng.Uint64(), 36), Options{}),
		rules: []string{
			"", "1 1 1 0 0 0 0 0",
			fmt.Sprintf("3 2 0 %d %d 0 0 0", now+500, now+6_000),
			fmt.Sprintf("5 5 0 0 0 2 %d %d", now, now+10_000),
		}[n%4],
		remember: rng.IntN(2) * 600_000, voters: 5 + rng.IntN(100), now: now,
	}
}

// keys returns the keys of a vote in one of the polls.
func (c *joinedCase) keys(poll int, hash string) []string {
	return append(c.g.recordKeys(fmt.Sprint(poll), 0), c.g.Key(fmt.Sprint(poll), "op", hash))
}

func (c *joinedCase) run(script *script.Script, keys []string, args ...any) any {
	c.t.Helper()
	reply, err := c.g.Engine().Run(c.t.Context(), script, keys, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply
}

func (c *joinedCase) cast(poll int, v joinedVote) any {
	c.t.Helper()
	return c.run(voteScript, c.keys(poll, v.hash), v.voter, v.choice, v.weight, c.rules, 3_600_000, c.remember, 1,
		v.call, v.field, "", "", "", c.now)
}

// step makes some attempts of one moment, and ends some votes.
func (c *joinedCase) step(seen map[string]int) {
	c.t.Helper()
	c.now += c.rng.Int64N(2500)
	var attempts []joinedVote
	for range 1 + c.rng.IntN(25) {
		attempts = append(attempts, c.attempt())
	}
	keys, args := c.keys(1, "")[:3], []any{c.rules, 3_600_000, c.remember, 1, c.now}
	for _, v := range attempts {
		keys = append(keys, c.keys(1, v.hash)[3])
		args = append(args, v.voter+v.call+" "+v.choice+" "+v.weight+" "+v.field)
	}
	reply := c.run(voteJoinedScript, keys, args...)
	got, several := reply.([]any)
	if !several {
		if reply != undecided {
			c.t.Fatalf("%v: %v", args, reply)
		}
		for range attempts {
			got = append(got, reply)
		}
	}
	var later []int
	for i, v := range attempts {
		if got[i] == undecided {
			later = append(later, i)
			seen[undecided]++
		} else if want := c.cast(0, v); got[i] != want {
			c.t.Fatalf("%+v: %v; one after the other: %v", v, got[i], want)
		} else {
			seen[strings.Split(want.(string), " ")[0]]++
		}
	}
	for _, i := range later {
		if joined, want := c.cast(1, attempts[i]), c.cast(0, attempts[i]); joined != want {
			c.t.Fatalf("%+v: %v; one after the other: %v", attempts[i], joined, want)
		}
	}
	for range c.rng.IntN(4) {
		c.end()
	}
	if one, joined := c.state(0), c.state(1); !reflect.DeepEqual(one, joined) {
		c.t.Fatalf("%v:\n%v\none after the other:\n%v", args, joined, one)
	}
}

// attempt returns a vote. Most are new.
func (c *joinedCase) attempt() joinedVote {
	c.calls++
	v := joinedVote{
		voter: fmt.Sprintf("%012d", c.rng.IntN(c.voters)), choice: []string{"red", "blue", ""}[c.rng.IntN(3)],
		weight: []string{"1", "1", "2"}[c.rng.IntN(3)], call: fmt.Sprint("c", c.calls),
		hash: fmt.Sprint("h", c.rng.IntN(2)), field: fmt.Sprintf("f %08d", c.calls),
	}
	if c.rng.IntN(2) == 0 { // so that buckets are split
		var random [voterBytes]byte
		for i := range random {
			random[i] = byte(c.rng.IntN(256))
		}
		v.voter = string(random[:])
	}
	if len(c.made) > 0 && c.rng.IntN(5) == 0 {
		known := c.made[c.rng.IntN(len(c.made))]
		switch c.rng.IntN(3) {
		case 0:
			v = known
		case 1:
			known.call = v.call
			v = known
		default:
			v.hash, v.field = known.hash, known.field
		}
	}
	c.made = append(c.made, v)
	return v
}

// end keeps a vote, or takes one back that may still come.
func (c *joinedCase) end() {
	v := c.made[len(c.made)-1-c.rng.IntN(min(len(c.made), 12))]
	if c.rng.IntN(4) == 0 {
		c.calls++
		v.call = fmt.Sprint("c", c.calls)
		c.made = append(c.made, v)
	}
	var ends [2]any
	keeps, late := c.rng.IntN(3) == 0, c.rng.IntN(2)
	for poll := range ends {
		if keys := c.keys(poll, v.hash); keeps {
			ends[poll] = c.run(voteKeepScript, keys[3:], v.voter, v.call, v.field)
		} else {
			ends[poll] = c.run(voteUndoScript, keys, v.voter, v.call, 60_000, "", "", "", late, v.field)
		}
	}
	if ends[0] != ends[1] {
		c.t.Fatalf("%+v: %v; one after the other: %v", v, ends[1], ends[0])
	}
}

// state returns what is kept of a poll.
func (c *joinedCase) state(poll int) (state []map[string]string) {
	for _, key := range append(c.keys(poll, "h0"), c.keys(poll, "h1")[3]) {
		state = append(state, c.b.Client.HGetAll(c.t.Context(), key).Val())
	}
	return state
}
