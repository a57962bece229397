package keyfuncs_test

import (
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestQuery(t *testing.T) {
	tests := []struct{ target, want string }{
		{"/?page=7", "7"},
		{"/?a=1&page=7&b=2", "7"},
		{"/?page=a%20b+c", "a b c"},
		{"/?p%61ge=7", "7"},
		{"/?page=7&page=7", "7"},
		{"/?page=7&page=%37", "7"},
		{"/?page=7&Page=8", "7"},
		{"/", missing},
		{"/?", missing},
		{"/?page", missing},
		{"/?page=", missing},
		{"/?page=&page=", missing},
		{"/?Page=7", missing},
		{"/?page[]=7", missing},
		{"/?page=7&page=8", malformed},
		{"/?page=7&page=", malformed},
		{"/?page=&page=7", malformed},
		{"/?page=7&page=07", malformed},
		{"/?page=7%zz", malformed},
		{"/?page=7&x=%", malformed},
		{"/?page=7;page=8", malformed},
		{"/?x;y&page=7", malformed},
	}
	for _, tt := range tests {
		t.Run(tt.target, func(t *testing.T) {
			got, err := keyfuncs.Query("page")(get(tt.target))
			checkText(t, got, err, tt.want)
		})
	}

	got, err := keyfuncs.Query("page")(&keyfuncs.Request{Request: &http.Request{}})
	check(t, got, err, "", keyfuncs.ErrMissing)
}

func TestHeader(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  string
	}{
		{"one", []string{"X-Api-Key: a"}, "a"},
		{"other case", []string{"x-aPI-key: a"}, "a"},
		{"list", []string{"X-Api-Key: a, b"}, "a, b"},
		{"twice the same", []string{"X-Api-Key: a", "X-Api-Key: a"}, "a"},
		{"blanks that HTTP/2 leaves", []string{"X-Api-Key: \t a  "}, "a"},
		{"absent", nil, missing},
		{"empty", []string{"X-Api-Key:"}, missing},
		{"blank", []string{"X-Api-Key:   "}, missing},
		{"two", []string{"X-Api-Key: a", "X-Api-Key: b"}, malformed},
		{"one and an empty one", []string{"X-Api-Key: a", "X-Api-Key:"}, malformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{"X-Api-Key", "x-api-key"} {
				got, err := keyfuncs.Header(name)(get("/", tt.lines...))
				checkText(t, got, err, tt.want)
			}
		})
	}
}

func TestCookie(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  string
	}{
		{"one", []string{"Cookie: sid=a"}, "a"},
		{"among others", []string{"Cookie: x=1; sid=a; y=2"}, "a"},
		{"quoted", []string{`Cookie: sid="a"`}, "a"},
		{"twice the same", []string{"Cookie: sid=a; sid=a"}, "a"},
		{"twice the same, quoted", []string{`Cookie: sid=a; sid="a"`}, "a"},
		{"absent", []string{"Cookie: x=1"}, missing},
		{"no cookies", nil, missing},
		{"empty", []string{"Cookie: sid="}, missing},
		{"other case", []string{"Cookie: SID=a"}, missing},
		{"dropped by net/http", []string{"Cookie: sid=\x7f"}, missing},
		{"two", []string{"Cookie: sid=a; sid=b"}, malformed},
		{"two lines", []string{"Cookie: sid=a", "Cookie: sid=b"}, malformed},
		{"an empty one before", []string{"Cookie: sid=; sid=a"}, malformed},
		{"an empty one behind", []string{"Cookie: sid=a; sid="}, malformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := keyfuncs.Cookie("sid")(get("/", tt.lines...))
			checkText(t, got, err, tt.want)
		})
	}
}

func TestBasicAuth(t *testing.T) {
	const alice = "Authorization: Basic YWxpY2U6cHc=" // alice:pw
	tests := []struct {
		name  string
		lines []string
		want  string
	}{
		{"basic", []string{alice}, "alice"},
		{"lower case scheme", []string{"Authorization: basic YWxpY2U6cHc="}, "alice"},
		{"twice the same", []string{alice, alice}, "alice"},
		{"absent", nil, missing},
		{"empty", []string{"Authorization:"}, missing},
		{"bearer", []string{"Authorization: Bearer YWxpY2U6cHc="}, missing},
		{"no user", []string{"Authorization: Basic OnB3"}, missing},
		{"no colon", []string{"Authorization: Basic YWxpY2U="}, malformed},
		{"no base64", []string{"Authorization: Basic !"}, malformed},
		{"nothing but the scheme", []string{"Authorization: Basic"}, malformed},
		{"two users", []string{alice, "Authorization: Basic Ym9iOnB3"}, malformed},
		{"two schemes", []string{"Authorization: Bearer x", alice}, malformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := keyfuncs.BasicAuth()(get("/", tt.lines...))
			checkText(t, got, err, tt.want)
		})
	}
}
