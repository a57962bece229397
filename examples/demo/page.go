package main

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"strconv"
	"time"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

//go:embed page.css page.js
var pageFiles embed.FS

// policy lets the page use what this server has, and nothing else: no other host, no script or style inside
// the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// card is a part of a scenario that has others like it beside it.
type card struct{ ID, Title, Code, Text string }

// pageTexts are what the page says of the parts of scenarios.
var pageTexts = object{
	"Lanes": []card{ // limits under attack
		{"naive", "Naive fixed window", "INCR, PEXPIRE", "The counter starts again in the middle of the burst."},
		{"bucket", "Token bucket", "limit.NewTokenBucket", "It lets a burst in, and refills while it lasts."},
		{"sliding", "Sliding window", "limit.NewSlidingWindow",
			"It looks back from each request, so there is no edge."},
	},
	"Polls": []card{ // that the attacker stuffs
		{"open", "One vote per account", "votes.New", "All bought accounts will count."},
		{"capped", "With caps per address", "votes.New + limit",
			"The same attacker, with two more rules around the vote."},
	},
	"Stories": []card{ // that are told in steps
		{ID: "holds", Title: "Tickets on hold", Text: "Kill a worker"},
		{ID: "semaphore", Title: "A semaphore", Text: "Kill a holder of a permit"},
		{ID: "lock", Title: "A lock", Text: "Kill the holder of a lock"},
		{ID: "delay", Title: "A delay queue", Text: "Schedule a task, kill its worker"},
		{ID: "spend", Title: "Tokens", Text: "Spend tokens"},
	},
	"Branches": branches,
	"Raised":   raisedUnits,
	"Choices":  choices,
	"Links": []card{ // to the documents that tell more
		{Title: "Get started", Text: "getting-started.md"}, {Title: "Rate limits", Text: "guides/rate-limiting.md"},
		{Title: "Flash sales", Text: "guards/seckill.md"}, {Title: "Waiting room", Text: "guards/waiting-room.md"},
		{Title: "Budgets", Text: "guards/budget.md"}, {Title: "Votes", Text: "guards/votes.md"},
		{Title: "Outages", Text: "guides/outages.md"}, {Title: "All guards", Text: "README.md"},
	},
}

// Thousands is a number as people read it.
func (sizes) Thousands(n int) string {
	if n >= 1000 {
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return strconv.Itoa(n)
}

// Kept is how long the place of a visitor who was called is kept: the Grace of the waiting room.
func (z sizes) Kept() time.Duration { return z.Poll * 3 / 2 }

// RoomTime is about how long a run of the waiting room takes: nobody enters before all have asked.
func (z sizes) RoomTime() time.Duration { return z.Lobby + z.Doors + 3*z.Poll }

// page shows the page. It does so without a Redis too, since the switch that gives it back is on it: then
// the status is 503, and figures are missing.
func (a *app) page(w http.ResponseWriter, r *http.Request) {
	data := maps.Clone(pageTexts)
	now, err := a.standing(r.Context())
	data["Now"], data["Up"], data["Sizes"], data["Switch"] = now, err == nil, a.sizes, a.switchable
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, data); err != nil {
		http.Error(w, "The page cannot be shown right now.", http.StatusInternalServerError)
		return
	}
	pageHeader(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err != nil {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(page.Bytes()) // fails only when the client is gone
}

// pageFile serves the style and the script of the page.
func pageFile(w http.ResponseWriter, r *http.Request) {
	pageHeader(w.Header())
	http.ServeFileFS(w, r, pageFiles, r.PathValue("file"))
}

func pageHeader(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
}
