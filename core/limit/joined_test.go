package limit

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestJoinedAttemptsAreDecidedAsOneAfterTheOther compares the script for several attempts with the script for
// one, called once for each at the same moment: replies, logs and TTLs, over random limits, costs and pauses.
func TestJoinedAttemptsAreDecidedAsOneAfterTheOther(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		seed, cases := rand.Uint64(), 25
		switch {
		case guardtest.Soak() && b.Mini == nil:
			cases = 500
		case guardtest.Soak():
			cases = 200 // its Lua is slow
		}
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		var seen joinedSeen
		for n := range cases {
			compareJoined(t, b, rng, n, &seen)
			if t.Failed() {
				return
			}
		}
		if seen.allowed == 0 || seen.refused == 0 || seen.mixed == 0 || seen.undecided == 0 {
			t.Errorf("not all was seen: %+v", seen)
		}
	})
}

// joinedSeen counts what the comparison has met.
type joinedSeen struct{ allowed, refused, mixed, undecided int }

func compareJoined(t *testing.T, b redistest.Backend, rng *rand.Rand, n int, seen *joinedSeen) {
	e := guardtest.NewEngine(b)
	name := strconv.FormatUint(rng.Uint64(), 36)
	one, joined := e.Key("joined", name, "one"), e.Key("joined", name, "joined")
	window := []time.Duration{10 * time.Minute, 8 * time.Hour}[rng.IntN(2)]
	most := 1 + rng.IntN(120)
	now := time.Now().UnixMicro()
	const steps = 12
	var first [][]int
	apart := window.Microseconds() / []int64{2, 200}[n/6%2] // by more than a quarter, or within one
	if n%3 == 0 {                                           // half of a full log leaves at once
		most, first = 120, [][]int{{60}, {60}, []int{100, 1 + rng.IntN(60)}[:1+n%2]}
	}
	for step := range steps {
		switch kind := rng.IntN(5); {
		case step < len(first) && step < 2:
			now += apart
		case step < len(first):
			now += window.Microseconds() - apart/2
		case kind == 1:
			now += window.Microseconds() / 4
		case kind == 2:
			now += rng.Int64N(window.Microseconds() * 5 / 4)
		case kind == 3:
			now += rng.Int64N(1000)
		}
		if step == steps-1 && n%2 == 0 {
			now -= 2 * window.Microseconds() // the clock is set back
		}
		if rng.IntN(10) == 0 && step >= len(first) {
			most = 1 + rng.IntN(120)
		}
		var costs []int
		if step < len(first) {
			costs = first[step]
		}
		for step >= len(first) && len(costs) < 1+rng.IntN(8) {
			costs = append(costs, 1+rng.IntN(1+rng.IntN(most)))
		}
		set, err := newLimitSet([]Limit{Per(int64(most), window)}, slidingWindow)
		if err != nil {
			t.Fatal(err)
		}
		front := []any{set.log.args[0], now}
		args := slices.Clone(front)
		var want []any
		var allowed, refused bool
		for _, cost := range costs {
			args = append(args, cost)
			reply, err := e.Run(t.Context(), slidingWindowScript.check, []string{one}, append(front, cost)...)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, reply)
			if isUndecided(reply) {
				want = reply.([]any)
				break
			}
			_, took := reply.(string)
			allowed, refused = allowed || took, refused || !took
		}
		reply, err := e.Run(t.Context(), slidingWindowScript.check, []string{joined}, args...)
		got := joinedReplies(reply, len(costs))
		if isUndecided(reply) {
			got, _ = reply.([]any)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v: %v, %v; one after the other: %v", args, reply, err, want)
		}
		wantSameLogs(t, b, one, joined)
		switch {
		case !allowed && !refused:
			seen.undecided++
			return // sliding_log would make the log anew
		case allowed && refused:
			seen.mixed++
		case allowed:
			seen.allowed++
		default:
			seen.refused++
		}
	}
}

// wantSameLogs wants the same units and, but for the time between two commands, the same TTL.
func wantSameLogs(t *testing.T, b redistest.Backend, one, joined string) {
	t.Helper()
	var logs [2][]string
	var ttls [2]time.Duration
	for i, key := range []string{one, joined} {
		var err error
		if logs[i], err = b.Client.LRange(t.Context(), key, 0, -1).Result(); err != nil {
			t.Fatal(err)
		}
		if ttls[i], err = b.Client.PTTL(t.Context(), key).Result(); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(logs[0], logs[1]) {
		t.Fatalf("the log is %v; one after the other: %v", logs[1], logs[0])
	}
	if diff := (ttls[0] - ttls[1]).Abs(); diff > time.Minute {
		t.Fatalf("the TTL is %v; one after the other: %v", ttls[1], ttls[0])
	}
}
