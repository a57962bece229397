package adaptertest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestCrawlersKeepThePageInFrontOfARoom(t *testing.T) { onRedis(t, crawlersKeepThePage) }

// crawlersKeepThePage: a client without a ticket that does not navigate was told to drop the product's page
// from its index, with status 200, when the room was full or closed.
func crawlersKeepThePage(s *scene) {
	room := s.room(waitingroom.Options{Capacity: 1})
	app, _ := s.shop(ok, room)
	visit(app, http.MethodGet, "")
	wantUnavailable := func(name, method string, waits bool, headers ...string) {
		w := visit(app, method, "", headers...)
		h := w.Result().Header
		if w.Code != http.StatusServiceUnavailable || h.Get("X-Robots-Tag") != "" ||
			(h.Get("Retry-After") != "") != waits || (w.Body.Len() == 0) != (method == http.MethodHead) {
			s.Errorf("%s: %d %v", name, w.Code, h)
		}
	}
	wantUnavailable("a crawler", http.MethodGet, true, acceptPage)
	wantUnavailable("HEAD of a crawler", http.MethodHead, true, acceptPage)
	if w := visit(app, http.MethodGet, ""); w.Code != 429 || w.Result().Header.Get("X-Robots-Tag") != "" {
		s.Errorf("a program: %d %v", w.Code, w.Result().Header)
	}
	g, _ := room.Guard.(*waitingroom.Guard)
	if err := g.Close(s.Context(), "later"); err != nil {
		s.Fatal(err)
	}
	wantUnavailable("a crawler, closed", http.MethodGet, false, acceptPage)
}

func TestThePageOfAClosedRoomAsksAgainForThoseInLine(t *testing.T) { onRedis(t, theLineGoesOn) }

// theLineGoesOn: the page of a closed room asks again while its reader has a ticket.
func theLineGoesOn(s *scene) {
	room := s.room(waitingroom.Options{Capacity: 1})
	app, _ := s.shop(ok, room)
	visit(app, http.MethodGet, "")
	ticket := s.ticketOf(visit(app, http.MethodGet, "", acceptPage, "Sec-Fetch-Mode: navigate"))
	g, _ := room.Guard.(*waitingroom.Guard)
	if err := g.Close(s.Context(), "<sold out>"); err != nil {
		s.Fatal(err)
	}
	page := visit(app, http.MethodGet, ticket, acceptPage)
	text, h := page.Body.String(), page.Result().Header
	if page.Code != 200 || h.Get("Retry-After") == "" || !strings.Contains(text, "<script") ||
		!strings.Contains(text, "refresh") || !strings.Contains(text, `<p id="text">&lt;sold out&gt;`) ||
		!strings.Contains(h.Get("Content-Security-Policy"), "connect-src 'self'") {
		s.Errorf("the page: %d %v %s", page.Code, h, text)
	}
	program := visit(app, http.MethodGet, ticket)
	if program.Code != http.StatusConflict || program.Result().Header.Get("Retry-After") == "" ||
		!strings.Contains(program.Body.String(), `"state":"closed"`) {
		s.Errorf("a program: %d %v %s", program.Code, program.Result().Header, program.Body)
	}
}

func TestTicketsComeBackInFramesWhereTheRoomSaysSo(t *testing.T) { onRedis(t, ticketsInFrames) }

// ticketsInFrames: in a frame of another site SameSite=Lax never comes back.
func ticketsInFrames(s *scene) {
	app, _ := s.shop(ok, s.room(waitingroom.Options{Capacity: 1, Framed: true}))
	set := visit(app, http.MethodGet, "").Result().Header.Get("Set-Cookie")
	if !strings.HasPrefix(set, tokenCookie+"=") || !strings.HasSuffix(set,
		"; Path=/; HttpOnly; SameSite=None; Secure; Partitioned") {
		s.Errorf("the cookie is %q", set)
	}
}

func TestWaitingVisitorsGetTheStatusOfTheOptions(t *testing.T) { onRedis(t, waitingStatuses) }

// waitingStatuses are those of the options.
func waitingStatuses(s *scene) {
	app, _ := s.shop(ok, s.room(waitingroom.Options{Capacity: 1, PageStatus: 502, ProgramStatus: 202}))
	visit(app, http.MethodGet, "")
	s.wantWaiting("a program", visit(app, http.MethodGet, ""), http.StatusAccepted)
	if w := visit(app, http.MethodGet, "", acceptPage, "Sec-Fetch-Mode: navigate"); w.Code != 502 ||
		!strings.Contains(w.Body.String(), "<html") {
		s.Errorf("the page: %d %s", w.Code, w.Body)
	}
}

