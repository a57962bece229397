package started

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/gatehousetest"
)

// TestASecondVoteIsRefused is the test that the page shows for an application of one's own.
func TestASecondVoteIsRefused(t *testing.T) {
	gate := gatehousetest.New(t)
	app := newShop(gate.Engine).onNetHTTP()
	vote := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/polls/final/votes", strings.NewReader("choice=red"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Api-Key", "hello")
		return r
	}

	gate.Allows(app, 1, vote)
	gate.Refuses(app, http.StatusConflict, 0, vote)
}

func TestTheSixthRequestOfASecondIsRefused(t *testing.T) {
	gate := gatehousetest.New(t)
	app := newShop(gate.Engine).onNetHTTP()
	items := func() *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/items", nil)
		r.Header.Set("X-Api-Key", "hello")
		return r
	}

	gate.Allows(app, 5, items)
	gate.Refuses(app, http.StatusTooManyRequests, time.Second, items)
	gate.Advance(time.Second)
	gate.Allows(app, 5, items)
}

// TestTheEngineStartsWithoutRedis: the page's engine and rules are made while no Redis is there.
func TestTheEngineStartsWithoutRedis(t *testing.T) {
	rdb, gate := newEngine()
	defer rdb.Close()
	newShop(gate)
}

// open returns a shop on a Redis whose clock stands still, with its sale open.
func open(t *testing.T) (shop, *miniredis.Miniredis) {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	m.SetTime(time.Now())
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	s := newShop(core.New(rdb, core.WithDeadline(time.Minute)))
	if err := openSale(t.Context(), s.sale); err != nil {
		t.Fatal(err)
	}
	return s, m
}

func ask(ctx context.Context, app http.Handler, method, path, apiKey string,
	header ...string,
) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader("choice=red"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Api-Key", apiKey)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	app.ServeHTTP(w, r)
	return w
}

// TestTheShopAnswersAsThePageSays: on each framework, with what the page's section on answers says.
func TestTheShopAnswersAsThePageSays(t *testing.T) {
	for framework, mount := range map[string]func(shop) http.Handler{
		"gin": shop.onGin, "echo": shop.onEcho, "net/http": shop.onNetHTTP,
	} {
		t.Run(framework, func(t *testing.T) {
			s, _ := open(t)
			app := mount(s)
			for _, step := range []struct {
				method, path, apiKey, operation string
				want                            int
			}{
				{"POST", "/polls/final/votes", "hello", "", http.StatusCreated},
				{"POST", "/polls/final/votes", "hello", "", http.StatusConflict},
				{"POST", "/polls/other/votes", "hello", "", http.StatusConflict},
				{"POST", "/polls/final/votes", "made up", "", http.StatusUnauthorized},
				{"POST", "/sales/tv-55/orders", "hello", "1", http.StatusCreated},
				{"POST", "/sales/tv-55/orders", "hello", "1", http.StatusOK},
				{"POST", "/sales/tv-55/orders", "hello", "2", http.StatusConflict},
				{"POST", "/sales/tv-55/orders", "world", "1", http.StatusInternalServerError},
				{"GET", "/items", "hello", "", http.StatusOK},
			} {
				w := ask(t.Context(), app, step.method, step.path, step.apiKey, "Idempotency-Key", step.operation)
				if w.Code != step.want {
					t.Errorf("%+v: %d %s", step, w.Code, w.Body)
				}
			}
			status, err := s.sale.Status(t.Context(), "tv-55")
			if err != nil || status.Left != 99 || status.Sold != 1 || status.Held != 0 {
				t.Errorf("%+v, %v: want one unit sold, and that of the failed order back", status, err)
			}
			tally, err := s.ballots.Tally(t.Context(), "final")
			if err != nil || tally["red"] != 1 {
				t.Errorf("%v, %v", tally, err)
			}
		})
	}
}

// TestMadeUpAPIKeysCountAsTheirAddress: 500 invented API keys from one address get 401, then 429, and leave
// no keys in Redis but those of the limit of this address.
func TestMadeUpAPIKeysCountAsTheirAddress(t *testing.T) {
	s, m := open(t)
	app := s.onNetHTTP()
	before, answers := len(m.Keys()), map[int]int{}
	for i := range 500 {
		answers[ask(t.Context(), app, "GET", "/items", fmt.Sprintf("made up %d", i)).Code]++
	}
	if answers[http.StatusUnauthorized] != 100 || answers[http.StatusTooManyRequests] != 400 {
		t.Errorf("answers %v", answers)
	}
	if made := len(m.Keys()) - before; made > 2 {
		t.Errorf("%d keys: %q", made, m.Keys())
	}
}

// TestThePageShowsTheRefusal: the refusal that the page shows is the one that a client gets.
func TestThePageShowsTheRefusal(t *testing.T) {
	page, err := os.ReadFile("../../docs/getting-started.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```text\n(HTTP/1.1 429 .*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/getting-started.md shows no 429")
	}
	s, _ := open(t)
	app := s.onNetHTTP()
	w := httptest.NewRecorder()
	for range 101 {
		w = ask(t.Context(), app, "GET", "/items", "")
	}
	head, body, _ := strings.Cut(string(block[1]), "\n\n")
	for i, line := range strings.Split(head, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		if i == 0 {
			name, value = "", strings.TrimPrefix(line, "HTTP/1.1 ")
		}
		got := strings.Join(fields(w.Header(), name), ", ")
		if i == 0 {
			got = fmt.Sprintf("%d %s", w.Code, http.StatusText(w.Code))
		}
		if got != value {
			t.Errorf("the page shows %s, the answer has %q", line, got)
		}
	}
	body = strings.ReplaceAll(strings.TrimSpace(body), "\n ", "")
	if body != strings.TrimSpace(w.Body.String()) {
		t.Errorf("the page shows the body %s, the answer has %s", body, w.Body)
	}
}

// fields returns the values of a header field, whatever the case in which it was set.
func fields(h http.Header, name string) (values []string) {
	for key, all := range h {
		if strings.EqualFold(key, name) {
			values = append(values, all...)
		}
	}
	return values
}
