package control

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestProcessesAgree: whatever was decided by whom at the same moment, over connections that are cut and with
// replies that are lost, all processes do in the end what stands in Redis.
//
// Promise: After simultaneous decisions over connections that are cut, all processes agree in the end.
func TestProcessesAgree(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		faults := redistest.NewFaults(t)
		var all []*process
		for range 3 {
			all = append(all, start(t, b.NewClientWith(t, faults), b.Prefix, 20*time.Millisecond))
		}
		actors := []string{"", "ann", "bob"}
		var deciders sync.WaitGroup
		for i, p := range all {
			deciders.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				for range 40 {
					x := Decision{Kind: Limits, Name: "api", Of: actors[random.IntN(3)],
						Value: fmt.Sprintf("%d/h", 100+random.IntN(900))}
					if random.IntN(3) == 0 {
						x = Decision{Kind: List, Name: "blocked", Of: []string{"eve", "bob"}[random.IntN(2)],
							Value: []string{"in", "out"}[random.IntN(2)]}
					}
					switch random.IntN(8) {
					case 0:
						faults.CutAll()
					case 1:
						faults.SwallowReply("")
					case 2, 3:
						_ = p.desk.Withdraw(t.Context(), x, "sue", "") // it may be lost, as what follows
						continue
					}
					_ = p.desk.Decide(t.Context(), x, "sue", "")
				}
			})
		}
		deciders.Wait()
		faults.Heal()
		state := func(p *process) string {
			text := fmt.Sprint(p.has("eve"), p.has("bob"))
			for _, actor := range []string{"ann", "bob", "cid"} {
				most, err := p.limitsOf(actor)
				text += fmt.Sprint(" ", most, err)
			}
			return text
		}
		wanted := func() string {
			decided, err := all[0].desk.Decided(t.Context(), Decision{})
			if err != nil {
				return err.Error()
			}
			most, in := map[string]int64{"cid": 60}, map[string]bool{"eve": true}
			for _, x := range decided { // that of all is the first
				var n int64
				switch _, _ = fmt.Sscanf(x.Value, "%d/h", &n); {
				case x.Kind == List:
					in[x.Of] = x.Value == "in"
				case x.Of == "":
					most["cid"] = n
				default:
					most[x.Of] = n
				}
			}
			text := fmt.Sprint(in["eve"], in["bob"])
			for _, actor := range []string{"ann", "bob", "cid"} {
				if most[actor] == 0 {
					most[actor] = most["cid"]
				}
				text += fmt.Sprint(" ", most[actor], " <nil>")
			}
			return text
		}
		for i, p := range all {
			eventually(t, fmt.Sprintf("process %d does what is decided", i), func() bool {
				return state(p) == wanted()
			})
		}
	})
}