func TestAClosedRoomSaysWhy(t *testing.T) { onRedis(t, closedRoomsSayWhy) }

// closedRoomsSayWhy: the operator's text is on the page and in the body, and nobody is asked to come again.
func closedRoomsSayWhy(s *scene) {
	room := s.room(waitingroom.Options{Capacity: 1})
	app, ran := s.shop(ok, room)
	g, _ := room.Guard.(*waitingroom.Guard)
	if err := g.Close(s.Context(), "<sold out>"); err != nil {
		s.Fatal(err)
	}
	page := visit(app, http.MethodGet, "", acceptPage, "Sec-Fetch-Mode: navigate")
	text := page.Body.String()
	if page.Code != 200 || !strings.Contains(text, "&lt;sold out&gt;") || strings.Contains(text, "<script") ||
		strings.Contains(text, "refresh") || page.Result().Header.Get("Retry-After") != "" {
		s.Errorf("the page: %d %v %s", page.Code, page.Result().Header, text)
	}
	program := visit(app, http.MethodGet, "")
	if program.Code != http.StatusConflict || !strings.Contains(program.Body.String(), `"reason":"closed"`) ||
		!strings.Contains(program.Body.String(), "sold out") {
		s.Errorf("a program: %d %v %s", program.Code, program.Result().Header, program.Body)
	}
	if *ran != 0 {
		s.Error("the handler ran")
	}
}

func TestADrawCanBeChecked(t *testing.T) { onRedis(t, drawsCanBeChecked) }

// drawsCanBeChecked: who came before the opening finds on the page, and in the body, what they need to check
// their place; before the opening the commitment, and then the seed.
func drawsCanBeChecked(s *scene) {
	opens := time.Now().Add(time.Hour).Truncate(time.Second)
	clock := guardtest.NewClockAt(opens.Add(-time.Minute))
	s.gate = newEngine(s.backend.Client, s.backend.Prefix, guardtest.WithClock(clock))
	room := s.room(waitingroom.Options{Capacity: 1, Draw: true, Opens: opens})
	app, _ := s.shop(ok, room)
	type draw struct {
		Number, Drawn    int
		Commitment, Seed string
	}
	told := func(ticket string) (d draw) {
		w := visit(app, http.MethodGet, ticket)
		if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
			s.Fatal(err, w.Body)
		}
		page := visit(app, http.MethodGet, ticket, acceptPage).Body.String()
		for _, text := range []string{"<strong>" + strconv.Itoa(d.Number), d.Commitment, d.Seed} {
			if !strings.Contains(page, text) {
				s.Errorf("%q is not on the page: %s", text, page)
			}
		}
		if strings.Contains(page, "Seed;") != (d.Seed != "") {
			s.Errorf("with the seed %q: %s", d.Seed, page)
		}
		return d
	}
	var tickets []string
	for range 3 {
		tickets = append(tickets, s.ticketOf(visit(app, http.MethodGet, "")))
	}
	before := told(tickets[2])
	if before.Seed != "" || before.Commitment == "" || before.Number != 2 {
		s.Errorf("before: %+v", before)
	}
	clock.Set(opens)
	g, _ := room.Guard.(*waitingroom.Guard)
	if _, err := g.Peek(s.Context()); err != nil { // a picture of the room, which is open
		s.Fatal(err)
	}
	after := told(tickets[2])
	if after.Number != 2 || after.Drawn != 3 || after.Commitment != before.Commitment ||
		waitingroom.Commitment(after.Seed) != before.Commitment {
		s.Errorf("before: %+v; after: %+v", before, after)
	}
}

func TestARoomInTheShadowSetsNothing(t *testing.T) { onRedis(t, roomsInTheShadowSetNothing) }

// roomsInTheShadowSetNothing: a room that is tried out lets all in, and has them keep nothing.
func roomsInTheShadowSetNothing(s *scene) {
	room := s.room(waitingroom.Options{Capacity: 1})
	room.Rollout = pipeline.Shadow()
	app, _ := s.shop(ok, room)
	for range 3 {
		if w := visit(app, http.MethodGet, "", acceptPage); w.Code != 200 || w.Body.String() != "done" ||
			w.Result().Header.Get("Set-Cookie") != "" || w.Result().Header.Get("Cache-Control") != "" {
			s.Errorf("%d %v", w.Code, w.Result().Header)
		}
	}
}
