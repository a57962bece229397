package adaptertest

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

// secondClicksCanPay plays a buyer who takes a reservation, and clicks again without an operation ID, or with
// another.
func secondClicksCanPay(s *scene) {
	purchase := s.sale("sale", seckill.Sale{Stock: 5})
	var taken core.Decision
	order := s.framework.Build(onThings(takes(s, reply(http.StatusAccepted, ""), &taken), claim(purchase)))
	s.wantPosts(order, thing, nil, 202)
	anns := taken.Attempt
	for _, headers := range [][]string{nil, {"Idempotency-Key: o2"}} {
		s.wantBodies(order, headers, duplicate(`,"reservation":"`+anns.ID+`"`))
	}
	s.wantPosts(order, thing, asBob, 202)
	s.wantBodies(order, asBob, duplicate(`,"reservation":"`+taken.Attempt.ID+`"`))

	guessed := core.Attempt{Actor: "bob", Resource: "t1", ID: anns.ID}
	if d, err := purchase.Confirm(s.Context(), guessed); err != nil || d.Reason != core.ReasonGone {
		s.Errorf("Confirm of another's: %+v, %v", d, err)
	}
	if d, err := purchase.Confirm(s.Context(), anns); err != nil || !d.Allowed {
		s.Errorf("Confirm: %+v, %v", d, err)
	}
	s.wantBodies(order, nil, duplicate(""))
	s.wantSale(purchase, 3, 1, 1)
}
