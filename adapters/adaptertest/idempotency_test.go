package adaptertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestAnOperationIsKeptByHowItsRequestEnded(t *testing.T) { onRedis(t, operationsSettle) }

func operationsSettle(s *scene) {
	for _, e := range endings {
		s.sub(e.name, func(s *scene) {
			rule := s.once(idempotency.Options{MaxBody: 100})
			rule.Which = keyfuncs.Const("the same")
			e.headers = orderKey
			again, _ := e.play(s, rule)
			w := send(again, request(http.MethodPut, thing, orderKey...))
			if status, body, kept := strings.Cut(e.replay, " "); kept {
				if fmt.Sprint(w.Code) != status || w.Body.String() != body {
					s.Errorf("asked again: %d %q, want %s %q", w.Code, w.Body, status, body)
				}
			} else if w.Code != 200 || w.Header().Get("Idempotent-Replayed") != "" {
				s.Errorf("asked again: %d %v %s, want the handler to run again", w.Code, w.Header(), w.Body)
			}
		})
	}
}

func TestOperationsAndClaimsAgree(t *testing.T) { onRedis(t, operationsAndClaimsAgree) }

// operationsAndClaimsAgree has a claim behind the operation's rule, in the same middleware and in a separate
// one.
func operationsAndClaimsAgree(s *scene) {
	layouts := map[string]func(handler func(Context), once, claim pipeline.Rule) App{
		"in one middleware": func(handler func(Context), once, claim pipeline.Rule) App {
			return onThings(handler, once, claim)
		},
		"in two": func(handler func(Context), once, claim pipeline.Rule) App {
			app := onThings(handler, claim)
			app.Use = [][]pipeline.Rule{{once}}
			return app
		},
	}
	for name, layout := range layouts {
		s.sub(name, func(s *scene) {
			once, purchase := s.once(idempotency.Options{MaxBody: 100}), s.sale("sale", seckill.Sale{Stock: 1})
			ran, status := 0, http.StatusInternalServerError
			app := s.framework.Build(layout(func(c Context) { ran++; c.Reply(status, "bought") }, once,
				claim(purchase)))
			s.wantPosts(app, thing, orderKey, 500)
			s.wantSale(purchase, 1, 0, 0)
			status = http.StatusOK
			s.wantPosts(app, thing, orderKey, 200)
			s.wantSale(purchase, 0, 0, 1)
			s.wantReplay(post(app, "", orderKey...), 200, "bought")
			s.wantSale(purchase, 0, 0, 1)
			if ran != 2 {
				s.Errorf("the handler ran %d times, want twice: it failed, and then it did not", ran)
			}

			// A refusal by the claim is not kept: the next try gets the state at that time.
			bob := []string{"X-User: bob", "Idempotency-Key: bobs"}
			golden{409, "", soldOut}.check(s, post(app, "", bob...), figures{})
			if _, err := purchase.Restock(s.Context(), "t1", "r1", 1); err != nil {
				s.Fatal(err)
			}
			if w := post(app, "", bob...); w.Code != 200 || w.Body.String() != "bought" {
				s.Errorf("after the restocking: %d %s", w.Code, w.Body)
			}
		})

		// A client that repeats the request is told that it has bought, so it must have bought.
		for _, e := range endings {
			s.sub(name+", "+e.name, func(s *scene) {
				once, purchase := s.once(idempotency.Options{}), s.sale("sale", seckill.Sale{Stock: 1})
				once.Which = keyfuncs.Const("the same")
				e.layout = func(handler func(Context),
					rules ...pipeline.Rule) App {
					return layout(handler, once, rules[0])
				}
				e.headers = orderKey
				e.play(s, claim(purchase))
				if e.replay != "" {
					s.wantSale(purchase, 0, 0, 1)
				} else {
					s.wantSale(purchase, 1, 0, 0)
				}
			})
		}
	}
}
