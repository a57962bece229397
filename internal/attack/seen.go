package attack

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Seen is what an attack has seen of all answers.
type Seen struct {
	// Requests is the number of requests that were sent, and Failed the number of those without an answer.
	Requests int `json:"requests"`
	Failed   int `json:"failed"`
	// Admitted is the number of answers that were admitted.
	Admitted int `json:"admitted"`
	// Statuses is the number of answers by status.
	Statuses map[int]int `json:"statuses"`
	// WhenAdmitted and WhenRefused are the fields about limits of the first answer that was admitted, and of the
	// first that was not: "RateLimit: ...".
	WhenAdmitted []string `json:"fields_when_admitted"`
	WhenRefused  []string `json:"fields_when_refused"`
	// Redirects is the number of answers that lead to other hosts, by host. None was followed.
	Redirects map[string]int `json:"redirects_to_other_hosts"`
}

// see counts an answer; nil is a request without one.
func (a *Attacker) see(answer *Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.seen
	s.Requests++
	if answer == nil {
		s.Failed++
		return
	}
	s.Statuses[answer.Status]++
	first := &s.WhenRefused
	if answer.Admitted {
		s.Admitted++
		first = &s.WhenAdmitted
	}
	if *first == nil {
		*first = fieldsAboutLimits(answer.Header)
	}
	own, err := url.Parse(a.URL)
	if to, bad := own.Parse(answer.Header.Get("Location")); err == nil && bad == nil && to.Host != own.Host {
		s.Redirects[to.Host]++
	}
}

// Seen returns what the attack has seen until now.
func (a *Attacker) Seen() Seen {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.seen
	s.Statuses, s.Redirects = maps.Clone(s.Statuses), maps.Clone(s.Redirects)
	return s
}

// fieldsAboutLimits returns the fields of an answer that tell a client of limits, in order.
func fieldsAboutLimits(h http.Header) []string {
	found := []string{} // which is not nil: an answer was seen
	for _, name := range slices.Sorted(maps.Keys(h)) {
		lower := strings.ToLower(name)
		if lower == "retry-after" || strings.HasPrefix(strings.TrimPrefix(lower, "x-"), "ratelimit") {
			for _, value := range h[name] {
				found = append(found, FieldName(name)+": "+value)
			}
		}
	}
	return found
}

// FieldName returns the name of a field, which http.Header keeps in a form of its own, as documents spell it.
func FieldName(name string) string {
	switch name {
	case "Ratelimit":
		return "RateLimit"
	case "Ratelimit-Policy":
		return "RateLimit-Policy"
	}
	return name
}
