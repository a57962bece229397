package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// small are the sizes of tests.
var small = sizes{
	Limit: 20, Window: 400 * time.Millisecond,
	Buyers: 150, Stock: 20, Payment: 5 * time.Millisecond, Hold: 3 * time.Second,
	Visitors: 400, Capacity: 20, Lobby: 2500 * time.Millisecond, Doors: 4 * time.Second,
	Poll: time.Second, Pass: 2 * time.Second,
	Span: time.Second, Hour: time.Second, Quiet: 4 * time.Second,
	Tries: 120, Accounts: 80, Addresses: 10, Honest: 30, PerAddress: 4,
	Explained: 5, ExplainedWindow: 10 * time.Second,
	Lease: 3 * time.Second, Traffic: 300 * time.Millisecond,
}

// What the scenarios send.
type (
	attackCounts struct {
		Lanes map[string]struct {
			Worst             int
			Admitted, Refused []float64
		}
	}
	raceCounts struct {
		Sale    seckill.Status
		Sum     int64
		Answers map[string]int
		Naive   struct{ Left, Sold, Oversold, Refused int }
	}
	pollCounts struct {
		Open, Capped struct {
			Tally, Attacker map[string]int
			Refused         int
		}
	}
	step struct {
		Step    string
		MS      int64
		Figures map[string]int64
	}
	trafficCounts struct {
		Limit   map[string]int
		Sale    map[int]int
		Up      bool
		Breaker breakerState
		Alone   int
	}
	roomCounts struct {
		State                                              string
		Inside, Called, Most, Waiting, Entered, Left, Told int
	}
	roomDraw struct {
		Commitment, Seed string
		Positions        []int64
	}
	treeCounts struct {
		Nodes           map[string]node
		All, Paused     bool
		RaisedMS        int64 `json:"raised_ms"`
		Refused, Others int
		Answer          string
	}
	limitAnswer struct {
		Status       int
		Source, Body string
		Fields       []field
		Calls        []scriptCall
	}
)

// embedded makes a demo with a Redis of its own.
func embedded(t testing.TB, z sizes) *demo {
	t.Helper()
	s, err := connect("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return demoOn(t, s, z)
}

func demoOn(t testing.TB, s *store, z sizes) *demo {
	t.Helper()
	d, opened, err := newDemo(t.Context(), s, z)
	if err != nil || !opened {
		t.Fatalf("new demo: opened %t, %v", opened, err)
	}
	return d
}

// eachDemo runs f on the Redis inside the process and, in CI, on a redis-server, beside other tests. The
// scenarios show leases, windows and holds of some seconds, with the clock of their viewers.
func eachDemo(t *testing.T, f func(t testing.TB, d *demo)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		timed.Test(t, 300*time.Millisecond, func(t *timed.T) { f(t, embedded(t, small)) })
	})
	t.Run("redis", func(t *testing.T) {
		redistest.LeftToCI(t)
		t.Parallel()
		timed.Test(t, 300*time.Millisecond, func(t *timed.T) {
			b := redistest.Single(t)
			options := *b.Client.(*redis.Client).Options()
			s := &store{client: redis.NewClient(&options), prefix: b.Prefix}
			t.Cleanup(s.close)
			f(t, demoOn(t, s, small))
		})
	})
}

type sent struct {
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// play runs a scenario to its end, and returns its events. The last one is "done".
func play(t testing.TB, d *demo, name string) []sent {
	t.Helper()
	w := send(d, "POST", "/scenarios/"+name)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%s: %d %s", name, w.Code, w.Body)
	}
	events := parse(t, w.Body.String())
	if last := last(events); last.Event != "done" {
		t.Fatalf("%s: the last event is %s %s, want done", name, last.Event, last.Data)
	}
	return events
}

func parse(t testing.TB, body string) (events []sent) {
	t.Helper()
	for line := range strings.Lines(body) {
		events = append(events, data[sent](t, []byte(line)))
	}
	return events
}

