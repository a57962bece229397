package adaptertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

func TestAnOperationIDMakesARetryHarmless(t *testing.T) { onRedis(t, replays) }

func replays(s *scene) {
	s.sub("a purchase", replaysAPurchase)

	s.sub("a purchase whose repetition fails", replaysAPurchaseWhoseRepetitionFails)

	s.sub("a purchase whose first try fails", replaysAPurchaseWhoseFirstTryFails)

	s.sub("a purchase that a later rule refuses", replaysAPurchaseThatALaterRuleRefuses)

	s.sub("a share of a red packet", replaysAShareOfARedPacket)

	s.sub("a vote", replaysAVote)
}

func replaysAPurchase(s *scene) {
	purchase := s.sale("sale", seckill.Sale{Stock: 1})
	replayed := &diary{}
	handler := func(c Context) {
		d, _ := c.Decision("sale")
		replayed.note(fmt.Sprint(d.Replayed))
		ok(c)
	}
	rule := withCost(claim(purchase))
	app := s.framework.Build(onThings(handler, rule))
	s.wantPosts(app, thing, orderKey, 200, 200, 200) // also when the stock is sold out
	replayed.want(s, "false")
	rule.RunReplays = true
	s.wantPosts(s.framework.Build(onThings(handler, rule)), thing, orderKey, 200, 200)
	replayed.want(s, "true", "true")
	s.wantSale(purchase, 0, 0, 1)
	s.wantPosts(app, thing, append(orderKey, "X-Cost: 2"), 422)
	s.wantPosts(app, thing, append(orderKey, "X-User: bob"), 409) // another operation
	s.wantPosts(app, thing, []string{"X-User: bob"}, 409)
	s.wantSale(purchase, 0, 0, 1)
}

func replaysAPurchaseWhoseRepetitionFails(s *scene) {
	purchase := s.sale("sale", seckill.Sale{Stock: 1})
	status := http.StatusOK
	rule := claim(purchase)
	rule.RunReplays = true
	app := s.framework.Build(onThings(func(c Context) { c.Reply(status, "") }, rule))
	s.wantPosts(app, thing, orderKey, 200)
	status = http.StatusInternalServerError
	s.wantPosts(app, thing, orderKey, 500)
	s.wantSale(purchase, 0, 0, 1)
}

func replaysAPurchaseWhoseFirstTryFails(s *scene) {
	purchase := s.sale("sale", seckill.Sale{Stock: 1})
	status := http.StatusInternalServerError
	app := s.framework.Build(onThings(func(c Context) { c.Reply(status, "") }, claim(purchase)))
	s.wantPosts(app, thing, orderKey, 500)
	s.wantSale(purchase, 1, 0, 0)
	status = http.StatusOK
	s.wantPosts(app, thing, orderKey, 200)
	s.wantSale(purchase, 0, 0, 1)
}

func replaysAPurchaseThatALaterRuleRefuses(s *scene) {
	purchase := s.sale("sale", seckill.Sale{Stock: 1})
	sold := s.framework.Build(onThings(ok, claim(purchase)))
	never := s.framework.Build(onThings(ok, claim(purchase),
		claim(&stub{name: "no", check: refusing("no", "no")})))
	s.wantPosts(sold, thing, orderKey, 200)
	s.wantPosts(never, thing, orderKey, 403)
	s.wantSale(purchase, 0, 0, 1) // the refused repetition took nothing, so it gives nothing back
}

func replaysAShareOfARedPacket(s *scene) {
	grab := s.packet(redpacket.Packet{Total: 20, Shares: 2, Min: 10,
		Expires: time.Now().Add(time.Hour)})
	amounts := &diary{}
	app := s.framework.Build(onThings(func(c Context) {
		d, _ := c.Decision("packet")
		amounts.note(fmt.Sprint(redpacket.Amount(d), d.Replayed))
		ok(c)
	}, claim(grab)))
	s.wantPosts(app, thing, orderKey, 200, 200)
	amounts.want(s, "10 false", "10 true")
	s.wantPosts(app, thing, nil, 409)
	s.wantGrabbed(grab, map[string]int64{"ann": 10})
}

func replaysAVote(s *scene) {
	votes := votes.New(s.gate, "vote", votes.Options{})
	app := s.framework.Build(onThings(ok, vote(votes)))
	s.wantPosts(app, thing, orderKey, 200, 200)
	s.wantTally(votes, map[string]int64{"red": 1})
	s.wantPosts(app, thing, append(orderKey, "X-Choice: blue"), 422)
	s.wantPosts(app, thing, nil, 409)
	s.wantTally(votes, map[string]int64{"red": 1})
}

func TestBuyersAtTheSameMomentNeverOversell(t *testing.T) { onRedis(t, buyersNeverOversell) }

func buyersNeverOversell(s *scene) {
	const buyers, stock = 200, 100
	purchase := s.sale("sale", seckill.Sale{Stock: stock})
	site := rate(limit.NewSlidingWindow(s.gate, "site", limit.PerHour(5)))
	app := s.framework.Build(onThings(ok, site, claim(purchase)))

	answers := make([]*httptest.ResponseRecorder, buyers)
	gate := make(chan struct{})
	var all sync.WaitGroup
	for i := range buyers {
		all.Go(func() {
			<-gate
			answers[i] = send(app, request(http.MethodPost, thing, fmt.Sprintf("%s: buyer %d", UserHeader, i)))
		})
	}
	close(gate)
	all.Wait()

	won := 0
	for _, w := range answers {
		if w.Code == http.StatusOK {
			won++
			continue
		}
		says := figures{policy: `"site";q=5;w=3600`}
		if w.Header().Get("RateLimit-Policy") == "" {
			says = figures{} // the process remembered that all is sold, so it did not ask the site's limit
		}
		golden{http.StatusConflict, "", soldOut}.check(s, w, says)
	}
	if won != stock {
		s.Errorf("%d buyers have won %d units", won, stock)
	}
	s.wantSale(purchase, 0, 0, stock)
}
