package main

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
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

// pageInfo is what the page says about the demo. Its figures are those of the server.
type pageInfo struct {
	Sizes  sizes
	Switch bool // whether the page can take Redis away
}

// The constants of scenarios, for the page.
func (pageInfo) PageUnits() int            { return pageUnits }
func (pageInfo) PageWindow() time.Duration { return pageWindow }
func (pageInfo) TriesPerAddress() int      { return triesPerAddress }
func (pageInfo) TrafficUnits() int         { return trafficUnits }
func (pageInfo) Branches() []branch        { return branches }

// Pages are where the documents tell more of what is shown here.
func (pageInfo) Pages() []struct{ Name, Path string } {
	return []struct{ Name, Path string }{
		{"Get started", "docs/getting-started.md"}, {"Rate limits", "docs/guides/rate-limiting.md"},
		{"Flash sales", "docs/guards/seckill.md"}, {"Waiting room", "docs/guards/waiting-room.md"},
		{"Budgets", "docs/guards/budget.md"}, {"Votes", "docs/guards/votes.md"},
		{"Outages", "docs/guides/outages.md"}, {"All guards", "docs/README.md"},
	}
}

// TreeButtons are the buttons while the tree of budgets is flooded.
func (pageInfo) TreeButtons() []struct{ What, Text string } {
	return []struct{ What, Text string }{
		{"raise", fmt.Sprintf("Support raises her to %d for an hour", raisedUnits)},
		{"pause", "Pause her team"},
		{"all", "All flood"},
	}
}

// Visitors is a number as people read it.
func (p pageInfo) Visitors() string {
	if n := p.Sizes.Visitors; n >= 1000 {
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return strconv.Itoa(p.Sizes.Visitors)
}

// Kept is how long a place is kept for who was called: the Grace of the waiting room.
func (p pageInfo) Kept() time.Duration { return p.Sizes.Poll * 3 / 2 }

// RoomTime is about how long a run of the waiting room takes: nobody enters before all have asked.
func (p pageInfo) RoomTime() time.Duration { return p.Sizes.Lobby + p.Sizes.Doors + 3*p.Sizes.Poll }

type choiceCount struct {
	Choice string
	Votes  int64
}

// page shows the page. It does so without a Redis too, since the switch that gives it back is on it: then
// the status is 503, and figures are missing.
func (a *app) page(w http.ResponseWriter, r *http.Request) {
	var data struct {
		pageInfo
		Up      bool
		Tally   []choiceCount
		Sale    seckill.Status
		Exports semaphore.State
	}
	data.pageInfo = a.info
	tally, err := a.votes.Tally(r.Context(), poll)
	if err == nil {
		data.Sale, err = a.sale.Status(r.Context(), item)
	}
	if err == nil {
		data.Exports, err = a.exports.Peek(r.Context(), core.Attempt{})
	}
	data.Up = err == nil
	for _, choice := range choices {
		data.Tally = append(data.Tally, choiceCount{choice, tally[choice]})
	}
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, data); err != nil {
		http.Error(w, "The page cannot be shown right now.", http.StatusInternalServerError)
		return
	}
	pageHeader(w, "text/html; charset=utf-8")
	if !data.Up {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(page.Bytes()) // fails only when the client is gone
}

// pageFile serves the style and the script of the page.
func pageFile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	text, err := pageFiles.ReadFile(name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	kind := "text/css; charset=utf-8"
	if name == "page.js" {
		kind = "text/javascript; charset=utf-8"
	}
	pageHeader(w, kind)
	_, _ = w.Write(text) // fails only when the client is gone
}

func pageHeader(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
}
