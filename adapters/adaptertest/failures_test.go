package adaptertest

import (
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

func TestOnlyFailedLoginsCountWhereARuleSaysSo(t *testing.T) { onRedis(t, onlyFailedLoginsCount) }

func onlyFailedLoginsCount(s *scene) {
	rule := rate(limit.NewSlidingWindow(s.gate, "logins", limit.PerHour(3)))
	rule.Counted = []int{http.StatusUnauthorized}
	app := s.framework.Build(onThings(func(c Context) {
		if c.Request().Header.Get("X-Password") != "right" {
			c.Reply(http.StatusUnauthorized, "no")
			return
		}
		ok(c)
	}, rule))
	right, wrong := []string{"X-Password: right"}, []string{"X-Password: wrong"}
	s.wantPosts(app, thing, right, times(10, 200)...)
	s.wantPosts(app, thing, wrong, 401, 401)
	s.wantPosts(app, thing, right, times(10, 200)...)
	s.wantPosts(app, thing, wrong, 401, 429)
	s.wantPosts(app, thing, right, 429)
	s.wantPosts(app, thing, []string{"X-User: bob", "X-Password: right"}, 200)
}

func TestAGuardThatCannotSettleDoesNotChangeTheAnswer(t *testing.T) {
	onMini(t, settlingErrorsAreSilent)
}

func settlingErrorsAreSilent(s *scene) {
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		notes := &diary{}
		guard := &stub{name: "own", settleErr: core.ErrGone, diary: notes} // a retry would not help
		sure := &stub{name: "sure", diary: notes}
		app := s.framework.Build(onThings(reply(status, "as ever"), claim(guard), claim(sure)))
		if w := send(app, request(http.MethodPost, thing)); w.Code != status || w.Body.String() != "as ever" {
			s.Errorf("%d %s, want %d as ever", w.Code, w.Body, status)
		}
		if status == http.StatusOK {
			notes.want(s, "check own", "check sure", "settle own true", "settle sure true")
		} else {
			notes.want(s, "check own", "check sure", "settle own false", "settle sure false")
		}
	}
}
