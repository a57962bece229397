package adaptertest

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

func rulesAreAskedInOrder(s *scene) {
	notes := &diary{}
	guard := func(name string) *stub { return &stub{name: name, diary: notes} }
	refuses := guard("c")
	refuses.check = refusing("c", "members_only")
	app := s.framework.Build(onThings(ok, claim(guard("a")), claim(guard("b")), claim(refuses),
		claim(guard("d"))))
	s.wantPosts(app, thing, nil, http.StatusForbidden)
	notes.want(s, "check a", "check b", "check c", "settle b false", "settle a false")

	// Of two rules that would refuse, the first one answers.
	used := limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(1))
	purchase := s.sale("sale", seckill.Sale{Stock: 1})
	app = s.framework.Build(onThings(ok, rate(used), claim(purchase)))
	s.wantPosts(app, thing, nil, 200, 429)
	s.wantSale(purchase, 0, 0, 1)
}