// data reads JSON.
func data[T any](t testing.TB, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func last(events []sent) sent { return events[len(events)-1] }

func TestTheSlidingWindowHoldsUnderTheAttack(t *testing.T) {
	redistest.LeftToCI(t)
	eachDemo(t, func(t testing.TB, d *demo) {
		// The naive window is far beyond its limit, unless the machine is too slow for the burst: then the
		// attacker gets a longer window.
		for try := 1; ; try++ {
			worst, sent := map[string]int{}, map[string]int{}
			for _, e := range play(t, d, "attack") {
				for name, l := range data[attackCounts](t, e.Data).Lanes {
					worst[name] = max(worst[name], l.Worst)
					sent[name] += len(l.Admitted) + len(l.Refused)
				}
			}
			for name, n := range sent {
				if n <= 20 {
					t.Errorf("%s: %d requests, want more than the limit", name, n)
				}
			}
			if worst["sliding"] > 20 || worst["sliding"] == 0 || worst["bucket"] > 40 {
				t.Fatalf("most admitted in a window: %v, want up to 20 by the sliding one", worst)
			}
			if worst["naive"] > 20 && worst["bucket"] > 20 {
				return
			}
			if try == 5 {
				t.Fatalf("most admitted in a window: %v: the attacker was too slow, and proved nothing", worst)
			}
			d.instance().sizes.Window *= 2
		}
	})
}

func TestTheWorstWindowHasRequestsThatWereCertainlyInIt(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		sent []request
		most int
		from time.Duration
	}{
		{nil, 0, 0},
		{[]request{{1 * ms, 2 * ms, true}, {99 * ms, 100 * ms, true}, {101 * ms, 102 * ms, true}}, 2, 1 * ms},
		{[]request{{0, 2 * ms, true}, {99 * ms, 100 * ms, true}}, 1, 0},       // a whole window after
		{[]request{{0, 1 * ms, true}, {2 * ms, 150 * ms, true}}, 1, 0},        // the second may be later
		{[]request{{0, 1 * ms, false}, {50 * ms, 60 * ms, true}}, 1, 50 * ms}, // refused ones do not count
		{[]request{
			{0, 1 * ms, true}, {90 * ms, 91 * ms, true}, {95 * ms, 96 * ms, true}, {180 * ms, 185 * ms, true},
		}, 3, 0},
	} {
		if most, from := worstWindow(c.sent, 100*ms); most != c.most || from != c.from {
			t.Errorf("%v: %d from %v, want %d from %v", c.sent, most, from, c.most, c.from)
		}
	}
}

func TestTheSaleSellsItsStockAndRepeatedOrdersAreReplays(t *testing.T) {
	eachDemo(t, func(t testing.TB, d *demo) {
		want(t, send(d, "POST", "/scenarios/sale-same"), 200, "run the sale first")
		for range 2 { // a second sale is a new one
			events := play(t, d, "sale")
			for _, e := range events {
				if c := data[raceCounts](t, e.Data); c.Sum != 20 || c.Sale.Stock != 20 || c.Sale.Sold > 20 {
					t.Errorf("while it runs: %+v, want 20 in all", c)
				}
			}
			c := data[raceCounts](t, last(events).Data)
			if c.Sale.Sold != 20 || c.Sale.Left != 0 || c.Answers["ok"] != 20 || c.Answers["sold_out"] != 130 {
				t.Errorf("%+v, want 20 of 150 buyers to have a ticket", c)
			}
			n := c.Naive
			if n.Sold+n.Refused != 150 || n.Left != 20-n.Sold || n.Oversold != n.Sold-20 || n.Sold < 20 {
				t.Errorf("naive: %+v, want each order counted", n)
			}
			again := data[raceCounts](t, last(play(t, d, "sale-same")).Data)
			if again.Sale != c.Sale || again.Answers["replayed"] != 20 || again.Answers["sold_out"] != 130 ||
				again.Answers["ok"] != 0 || again.Naive != n {
				t.Errorf("the same orders again: %+v, want 20 replays and nothing sold", again)
			}
		}
	})
}

