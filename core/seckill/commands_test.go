package seckill

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestSeckillCommandsOfAReservation counts what the script of a reservation calls while units are left, and
// when the item is sold out: five PEXPIRE of 16 commands, and a search among the holds, were needed for each.
func TestSeckillCommandsOfAReservation(t *testing.T) {
	s := redistest.StartServer(t, "--save", "")
	rdb := s.Client(t)
	calls := func() map[string]int {
		counts := map[string]int{}
		for _, m := range regexp.MustCompile(`cmdstat_(\w+)\S*:calls=(\d+)`).FindAllStringSubmatch(
			rdb.Info(t.Context(), "commandstats").Val(), -1) {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			if m[1] != "evalsha" && m[1] != "info" {
				counts[m[1]] = n
			}
		}
		return counts
	}
	const buyers = 40
	for name, options := range map[string]Options{"outbox": {}, "none": {NoOutbox: true}} {
		g := New(guardtest.NewEngine(redistest.Backend{Client: rdb, Prefix: "gatehouse"}), name, options)
		openSale(t, g, "tv", Sale{Stock: buyers + 1})
		buyer := 0
		buy := func(want core.Reason) {
			buyer++
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{
				Actor: fmt.Sprint("buyer", buyer), Resource: "tv", ID: fmt.Sprint("o", buyer),
			}), want)
		}
		buy(core.ReasonOK)
		events := 1
		if options.NoOutbox {
			events = 0
		}
		for _, path := range []struct {
			reason core.Reason
			want   map[string]int
		}{
			{core.ReasonOK, map[string]int{
				"time": 1, "hmget": 1, "exists": 1, "hget": 2, "zadd": 1, "hset": 3, "xadd": events,
			}},
			{core.ReasonSoldOut, map[string]int{"time": 1, "hmget": 1, "exists": 1, "hget": 2, "zcount": 1}},
		} {
			before := calls()
			for range buyers {
				buy(path.reason)
			}
			after := calls()
			for command := range after {
				path.want[command] += 0 // those that are not wanted, too
			}
			for command, want := range path.want {
				if got := after[command] - before[command]; got != buyers*want {
					t.Errorf("%s, %s: %d calls of %s for %d attempts, want %d each",
						name, path.reason, got, command, buyers, want)
				}
			}
		}
	}
}
