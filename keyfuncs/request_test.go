package keyfuncs_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestRoute(t *testing.T) {
	tests := []struct {
		name    string
		pattern string
		facts   keyfuncs.Facts
		want    string
	}{
		{"framework", "", facts{route: "/polls/:poll/votes"}, "/polls/:poll/votes"},
		{"framework mounted in a ServeMux", "/", facts{route: "/polls/:poll"}, "/polls/:poll"},
		{"framework without a match in a ServeMux", "/", facts{}, missing},
		{"pattern", "/polls/{poll}", nil, "/polls/{poll}"},
		{"pattern with method", "POST /polls/{poll}", nil, "/polls/{poll}"},
		{"pattern with method and blanks", "POST \t /polls/{poll}", nil, "/polls/{poll}"},
		{"pattern with host", "GET example.com/polls/", nil, "example.com/polls/"},
		{"no match", "", nil, missing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := get("/")
			r.Pattern, r.Facts = tt.pattern, tt.facts
			got, err := keyfuncs.Route()(r)
			checkText(t, got, err, tt.want)
		})
	}
}

func TestParam(t *testing.T) {
	tests := []struct {
		name  string
		path  string // what PathValue has
		facts keyfuncs.Facts
		want  string
	}{
		{"framework", "", facts{params: map[string]string{"poll": "7"}}, "7"},
		{"framework before ServeMux", "8", facts{params: map[string]string{"poll": "7"}}, "7"},
		{"framework in a ServeMux whose pattern has it", "8", facts{}, "8"},
		{"framework has it empty", "8", facts{params: map[string]string{"poll": ""}}, missing},
		{"path value", "8", nil, "8"},
		{"neither", "", nil, missing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := get("/")
			r.SetPathValue("poll", tt.path)
			r.Facts = tt.facts
			got, err := keyfuncs.Param("poll")(r)
			checkText(t, got, err, tt.want)
		})
	}

	t.Run("catch-all of echo and chi", func(t *testing.T) {
		r := get("/")
		r.Facts = facts{params: map[string]string{"*": "a/b"}}
		got, err := keyfuncs.Param("*")(r)
		check(t, got, err, "a/b", nil)
	})
}

func TestRouteAndParamOnServeMux(t *testing.T) {
	fn := keyfuncs.Join(keyfuncs.Method(), keyfuncs.Route(), keyfuncs.Param("poll"))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /polls/{poll}/votes", func(_ http.ResponseWriter, r *http.Request) {
		got, err := fn(&keyfuncs.Request{Request: r})
		check(t, got, err, `POST|/polls/{poll}/votes|a/b c`, nil)
	})
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/polls/a%2Fb%20c/votes", nil))
	if w.Code != http.StatusOK {
		t.Fatal(w.Code)
	}
}

func TestMethod(t *testing.T) {
	for method, want := range map[string]string{"POST": "POST", "post": "post", "": missing} {
		r := get("/")
		r.Method = method
		got, err := keyfuncs.Method()(r)
		checkText(t, got, err, want)
	}
}

func TestHost(t *testing.T) {
	label := strings.Repeat("a", 50)
	tests := []struct{ host, want string }{
		{"example.com", "example.com"},
		{"example.com:8080", "example.com"},
		{"EXAMPLE.Com", "example.com"},
		{"example.com.", "example.com"},
		{"Example.COM.:443", "example.com"},
		{"example.com:", "example.com"},
		{"localhost", "localhost"},
		{"a_b-c.example", "a_b-c.example"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"192.0.2.1:80", "192.0.2.1"},
		{"[2001:db8::1]", "2001:db8::1"},
		{"[2001:DB8:0::1]:443", "2001:db8::1"},
		{"[fe80::1%25eth0]:443", "fe80::1"},
		{"[::ffff:192.0.2.1]", "192.0.2.1"},
		{strings.Repeat(label+".", 4) + label[1:], strings.Repeat(label+".", 4) + label[1:]}, // 253 bytes
		{strings.Repeat(label+".", 4) + label, malformed},
		{"", missing},
		{".", malformed},
		{":80", malformed},
		{"example.com..", malformed},
		{"example..com", malformed},
		{".example.com", malformed},
		{"example.com:http", malformed},
		{"example.com:80:80", malformed},
		{"exam ple.com", malformed},
		{"example.com/path", malformed},
		{"user@example.com", malformed},
		{"[example.com]", malformed},
		{"example@com", malformed},
		{"example[com", malformed},
		{"bücher.example", malformed},
		{"\u212aelvin.example", malformed}, // the Kelvin sign would become a k in lower case
		{"2001:db8::1", malformed},
		{"[2001:db8::1", malformed},
		{"[192.0.2.1]", malformed},
		{"[]", malformed},
	}
	for _, tt := range tests {
		t.Run(tt.host, func(t *testing.T) {
			r := get("/")
			r.Host = tt.host
			got, err := keyfuncs.Host()(r)
			checkText(t, got, err, tt.want)
		})
	}
}
