package adaptertest

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func missingKeys(s *scene) {
	finds := func(text string, err error) keyfuncs.Func {
		return func(*keyfuncs.Request) (string, error) { return text, err }
	}
	var (
		here    = finds("t1", nil)
		empty   = finds("", nil)
		missing = finds("", fmt.Errorf("look: %w", keyfuncs.ErrMissing))
		garbage = finds("", fmt.Errorf("look: %w", keyfuncs.ErrMalformed))
		broken  = finds("", errors.New("no answer"))
		require = keyfuncs.Require(missing)
	)
	for _, c := range []struct {
		name             string
		who, what, which keyfuncs.Func
		id               keyfuncs.Func
		// The body of the refusal with NoKeyRefuse, and with NoKeySkip; "": the handler runs.
		refuse, skip string
	}{
		{"all found", here, here, here, here, "", ""},
		{"nobody", missing, here, here, nil, noKey, ""},
		{"an empty name", empty, here, here, nil, noKey, ""},
		{"nothing it is about", here, missing, here, nil, noKey, noKey},
		{"no choice", here, here, missing, nil, noKey, noKey},
		{"no field of the form", here, here, keyfuncs.Form("choice"), nil, lacks(`choice`), lacks(`choice`)},
		{"no query parameter", keyfuncs.Query("user"), here, here, nil, lacks(`user`), ""},
		{"no member of the JSON", here, keyfuncs.JSON(99, "order", "sku"), here, nil,
			lacks(`order.sku`), lacks(`order.sku`)},
		{"no header field, which a proxy may set", keyfuncs.Header("X-Staff-User"), here, here, nil, noKey, ""},
		{"no Idempotency-Key where one is required", here, here, here, keyfuncs.Require(keyfuncs.IdempotencyKey()),
			lacks(`Idempotency-Key`), lacks(`Idempotency-Key`)},
		{"no operation ID", here, here, here, missing, "", ""},
		{"no operation ID where one is required", here, here, here, require, noKey, noKey},
		{"nobody where somebody is required", require, here, here, nil, noKey, noKey},
		{"a malformed name", garbage, here, here, nil, malformed, malformed},
		{"malformed what it is about", here, garbage, here, nil, malformed, malformed},
		{"a malformed choice", here, here, garbage, nil, malformed, malformed},
		{"a malformed operation ID", here, here, here, garbage, malformed, malformed},
		{"an error of the function's own", broken, here, here, nil, undecided, undecided},
	} {
		s.Run(c.name, func(t *testing.T) {
			for policy, body := range map[pipeline.NoKey]string{pipeline.NoKeyRefuse: c.refuse,
				pipeline.NoKeySkip: c.skip} {
				guard := &stub{name: "own", diary: &diary{}}
				rule := pipeline.Rule{Guard: guard, Who: c.who, What: c.what, Which: c.which, ID: c.id, NoKey: policy}
				ran, decided := false, false
				w := send(s.framework.Build(onThings(func(ctx Context) {
					ran = true
					_, decided = ctx.Decision("own")
					ok(ctx)
				}, rule)), request(http.MethodPost, thing))
				if ran != (body == "") {
					t.Errorf("NoKey %d: the handler ran: %t", policy, ran)
				}
				status := http.StatusBadRequest
				if body == undecided {
					status = http.StatusServiceUnavailable
				}
				if body != "" && (w.Code != status || w.Body.String() != body) {
					t.Errorf("NoKey %d: %d %s", policy, w.Code, w.Body)
				}
				// The guard is asked where everything was found, and only there.
				if asked := c.refuse == ""; decided != asked || (len(guard.diary.notes) > 0) != asked {
					t.Errorf("NoKey %d: decided: %t, and %q", policy, decided, guard.diary.notes)
				}
			}
		})
	}
}