func TestHoldsOfADeadWorkerComeBack(t *testing.T) {
	redistest.LeftToCI(t)
	eachDemo(t, func(t testing.TB, d *demo) {
		var held []int64
		var ms int64
		for _, e := range play(t, d, "holds") {
			if e.Event == "done" {
				continue
			}
			s := data[step](t, e.Data)
			held, ms = append(held, s.Figures["held"]), s.MS
			if s.Figures["left"]+s.Figures["held"]+s.Figures["sold"] != 10 {
				t.Errorf("%+v does not add up to 10", s)
			}
		}
		if !slices.Equal(held, []int64{0, 4, 0}) || ms < small.Hold.Milliseconds() {
			t.Errorf("held %v after %d ms; want 4 for %v", held, ms, small.Hold)
		}
	})
}

func TestCapsStopAStuffer(t *testing.T) {
	eachDemo(t, func(t testing.TB, d *demo) {
		c := data[pollCounts](t, last(play(t, d, "poll")).Data)
		if c.Open.Tally["red"] != 80 || c.Open.Tally["blue"] != 30 {
			t.Errorf("caps off: %v, want a vote per account", c.Open.Tally)
		}
		red, blue := c.Capped.Tally["red"], c.Capped.Tally["blue"]
		if red > 40 || red < 10 || blue != 30 || c.Capped.Refused != 0 {
			t.Errorf("caps on: %v, %d people refused; want 4 votes per address of the attacker", c.Capped.Tally,
				c.Capped.Refused)
		}
		for _, side := range []struct {
			Tally, Attacker map[string]int
			Refused         int
		}{c.Open, c.Capped} {
			answers := 0
			for _, n := range side.Attacker {
				answers += n
			}
			if answers != 120 || side.Attacker["201"] != side.Tally["red"] {
				t.Errorf("answers to the attacker: %v, want 120, and a 201 for each red vote", side.Attacker)
			}
		}
	})
}

func TestTheLimitShowsTheScriptThatRan(t *testing.T) {
	eachDemo(t, func(t testing.TB, d *demo) {
		ask := func() (a limitAnswer) {
			a = data[limitAnswer](t, last(play(t, d, "limit")).Data)
			if (a.Source == "redis") != (len(a.Calls) > 0) {
				t.Errorf("decided by %s with %d calls", a.Source, len(a.Calls))
			}
			return a
		}
		a := ask()
		call := a.Calls[len(a.Calls)-1]
		if a.Status != 200 || call.Script != "lua/limit/sliding_window.lua" ||
			!strings.Contains(call.Source, "-- Sliding window: at most") ||
			!strings.Contains(call.Keys[0], "page:{127.0.0.1}") ||
			!slices.Equal(call.Args, []string{"5/10000:"}) || !strings.HasPrefix(call.Reply, "4 ") {
			t.Errorf("first request: %d, %s %v %v: %s", a.Status, call.Script, call.Keys, call.Args, call.Reply)
		}
		if len(a.Fields) != 2 || a.Fields[0].Value != `"page";q=5;w=10` ||
			a.Fields[0].Parts[1] != [2]string{"q=5", "at most 5 requests"} ||
			a.Fields[1].Parts[1] != [2]string{"r=4", "4 requests are left"} {
			t.Errorf("first request: %+v", a.Fields)
		}
		for i := 0; a.Status == 200 && i < 1000; i++ { // a machine that stalls may need more than 6
			a = ask()
		}
		name := a.Fields[len(a.Fields)-1].Name
		if a.Status != 429 || name != "Retry-After" || !strings.Contains(a.Body, "limited") {
			t.Errorf("refused: %d %+v %s", a.Status, a.Fields, a.Body)
		}
	})
}

func TestWorkersThatDie(t *testing.T) {
	redistest.LeftToCI(t)
	for _, c := range []struct {
		name, figure string
		want         func(values []int64) bool
		text         string
	}{
		{"semaphore", "held", func(v []int64) bool { return len(v) == 4 && v[0] == 2 && slices.Max(v) == 2 }, "busy"},
		{"lock", "fence", func(v []int64) bool { return len(v) == 3 && v[1] > v[0] && v[2] == v[0] },
			"late, with her old fence: refused"},
		{"delay", "delivery", func(v []int64) bool { return slices.Equal(v, []int64{1, 2}) }, `\"sent\"`},
		{"spend", "left", func(v []int64) bool { return slices.Equal(v, []int64{100, 60, 80, 40, 10, 10}) }, "429"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachDemo(t, func(t testing.TB, d *demo) {
				var values []int64
				var all strings.Builder
				for _, e := range play(t, d, c.name) {
					if e.Event == "done" {
						continue
					}
					all.Write(e.Data)
					if v, ok := data[step](t, e.Data).Figures[c.figure]; ok {
						values = append(values, v)
					}
				}
				if !c.want(values) || !strings.Contains(all.String(), c.text) {
					t.Errorf("%s %v:\n%s", c.figure, values, &all)
				}
			})
		})
	}
}

