package adaptertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

func TestOneKeyMakesOneOrder(t *testing.T) { onRedis(t, oneKeyMakesOneOrder) }

// oneKeyMakesOneOrder plays one buyer who sends fifty requests with one key at once, and then one more.
func oneKeyMakesOneOrder(s *scene) {
	const requests = 50
	purchase := s.sale("sale", seckill.Sale{Stock: 5})
	key := []string{"Idempotency-Key: o1"}
	orders, begun, finish := &diary{}, make(chan struct{}, requests), make(chan struct{})
	app := s.framework.Build(onThings(func(c Context) {
		orders.note("order")
		begun <- struct{}{}
		<-finish
		c.Reply(http.StatusCreated, "")
	}, claim(purchase)))

	answers := make(chan *httptest.ResponseRecorder, requests)
	var all sync.WaitGroup
	for range requests {
		all.Go(func() { answers <- send(app, request(http.MethodPost, thing, key...)) })
	}
	<-begun
	for range requests - 1 { // all but the one that makes the order
		w := <-answers
		golden{409, "1", inProgress}.check(s, w, figures{})
	}
	close(finish)
	all.Wait()
	if w := <-answers; w.Code != http.StatusCreated {
		s.Errorf("the order: %d %s", w.Code, w.Body)
	}
	w := send(app, request(http.MethodPost, thing, key...))
	if w.Code != http.StatusOK || w.Header().Get("Idempotent-Replayed") != "true" {
		s.Errorf("once more: %d %v %s", w.Code, w.Header(), w.Body)
	}
	orders.want(s, "order")
	s.wantSale(purchase, 4, 0, 1)
}

func TestAPurchaseThatIsPaidLaterCanBeAskedForAgain(t *testing.T) {
	onRedis(t, paidLaterIsAnsweredAgain)
}

// paidLaterIsAnsweredAgain plays a sale in two steps: one request takes the reservation, and another one,
// with the same ID, pays. The client of each asks again.
func paidLaterIsAnsweredAgain(s *scene) {
	key := []string{"Idempotency-Key: o1"}
	for _, runs := range []bool{true, false} {
		purchase := s.sale(fmt.Sprint("sale-", runs), seckill.Sale{Stock: 5})
		rule := claim(purchase)
		rule.RunReplays = runs
		var taken core.Decision
		order := s.framework.Build(onThings(func(c Context) {
			var found bool
			if taken, found = c.Take(purchase.Name()); !found {
				s.Error("nothing to take")
			}
			c.Reply(http.StatusAccepted, "")
		}, rule))
		pay := s.framework.Build(onThings(reply(201, "paid"), rule))
		s.wantPosts(order, thing, key, 202)
		if runs {
			s.wantPosts(order, thing, key, 202)
			s.wantSale(purchase, 4, 1, 0)
			s.wantPosts(pay, thing, key, 201, 201)
			s.wantSale(purchase, 4, 0, 1)
			continue
		}
		s.wantPosts(order, thing, key, 409)
		s.wantPosts(pay, thing, key, 409)
		s.wantSale(purchase, 4, 1, 0) // nobody who asked again has given it back
		if d, err := purchase.Confirm(s.Context(), taken.Attempt); err != nil || !d.Allowed {
			s.Errorf("Confirm: %+v, %v", d, err)
		}
		s.wantPosts(order, thing, key, 200)
		s.wantSale(purchase, 4, 0, 1)
	}
}
