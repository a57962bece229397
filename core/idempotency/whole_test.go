package idempotency

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestOutcomesFitEveryServer: Redis closed the connection for an outcome that was longer than its
// proto-max-bulk-len, and the operation stayed in progress.
func TestOutcomesFitEveryServer(t *testing.T) {
	t.Parallel()
	rdb := redistest.StartServer(t).Client(t)
	if err := rdb.ConfigSet(t.Context(), "proto-max-bulk-len", "1mb").Err(); err != nil { // the least
		t.Fatal(err)
	}
	g := New(guardtest.NewEngine(redistest.Backend{Client: rdb, Prefix: "small"}), "i",
		Options{MaxBody: outcomeBodyMost})
	body := bytes.Repeat([]byte{0}, outcomeBodyMost)
	// six bytes each in JSON
	long := map[string]string{"Location": "/orders/7", "Link": strings.Repeat("<", 20<<10)}
	huge := map[string]string{"Link": strings.Repeat("<", 1<<20)}
	for name, c := range map[string]struct{ given, want core.Outcome }{
		"as long as may be": {core.Outcome{Status: 201, Body: body}, core.Outcome{Status: 201, Body: body}},
		"long fields": {core.Outcome{Status: 201, Header: long, Body: body},
			core.Outcome{Status: 201, Header: long, Incomplete: true}},
		"huge fields": {core.Outcome{Status: 201, Header: huge}, core.Outcome{Status: 201, Incomplete: true}},
	} {
		a := core.Attempt{Actor: "ann", ID: name}
		finish(t, g, guardtest.Check(t, g, a), &c.given)
		wantDone(t, g, a, c.want)
	}
}
