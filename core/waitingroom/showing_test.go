package waitingroom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/warntest"
)

// TestVisitorsWithoutTicketsAreTold: where cookies do not come back, each request took a number, and nothing
// said so. A crowd of which half leave is no reason for a warning.
func TestVisitorsWithoutTicketsAreTold(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprint(keeps), func(t *testing.T) {
			log := warntest.Record(t)
			clock := guardtest.NewClock()
			g := newRoom(guardtest.NewEngine(redistest.Single(t), guardtest.WithClock(clock)),
				Options{Capacity: 1, Poll: time.Second})
			tokens := make([]string, 60)
			for round := range 8 {
				for i := range tokens {
					if i%2 > 0 && round%4 > 1 {
						tokens[i] = "" // somebody else
					}
					d := guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint("v", i), Token: tokens[i]})
					if keeps && d.Token != "" {
						tokens[i] = d.Token
					}
				}
				tick(t, g)
				clock.Advance(time.Second)
			}
			if told := strings.Count(log.String(), "GH011"); told > 1 || (told == 0) != keeps {
				t.Errorf("told %d times: %s", told, log.String())
			}
		})
	}
}
