package adaptertest

import (
	"context"
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

func TestATierWithoutLimitsPassesWithoutFigures(t *testing.T) { onMini(t, unlimitedTiersPass) }

// unlimitedTiersPass plays a limit whose function returns none for one user, in front of one that is the same
// for all.
func unlimitedTiersPass(s *scene) {
	s.clock(noon)
	tiers := limit.NewSlidingWindowBy(s.gate, "tier",
		func(_ context.Context, a core.Attempt) ([]limit.Limit, error) {
			if a.Actor == "partner" {
				return nil, nil
			}
			return []limit.Limit{limit.PerHour(1)}, nil
		})
	all := limit.NewSlidingWindow(s.gate, "all", limit.PerHour(9))
	app := s.framework.Build(onThings(ok, rate(tiers), rate(all)))
	for _, left := range []string{"8", "7", "6"} {
		w := send(app, request(http.MethodPost, thing, "X-User: partner"))
		if w.Code != http.StatusOK {
			s.Errorf("%d %s", w.Code, w.Body)
		}
		s.wantFigures(w.Result().Header, []string{`"all";q=9;w=3600`}, []string{`"all";r=` + left + `;t=3600`})
	}
	s.wantPosts(app, thing, []string{"X-User: ann"}, 200, 429)
}
