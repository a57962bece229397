package pipeline_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestTheTryThatSucceedsCounts: a client without an answer sends the request again with the same operation ID
// while the first one still runs. One of the two succeeds and the other fails, in either order: the client
// must have what the successful answer promised.
func TestTheTryThatSucceedsCounts(t *testing.T) {
	for name, end := range map[string]func(first, second *pipeline.Passage){
		"the first try fails last": func(first, second *pipeline.Passage) {
			second.Leave(http.StatusOK)
			first.Leave(http.StatusInternalServerError)
		},
		"the first try fails first": func(first, second *pipeline.Passage) {
			first.Leave(http.StatusInternalServerError)
			second.Leave(http.StatusOK)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := redistest.Mini(t)
			gate := core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
			votes, sale := votes.New(gate, "vote", votes.Options{}), seckill.New(gate, "sale", seckill.Options{})
			if _, err := sale.Open(t.Context(), "t1", seckill.Sale{Stock: 1}); err != nil {
				t.Fatal(err)
			}
			vote, buy := ruleOf(votes), ruleOf(sale)
			vote.Which, vote.ID, buy.ID = keyfuncs.Const("red"), keyfuncs.Const("k1"), keyfuncs.Const("k1")
			vote.RunReplays, buy.RunReplays = true, true // else only one of them runs
			p := pipeline.New(vote, buy)

			first := enter(t, p, httptest.NewRequest(http.MethodPost, "/", nil))
			second := enter(t, p, httptest.NewRequest(http.MethodPost, "/", nil))
			end(first, second)

			if tally, err := votes.Tally(t.Context(), "t1"); err != nil ||
				!maps.Equal(tally, map[string]int64{"red": 1}) {
				t.Errorf("the tally is %v, %v: the vote that counted is gone", tally, err)
			}
			if status, err := sale.Status(t.Context(), "t1"); err != nil || status.Sold != 1 {
				t.Errorf("%+v, %v: the unit that was sold is gone", status, err)
			}
		})
	}
}
