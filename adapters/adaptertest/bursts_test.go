package adaptertest

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestABurstOfOneUserStarvesNobodyOverHTTP(t *testing.T) { onRedis(t, burstsStarveNobody) }

// burstsStarveNobody lets one user send 500 requests at one moment, and nine others 42. The limit of a user
// is 10, and what all users share has room for all 52 that fit. The process has heard of nobody.
func burstsStarveNobody(s *scene) {
	everybody := keyfuncs.Const("everybody")
	perUser := func(s *scene) pipeline.Rule {
		return rate(limit.NewSlidingWindow(s.gate, "user", limit.PerHour(10)))
	}
	s.sub("a limit behind the user's", func(s *scene) {
		all := limit.NewSlidingWindow(s.gate, "organisation", limit.PerHour(100))
		burst(s, perUser(s), pipeline.Rule{Guard: all, Who: everybody})
	})
	s.sub("a semaphore behind the user's limit", func(s *scene) {
		permits := semaphore.New(s.gate, "exports", semaphore.Options{Max: 60})
		burst(s, perUser(s), pipeline.Rule{Guard: permits, Who: keyfuncs.User(UserKey), What: everybody})
	})
	s.sub("a budget of an organisation and its users, of which just 52 fit", func(s *scene) {
		find := func(path []string) ([]budget.Limit, error) {
			return []budget.Limit{{Max: []int64{52, 10}[len(path)-1], Window: time.Hour}}, nil
		}
		calls := budget.New(s.gate, "calls", budget.Options{Levels: []string{"org", "user"}, Find: find})
		burst(s, pipeline.Rule{Guard: calls, Under: []keyfuncs.Func{keyfuncs.Const("acme")},
			Who: keyfuncs.User(UserKey)})
	})
}

// burst sends the requests over connections of their own.
func burst(s *scene, rules ...pipeline.Rule) {
	srv := s.serve(s.framework.Build(onThings(ok, rules...)))
	var mu sync.Mutex
	passed, refused := map[string]int{}, map[string]string{}
	var all sync.WaitGroup
	begin := make(chan struct{})
	send := func(user string) {
		all.Go(func() {
			<-begin
			answer := srv.do(s.Context(), http.MethodPost, "X-User: "+user)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case !answer.cut && answer.StatusCode == http.StatusOK:
				passed[user]++
			case user != "ann":
				refused[user] = answer.body
			}
		})
	}
	want := 0
	for i := range 500 {
		send("ann")
		if i < 42 {
			send(fmt.Sprint("user", i%9))
			want++
		}
	}
	close(begin)
	all.Wait()
	others := -passed["ann"]
	for _, n := range passed {
		others += n
	}
	if passed["ann"] != 10 || others != want {
		s.Errorf("ann passed %d times, the others %d times, want 10 and %d: %v", passed["ann"], others, want,
			refused)
	}
}
