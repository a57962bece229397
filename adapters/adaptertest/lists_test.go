package adaptertest

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestListsAreAskedBeforeAnythingElse(t *testing.T) { onMini(t, listsGoFirst) }

// listsGoFirst plays users of a rule with both lists, a ban and a guard that refuses everybody: a user who
// passes was not judged.
func listsGoFirst(s *scene) {
	notes := &diary{}
	deny, allow := keyfuncs.NewList(keyfuncs.User(UserKey)), keyfuncs.NewList(keyfuncs.IP(), "192.0.2.0/24")
	rule := claim(&stub{name: "own", check: refusing("own", "members_only"), diary: notes})
	rule.Deny, rule.Allow = deny, allow
	rule.Bans = bans.New(s.gate, "bans", bans.Options{Refusals: 1000})
	if err := rule.Bans.(*bans.Guard).Ban(s.Context(), core.Attempt{Actor: "cid"}, time.Hour); err != nil {
		s.Fatal(err)
	}
	decided := false
	app := s.framework.Build(onThings(func(c Context) {
		_, decided = c.Decision("own")
		ok(c)
	}, rule))
	want := func(user, peer string, status int, body string) {
		s.Helper()
		r := request(http.MethodPost, thing, UserHeader+": "+user)
		r.RemoteAddr = peer + ":50000"
		if w := send(app, r); w.Code != status || body != "" && w.Body.String() != body {
			s.Errorf("%s from %s: %d %s, want %d %s", user, peer, w.Code, w.Body, status, body)
		}
	}
	const inside, outside = "192.0.2.9", "203.0.113.7"
	want("ann", inside, 200, "")
	want("cid", inside, 200, "") // not even the ban is asked
	notes.want(s)
	if decided {
		s.Error("the handler finds a decision of a guard that was not asked")
	}
	want("cid", outside, 429, banned)
	notes.want(s)
	want("ann", outside, 403, unknown)
	notes.want(s, "check own")

	if err := errors.Join(deny.Add("ann", "cid"), allow.Add("198.51.100.7")); err != nil {
		s.Fatal(err)
	}
	want("ann", inside, 403, denied) // Deny wins
	want("cid", outside, 403, denied)
	want("bob", "198.51.100.7", 200, "")
	want("", inside, 200, "") // nobody is in no list of users, and is allowed by address
	want("", outside, 400, noKey)
	notes.want(s)
	if err := allow.Add("2001:db8:1:2::5"); err != nil {
		s.Fatal(err)
	}
	want("bob", "[2001:db8:1:2::5]", 200, "") // the address itself, before it is grouped
	want("bob", "[2001:db8:1:2::6]", 403, unknown)
	notes.want(s, "check own")
	if err := errors.Join(deny.Set(), allow.Remove("192.0.2.0/24")); err != nil {
		s.Fatal(err)
	}
	want("ann", inside, 403, unknown)
	notes.want(s, "check own")

	for reason, c := range map[string]struct {
		err    error
		status int
		body   string
	}{
		"malformed":                    {keyfuncs.ErrMalformed, 400, malformed},
		"an error of the function own": {errors.New("no answer"), 503, undecided},
	} {
		list := keyfuncs.NewList(func(*keyfuncs.Request) (string, error) {
			return "",
				fmt.Errorf("look: %w", c.err)
		})
		for field, rule := range map[string]pipeline.Rule{
			"deny":  {Guard: rule.Guard, Who: rule.Who, Deny: list, Allow: allow},
			"allow": {Guard: rule.Guard, Who: rule.Who, Allow: list},
		} {
			w := send(s.framework.Build(onThings(ok, rule)), request(http.MethodPost, thing))
			if w.Code != c.status || w.Body.String() != c.body {
				s.Errorf("%s: %s: %d %s, want %d %s", field, reason, w.Code, w.Body, c.status, c.body)
			}
		}
	}
	everybody := keyfuncs.NewList(keyfuncs.Const("everybody"), "everybody")
	garbage := keyfuncs.NewList(func(*keyfuncs.Request) (string, error) { return "", keyfuncs.ErrMalformed })
	app = s.framework.Build(onThings(ok,
		pipeline.Rule{Guard: rule.Guard, Who: rule.Who, Deny: everybody, Allow: garbage}))
	want("ann", inside, 403, denied) // and Allow is not asked then
	notes.want(s)
}
