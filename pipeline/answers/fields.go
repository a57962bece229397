package answers

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The names of the fields in the canonical form of http.Header.
const (
	fieldPolicy    = "Ratelimit-Policy"
	fieldLimit     = "Ratelimit"
	fieldMax       = "X-Ratelimit-Limit"
	fieldRemaining = "X-Ratelimit-Remaining"
	fieldReset     = "X-Ratelimit-Reset"
)

// Fields are the figures of one middleware's rules, as header fields.
type Fields struct {
	// values are those of RateLimit-Policy and RateLimit. Headers refer to them, so they never change.
	values [2]string
	// spent is the number of seconds until the last of the used-up limits resets.
	spent int64
	rare  *rare // nil: nothing of it; one pointer, since each request has fields
}

// rare is what few rules have.
type rare struct {
	legacy *legacy // nil: no rule has legacy fields
	tokens *token  // that the client keeps; nil: none
	around *Fields // of the middleware around the rules; nil: there is none
}

// more returns what few rules have, for the first time too.
func (f *Fields) more() *rare {
	if f.rare == nil {
		f.rare = new(rare)
	}
	return f.rare
}

// around returns the fields of the middleware around the rules; nil: there are none.
func (f *Fields) around() *Fields {
	if f.rare == nil {
		return nil
	}
	return f.rare.around
}

// legacy returns the figures of the legacy fields; nil: there are none.
func (f *Fields) legacy() *legacy {
	if f.rare == nil {
		return nil
	}
	return f.rare.legacy
}

// tokens returns what the client keeps; nil: nothing.
func (f *Fields) tokens() *token {
	if f.rare == nil {
		return nil
	}
	return f.rare.tokens
}

// legacy are the figures of the rule that the legacy fields describe.
type legacy struct {
	max, remaining, reset int64
	refused               bool
}

// Set adds the fields to a header, those around first: they may be missing because the handler writes into
// another header, as inside http.TimeoutHandler. It keeps what other middlewares have set.
func (f *Fields) Set(h http.Header) {
	if f.rare != nil && f.rare.around != nil {
		f.rare.around.Set(h)
	}
	for i, name := range [...]string{fieldPolicy, fieldLimit} {
		switch value := f.values[i]; {
		case value == "" || slices.Contains(h[name], value):
		case h[name] == nil:
			h[name] = f.values[i : i+1 : i+1] // no allocation; an append makes a copy
		default:
			h[name] = append(h[name], value)
		}
	}
	if f.rare == nil {
		return
	}
	if f.rare.legacy != nil {
		f.rare.legacy.put(h)
	}
	keep(h, f.rare.tokens)
}

func (l *legacy) put(h http.Header) {
	there, err := strconv.ParseInt(h.Get(fieldRemaining), 10, 64)
	if err == nil && there <= l.remaining && !l.refused {
		return
	}
	h.Set(fieldMax, strconv.FormatInt(l.max, 10))
	h.Set(fieldRemaining, strconv.FormatInt(l.remaining, 10))
	h.Set(fieldReset, strconv.FormatInt(time.Now().Unix()+l.reset, 10))
}

// Correct replaces earlier fields in a header, since failed rules will give back their units.
func (f *Fields) Correct(before *Fields, h http.Header) {
	if i := slices.Index(h[fieldLimit], before.values[1]); i >= 0 && before.values[1] != "" {
		h[fieldLimit] = slices.Clone(h[fieldLimit]) // other headers may have the same values
		h[fieldLimit][i] = f.values[1]
	}
	if l := f.legacy(); l != nil && h.Get(fieldRemaining) == strconv.FormatInt(before.legacy().remaining, 10) {
		h.Del(fieldRemaining) // put keeps the figures with less left
		l.put(h)
	}
}

// token is a header field that has the client keep the token of a guard.
type token struct {
	field, value string
	next         *token // of another guard
}

// keep has the client keep the tokens.
func keep(h http.Header, t *token) {
	for ; t != nil; t = t.next {
		if !slices.Contains(h[t.field], t.value) {
			h.Add(t.field, t.value)
		}
	}
}

// HasTokens reports whether the client is to keep a token.
func (f *Fields) HasTokens() bool { return f.rare != nil && f.rare.tokens != nil }

// KeepTokens is called when the header of the handler's answer is about to be sent. An answer with a token is
// for one client: no shared cache may store it, whatever the handler has said.
func (f *Fields) KeepTokens(h http.Header) {
	if !f.HasTokens() || h == nil {
		return
	}
	keep(h, f.tokens()) // a handler may have replaced its cookies
	directives, private := []string{"private"}, false
	for _, line := range h["Cache-Control"] {
		for line != "" {
			var one string
			one, line = cut(line, ',')
			name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(one)), "=")
			private = private || name == "no-store"
			if !slices.Contains([]string{"", "public", "private", "s-maxage", "proxy-revalidate"}, name) {
				directives = append(directives, strings.TrimSpace(one))
			}
		}
	}
	if !private {
		h.Set("Cache-Control", strings.Join(directives, ", "))
	}
	for name := range h { // these take precedence for some caches (RFC 9213)
		if strings.HasSuffix(name, "-Cache-Control") || name == "Surrogate-Control" || name == "X-Accel-Expires" {
			h.Del(name)
		}
	}
}

// wholeSeconds returns a duration in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	// Sliding windows round times up by less than a millisecond. That must not turn a minute into 61 seconds.
	// A response is on its way for longer than that.
	seconds := (d-time.Millisecond-1)/time.Second + 1
	return min(int64(seconds), 1<<31-1) // some clients cannot read more
}