func TestTheSwitchTakesRedisAwayAndGivesItBack(t *testing.T) {
	t.Parallel()
	// The demo has a deadline and a breaker of its own.
	timed.Test(t, 300*time.Millisecond, theSwitchTakesRedisAway)
}

func theSwitchTakesRedisAway(t *timed.T) {
	d := embedded(t, small)
	want(t, send(d, "POST", "/polls/final/votes?choice=red&user=ann"), 400, "no_key") // the choice is a form's
	power := func(redis string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/redis", strings.NewReader("redis="+redis))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		return w
	}
	want(t, send(d, "POST", "/sales/ticket/orders", "X-User", "ann"), 201, "sold")
	want(t, power("off"), 200, `"up":false`)
	want(t, send(d, "POST", "/sales/ticket/orders", "X-User", "bob"), 503, "unavailable")
	away := data[trafficCounts](t, last(play(t, d, "traffic")).Data)
	if away.Up || away.Sale[503] == 0 || away.Sale[200] != 0 || away.Limit["local 200"] == 0 ||
		away.Breaker.State != "open" {
		t.Errorf("away: %+v, want a local limit, a closed sale and an open breaker", away)
	}
	want(t, send(d, "GET", "/"), 503, `aria-checked="false"`) // the page has the switch

	want(t, power("on"), 200, `"up":true`)
	redistest.Eventually(t, time.Minute, func() bool {
		return d.instance().breaker().State == "closed"
	}, "the breaker closes")
	want(t, send(d, "GET", "/sales/ticket"), 200, `"left":99,"held":0,"sold":1`) // the data stayed
	back := data[trafficCounts](t, last(play(t, d, "traffic")).Data)
	if !back.Up || back.Sale[200] == 0 || back.Sale[503] != 0 || back.Limit["redis 200"] == 0 ||
		back.Breaker.Opened != 1 {
		t.Errorf("back: %+v, want an open sale", back)
	}
	want(t, power("maybe"), 400, "redis=off")

	for try := 1; ; try++ {
		story := data[trafficCounts](t, last(play(t, d, "outage")).Data)
		local := 0
		for row, n := range story.Limit {
			if strings.HasPrefix(row, "local ") {
				local += n
			}
		}
		if story.Alone != local+story.Sale[503] {
			t.Errorf("the whole story: %+v", story)
		}
		if story.Up && story.Limit["redis 200"] > 0 && story.Alone > 0 {
			break
		}
		if try == 5 {
			t.Fatalf("the whole story: %+v, want requests with Redis and without", story)
		}
		d.instance().sizes.Traffic *= 2 // a busy machine needs longer thirds
	}

	outside := &demo{store: &store{}}
	w := httptest.NewRecorder()
	outside.power(w, httptest.NewRequest(http.MethodPost, "/redis?redis=off", nil))
	want(t, w, 409, "REDIS_URL")
}

// TestTrafficThatBeganWithoutRedisBuysWhenItIsBack: its sale could not be opened in the beginning.
func TestTrafficThatBeganWithoutRedisBuysWhenItIsBack(t *testing.T) {
	t.Parallel()
	z := small
	z.Traffic = 30 * time.Second
	d := embedded(t, z)
	if err := d.store.takeAway(); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(d)
	defer server.Close()
	answer, err := http.Post(server.URL+"/scenarios/traffic", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		c := data[trafficCounts](t, data[sent](t, lines.Bytes()).Data)
		if c.Sale[503] > 0 && !c.Up {
			if err := d.store.giveBack(); err != nil {
				t.Fatal(err)
			}
		}
		if c.Sale[200] > 0 {
			return
		}
	}
	t.Error("no order was taken after Redis was back")
}

