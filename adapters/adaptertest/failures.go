package adaptertest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func recoverersChangeNothing(s *scene) {
	panics := func(Context) { panic("lost") }
	for name, where := range map[string]Recover{"outside": RecoverOutside, "inside": RecoverInside} {
		s.sub(name, func(s *scene) {
			votes := votes.New(s.gate, "vote", votes.Options{})
			app := onThings(panics, vote(votes))
			app.Recover = where
			srv := s.serve(s.framework.Build(app))
			answer := srv.do(s.Context(), http.MethodPost)
			if answer.cut || answer.StatusCode != http.StatusInternalServerError {
				s.Errorf("the client got %+v, want 500", answer)
			}
			if value := srv.wait(); value != nil {
				s.Errorf("the panic has passed the recoverer: %v", value)
			}
			s.wantTally(votes, nil)
		})
	}
}

func panicsPass(s *scene) {
	for _, want := range []any{"lost", errors.New("lost"), 42, http.ErrAbortHandler} {
		s.sub(fmt.Sprintf("%T %v", want, want), func(s *scene) {
			purchase := s.sale("sale", seckill.Sale{Stock: 1})
			srv := s.serve(s.framework.Build(onThings(func(Context) { panic(want) }, claim(purchase))))
			if answer := srv.do(s.Context(), http.MethodPost); !answer.cut {
				s.Errorf("the client got %d %s", answer.StatusCode, answer.body)
			}
			if got := srv.wait(); got != want {
				s.Errorf("the outer recoverer gets %v", got)
			}
			s.wantSale(purchase, 1, 0, 0)
		})
	}
}

func failedGetsTheStatus(s *scene) {
	for _, e := range endings {
		s.sub(e.name, func(s *scene) {
			heard := make(chan int, 10)
			rule := claim(&stub{name: "own"})
			rule.Failed = func(status int) bool {
				heard <- status
				return false
			}
			e.play(s, rule)
			close(heard)
			var got []int
			for status := range heard {
				got = append(got, status)
			}
			if !slices.Equal(got, []int{e.counts}) {
				s.Errorf("Failed was asked about %v, want %d once", got, e.counts)
			}
		})
	}
}

func refusedGetsNoFurther(s *scene) {
	notes := &diary{}
	rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerHour(1)))
	app := s.framework.Build(App{
		Use: [][]pipeline.Rule{{rate(limit.NewSlidingWindow(s.gate, "outer", limit.PerHour(2)))}},
		Routes: []Route{{
			Method: http.MethodPost, Path: "/things/{thing}", Rules: []pipeline.Rule{rule},
			Between: func() { notes.note("middleware") },
			Handler: func(c Context) { notes.note("handler"); ok(c) },
		}},
	})
	s.wantPosts(app, thing, nil, 200)
	notes.want(s, "middleware", "handler")
	s.wantPosts(app, thing, nil, 429, 429) // by the route's rule, then by the application's
	notes.want(s)
}
