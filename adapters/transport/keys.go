package transport

import (
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Host is the host of the outgoing request, in lower case, with its port if the URL has one.
func Host() keyfuncs.Func {
	return keyfuncs.Named("transport.Host()", func(r *keyfuncs.Request) (string, error) {
		if r.URL == nil || r.URL.Host == "" {
			return "", keyfuncs.ErrMissing
		}
		return strings.ToLower(r.URL.Host), nil
	})
}

// Route is the pattern that fits the outgoing request, of patterns as http.ServeMux has them, such as
// "GET /users/{id}" or "/search/": so all users share a limit. A request that none fits is "other". It panics
// on a pattern that http.ServeMux does not take.
func Route(patterns ...string) keyfuncs.Func {
	mux := http.NewServeMux()
	for _, pattern := range patterns {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	return keyfuncs.Named("transport.Route(...)", func(r *keyfuncs.Request) (string, error) {
		of := &http.Request{Method: r.Method, URL: r.URL, Host: r.URL.Host}
		if _, pattern := mux.Handler(of); pattern != "" {
			return pattern, nil
		}
		return "other", nil
	})
}