func TestResetEndsRunsAndStartsAgain(t *testing.T) {
	eachDemo(t, func(t testing.TB, d *demo) {
		want(t, send(d, "POST", "/sales/ticket/orders", "X-User", "ann"), 201, "sold")
		d.instance().sizes.Traffic = time.Minute
		ended := make(chan *httptest.ResponseRecorder, 1)
		go func() { ended <- send(d, "POST", "/scenarios/traffic") }()
		redistest.Eventually(t, time.Minute, func() bool {
			_, err := d.instance().last("traffic")
			return err == nil
		}, "the traffic runs")
		if d.store.switchable() {
			if err := d.store.takeAway(); err != nil {
				t.Fatal(err)
			}
		}
		want(t, send(d, "POST", "/reset"), 200, `"up":true`)
		events := parse(t, (<-ended).Body.String())
		if e := last(events); e.Event != "failed" || !strings.Contains(string(e.Data), "reset") {
			t.Errorf("the run ended with %s %s", e.Event, e.Data)
		}
		want(t, send(d, "GET", "/sales/ticket"), 200, `"left":100,"held":0,"sold":0`)
		want(t, send(d, "POST", "/sales/ticket/orders", "X-User", "ann"), 201, "sold")
	})
}

// TestASecondTabSeesTheSameRun: it joins the run from the first event on, which goes on when the tab that
// started it is closed.
func TestASecondTabSeesTheSameRun(t *testing.T) {
	redistest.LeftToCI(t)
	eachDemo(t, func(t testing.TB, d *demo) {
		want(t, send(d, "GET", "/scenarios/attack"), 409, "not run yet")
		gone, leave := context.WithCancel(t.Context())
		leave()
		r := httptest.NewRequestWithContext(gone, http.MethodPost, "/scenarios/attack", nil)
		d.ServeHTTP(httptest.NewRecorder(), r)
		first, _ := d.instance().last("attack")

		joined := send(d, "POST", "/scenarios/attack")
		watched := send(d, "GET", "/scenarios/attack")
		events := parse(t, joined.Body.String())
		if events[0].Event != "counts" || last(events).Event != "done" {
			t.Errorf("the run is from %s to %s", events[0].Event, last(events).Event)
		}
		if joined.Body.String() != watched.Body.String() {
			t.Error("two tabs see different runs")
		}
		if now, _ := d.instance().last("attack"); now != first {
			t.Errorf("the second tab started run %s, want it to join %s", now.run, first.run)
		}
	})
}

func TestTheStateHasTheRuns(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	d := embedded(t, small)
	play(t, d, "holds")
	w := send(d, "GET", "/state")
	want(t, w, 200, `"left":100`)
	s := data[struct {
		Up      bool
		Breaker breakerState
		Runs    map[string]string
		Now     standing
	}](t, w.Body.Bytes())
	if !s.Up || len(s.Now.Tally) != 3 || s.Breaker.State != "closed" || len(s.Runs) != 1 ||
		s.Runs["holds"] == "" {
		t.Errorf("%+v", s)
	}
}

func TestOtherSitesCannotStartAnything(t *testing.T) {
	t.Parallel()
	d := embedded(t, small)
	for _, path := range []string{"/reset", "/redis", "/scenarios/sale", "/polls/final/votes"} {
		want(t, send(d, "POST", path, "Sec-Fetch-Site", "cross-site"), 403, "another site")
	}
	want(t, send(d, "POST", "/scenarios/none"), 409, "no such scenario")
}

