package votes

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestVotesCommandsOfACast counts what the script of a vote calls, for a voter's first vote of a choice that
// others have voted for: seven commands and the clock, and two more with an audit stream.
func TestVotesCommandsOfACast(t *testing.T) {
	s := redistest.StartServer(t, "--save", "")
	rdb := s.Client(t)
	for audit, want := range map[bool]int{false: 8, true: 10} {
		e := guardtest.NewEngine(redistest.Backend{Client: rdb, Prefix: "gatehouse"})
		g := New(e, fmt.Sprint("v", audit), Options{Audit: audit})
		cast := func(voter int) {
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(voter), Resource: "p",
				Item: "red"}), core.ReasonOK)
		}
		calls := func() (n int) {
			for _, m := range regexp.MustCompile(`cmdstat_(\w+)\S*:calls=(\d+)`).FindAllStringSubmatch(
				rdb.Info(t.Context(), "commandstats").Val(), -1) {
				count, err := strconv.Atoi(m[2])
				if err != nil {
					t.Fatal(err)
				}
				if m[1] != "evalsha" && m[1] != "info" {
					n += count
				}
			}
			return n
		}
		cast(0)
		before := calls()
		const voters = 30 // one bucket, and IDs of one name
		for i := range voters {
			cast(i + 1)
		}
		if n := calls() - before; n != voters*want {
			t.Errorf("audit %t: %d votes took %d commands, want %d each", audit, voters, n, want)
		}
	}
}
