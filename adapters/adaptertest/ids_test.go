package adaptertest

import (
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/seckill/buckets"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

func TestOperationIDsBelongToTheirActors(t *testing.T) { onRedis(t, idsAreTheActors) }

// idsAreTheActors plays Mallory, who sends the operation IDs of Ann, in a sale of several buckets too:
// neither hears of the other, and Ann's reservation is confirmed by the name that her request got.
func idsAreTheActors(s *scene) {
	key, mallory := []string{"Idempotency-Key: o1"}, []string{"Idempotency-Key: o1", "X-User: mallory"}
	several := buckets.New(s.gate, "several", buckets.Options{Buckets: 4})
	stock := seckill.Sale{Stock: 40, Hold: time.Minute}
	if opened, err := several.Open(s.Context(), "t1", stock); err != nil || !opened {
		s.Fatalf("Open: %v, %v", opened, err)
	}
	packet := redpacket.Packet{Total: 20, Shares: 2, Min: 10, Expires: time.Now().Add(time.Hour)}
	for _, guard := range []core.Guard{
		s.sale("sale", seckill.Sale{Stock: 2}), several, votes.New(s.gate, "vote", votes.Options{}),
		s.quota(5, oneEra), s.packet(packet), &stub{name: "own"},
	} {
		ids := map[string]string{}
		app := s.framework.Build(onThings(func(c Context) {
			d, _ := c.Decision(guard.Name())
			ids[d.Attempt.Actor] = d.Attempt.ID
			ok(c)
		}, vote(guard)))
		s.wantPosts(app, thing, key, 200)
		s.wantPosts(app, thing, mallory, 200)
		if ids["ann"] != "ann|o1" || ids["mallory"] != "mallory|o1" {
			s.Errorf("%s: %q", guard.Name(), ids)
		}
	}

	// Ann takes her reservation in order to pay later.
	var taken core.Decision
	app := s.framework.Build(onThings(func(c Context) {
		var found bool
		if taken, found = c.Take("several"); !found {
			s.Error("nothing to take")
		}
		c.Reply(http.StatusAccepted, "")
	}, claim(several)))
	s.wantPosts(app, thing, []string{"Idempotency-Key: o2", "X-User: bea"}, 202)
	beas := taken.Attempt
	for _, user := range []string{"m1", "m2", "m3", "m4", "m5", "m6"} {
		s.wantPosts(app, thing, []string{"Idempotency-Key: o2", "X-User: " + user}, 202)
	}
	if d, err := several.Confirm(s.Context(), beas); err != nil || !d.Allowed || d.Attempt.Actor != "bea" {
		s.Errorf("Confirm: %+v, %v", d, err)
	}

	// IDs that the server has given out belong to who uses them first.
	rule := claim(s.sale("given", seckill.Sale{Stock: 2}))
	rule.BareID = true
	given := s.framework.Build(onThings(ok, rule))
	s.wantPosts(given, thing, key, 200)
	s.wantPosts(given, thing, mallory, 422)
}