// TestAtMostTheCapacityIsInside: a crowd comes before the opening, the draw is as anybody can compute it,
// half of those who wait leave and hold up nobody, and the others are told in the end.
func TestAtMostTheCapacityIsInside(t *testing.T) {
	redistest.LeftToCI(t)
	eachDemo(t, func(t testing.TB, d *demo) {
		if w := send(d, "POST", "/scenarios/room/leave"); w.Code != 409 {
			t.Errorf("nobody waits: %d %s", w.Code, w.Body)
		}
		ended := make(chan []sent)
		go func() { ended <- play(t, d, "room") }()
		redistest.Eventually(t, time.Minute, func() bool {
			return send(d, "POST", "/scenarios/room/leave").Code == 200
		}, "the room opens")
		events := <-ended
		drawn := false
		for _, e := range events {
			if e.Event == "draw" {
				draw := data[roomDraw](t, e.Data)
				drawn = true
				if draw.Commitment != waitingroom.Commitment(draw.Seed) || len(draw.Positions) != 400 {
					t.Errorf("%s is not the commitment of %s, or not of 400: %d", draw.Commitment, draw.Seed,
						len(draw.Positions))
				}
				for place, number := range waitingroom.Draw(draw.Seed, len(draw.Positions)) {
					if got := draw.Positions[number]; got != int64(place)+1 {
						t.Fatalf("visitor %d is told position %d, drawn %d", number, got, place+1)
					}
				}
				continue
			}
			c := data[roomCounts](t, e.Data)
			if c.Inside+c.Called > 20 || c.Most > 20 || !drawn && c.Entered > 0 {
				t.Errorf("%+v, of 20; drawn %t", c, drawn)
			}
		}
		c := data[roomCounts](t, last(events).Data)
		t.Logf("%+v", c)
		if !drawn || c.State != "closed" || c.Most < 15 || c.Entered == 0 || c.Left < 150 ||
			c.Told+c.Left+c.Entered != 400 {
			t.Errorf("%+v; drawn %t", c, drawn)
		}
	})
}

// TestOneUserFloodsAndTheOthersGoOn: until all flood. What support decides is obeyed and shown, and ends by
// itself.
func TestOneUserFloodsAndTheOthersGoOn(t *testing.T) {
	redistest.LeftToCI(t)
	eachDemo(t, func(t testing.TB, d *demo) {
		if w := send(d, "POST", "/scenarios/budgets/raise?on=true"); w.Code != 409 {
			t.Errorf("nobody floods yet: %d", w.Code)
		}
		ended := make(chan []sent, 1)
		go func() { ended <- play(t, d, "budgets") }()
		counts := func() (c treeCounts) {
			if run, err := d.instance().last("budgets"); err == nil {
				if lines, _, _ := run.since(0); len(lines) > 0 {
					c = data[treeCounts](t, data[sent](t, []byte(lines[len(lines)-1])).Data)
				}
			}
			return c
		}
		shown := func(what string, cond func(c treeCounts) bool) {
			redistest.Eventually(t, time.Minute, func() bool { return cond(counts()) }, what)
		}
		press := func(what string, on bool) {
			want(t, send(d, "POST", fmt.Sprintf("/scenarios/budgets/%s?on=%t", what, on)), 200, "")
		}
		shown("ann is refused", func(c treeCounts) bool { return c.Nodes["ann"].Hit == "user" && c.Refused > 5 })
		if c := counts(); c.Others > 0 || !strings.Contains(c.Answer, "RateLimit") {
			t.Errorf("%+v: the others are refused, or there is no answer", c)
		}
		press("raise", true)
		ann := func(c treeCounts) node { return c.Nodes["ann"] }
		shown("she has more", func(c treeCounts) bool { return ann(c).Max == 20 && ann(c).Used > 15 })
		shown("the hour is over", func(c treeCounts) bool { return c.RaisedMS == 0 && ann(c).Max == 15 })
		press("raise", true)
		press("raise", false)
		shown("support has taken it back", func(c treeCounts) bool { return c.RaisedMS == 0 })
		press("pause", true)
		shown("her team is paused", func(c treeCounts) bool { return c.Paused && c.Nodes["ann"].Hit == "paused" })
		if c := counts(); c.Nodes["data"].Hit != "" {
			t.Errorf("%+v: the other team is refused", c)
		}
		press("pause", false)
		press("all", true)
		shown("the organisation binds", func(c treeCounts) bool { return c.All && c.Nodes["acme"].Hit == "org" })
		for _, e := range <-ended {
			nodes := data[treeCounts](t, e.Data).Nodes
			for _, b := range branches {
				if used := nodes[b.Name].Used; used > b.Max && (b.Name != "ann" || used > raisedUnits) {
					t.Errorf("%s has used %d, of %d", b.Name, used, b.Max)
				}
			}
		}
	})
}
