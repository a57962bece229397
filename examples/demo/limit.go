package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// limitAnswer is the answer to one request under a limit, with what it means and how it came about.
type limitAnswer struct {
	Status int     `json:"status"`
	Text   string  `json:"text"` // of the status
	Fields []field `json:"fields"`
	Body   string  `json:"body"`
	// Source says who decided: redis, remembered or local.
	Source string       `json:"source"`
	Calls  []scriptCall `json:"calls"` // what was sent to Redis; none where the process decided
}

// field is a header field, and what its parts mean.
type field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Parts []part `json:"parts"`
}

type part struct {
	Text    string `json:"text"`
	Meaning string `json:"meaning"`
}

// limit sends a request through a limit, as from the address of the client, and reports the answer and the
// script that ran, by a hook of the Redis client.
func (d *demo) limit(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, d.instance().askLimit(r.Context(), r.RemoteAddr))
}

func (in *instance) askLimit(ctx context.Context, from string) limitAnswer {
	guarded := ratelimit.HTTP(ratelimit.Rule{Guard: in.labs.page, Who: keyfuncs.IP()})
	ctx, trace := withTrace(ctx)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/limited", nil)
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	guarded(http.HandlerFunc(in.hello)).ServeHTTP(w, r)

	trace.mu.Lock()
	defer trace.mu.Unlock()
	return limitAnswer{
		Status: w.Code,
		Text:   http.StatusText(w.Code),
		Fields: explain(w.Header()),
		Body:   strings.TrimSpace(w.Body.String()),
		Source: trace.source,
		Calls:  append([]scriptCall{}, trace.calls...),
	}
}

// explain returns the fields that are about the limit, part by part.
func explain(h http.Header) []field {
	fields := []field{}
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		value := h.Get(name)
		if value == "" {
			continue
		}
		f := field{Name: name, Value: value}
		if name == "Retry-After" {
			f.Parts = []part{{value, "wait " + seconds(value) + ": before that, no request can pass"}}
		} else {
			for text := range strings.SplitSeq(value, ";") { // no name of a guard here has a semicolon
				f.Parts = append(f.Parts, part{text, meaning(name, text)})
			}
		}
		fields = append(fields, f)
	}
	return fields
}

// meaning explains a part of a RateLimit field.
func meaning(name, text string) string {
	key, value, _ := strings.Cut(text, "=")
	switch key {
	case "q":
		return "at most " + value + " requests"
	case "w":
		return "in any window of " + seconds(value)
	case "r":
		return value + " requests are left"
	case "t":
		return "in " + seconds(value) + " there is at least one more"
	}
	if name == "RateLimit-Policy" {
		return "the name of the limit, which is its guard's"
	}
	return "the limit that these figures belong to"
}

func seconds(n string) string {
	if n == "1" {
		return "1 second"
	}
	return n + " seconds"
}
