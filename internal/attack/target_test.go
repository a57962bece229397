package attack

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestTargetsAndBoundsThatAreRefused(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string // "" means allowed
	}{
		{Options{URL: "http://127.0.0.1:8080/"}, ""},
		{Options{URL: "http://localhost:8080/"}, ""},
		{Options{URL: "http://[::1]/{n}"}, ""},
		{Options{URL: "https://staging.example/", AllowHost: "staging.example"}, ""},
		{Options{URL: "https://staging.example/"}, "-allow-host staging.example"},
		{Options{URL: "https://staging.example/", AllowHost: "example"}, "-allow-host staging.example"},
		{Options{URL: "http://staging.example:8080/", AllowHost: "staging.example:8080"},
			"-allow-host staging.example"},
		{Options{URL: "http://localhost.example/", AllowHost: "localhost"}, "not a loopback address"},
		{Options{URL: "http://192.168.0.1/"}, "not a loopback address"},
		{Options{URL: "http://127.0.0.1.nip.example/"}, "not a loopback address"},
		{Options{URL: "http://2130706433/"}, "not a loopback address"},
		{Options{URL: "ftp://127.0.0.1/"}, "of the form"},
		{Options{URL: "127.0.0.1:8080"}, "of the form"},
		{Options{URL: "http://ann:secret@127.0.0.1/"}, "contains a user"},
		{Options{URL: "http://127.0.0.1/", Header: http.Header{"User-Agent": {"Mozilla"}}}, "User-Agent"},
		{Options{URL: "http://127.0.0.1/", Method: "A B"}, "method"},
		{Options{URL: "http://127.0.0.1/", Requests: MostRequests + 1}, "-n is 100001"},
		{Options{URL: "http://127.0.0.1/", Requests: -1}, "-n is -1"},
		{Options{URL: "http://127.0.0.1/", Concurrency: 257}, "-c is 257"},
		{Options{URL: "http://127.0.0.1/", Duration: 2 * time.Hour}, "-for is 2h0m0s"},
		{Options{URL: "http://127.0.0.1/", Timeout: -time.Second}, "-timeout is -1s"},
	} {
		_, err := New(tt.o)
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%v tells the password", err)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var others atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { others.Add(1) }))
	defer other.Close()
	target := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer target.Close()
	a, err := New(Options{URL: target.URL, Requests: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r, err := a.Race(t.Context(), 0)
	seen := a.Seen()
	if err != nil || r.Sold != 0 || others.Load() != 0 || seen.Statuses[http.StatusFound] != 10 ||
		seen.Redirects[strings.TrimPrefix(other.URL, "http://")] != 10 {
		t.Errorf("Race = %+v, %v; seen %+v; %d requests to the other host", r, err, seen, others.Load())
	}
}

// TestALocalAttackDialsLoopbackOnly: the name localhost may resolve to anything.
func TestALocalAttackDialsLoopbackOnly(t *testing.T) {
	a, err := New(Options{URL: "http://127.0.0.1/"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "192.0.2.1:80")
	if !errors.Is(err, ErrRefused) {
		t.Errorf("dialling 192.0.2.1: %v", err)
	}
}

func TestRequestsSayWhatTheyAreAndDiffer(t *testing.T) {
	a, err := New(Options{URL: "http://127.0.0.1/u{n}?v={n}", Method: "POST", Body: "buyer={n}",
		Header: http.Header{"X-User": {"u{n}"}, "Host": {"shop.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := a.request(t.Context(), 7, http.Header{"X-Forwarded-For": {"198.51.100.1"}})
	if err != nil {
		t.Fatal(err)
	}
	body := new(strings.Builder)
	_ = r.Write(body)
	for _, want := range []string{"POST /u7?v=7 ", "Host: shop.example\r", "X-User: u7\r", "buyer=7",
		"User-Agent: gatehouse-attack/", "X-Forwarded-For: 198.51.100.1\r"} {
		if !strings.Contains(body.String(), want) {
			t.Errorf("%q is not in %q", want, body)
		}
	}
}
