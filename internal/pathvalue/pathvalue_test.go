package pathvalue_test

import (
	"net/url"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/pathvalue"
)

func TestPlain(t *testing.T) {
	for _, c := range []struct{ path, pattern, name, value, want string }{
		{"/polls/final", "/polls/:poll", "poll", "final", "final"},
		{"/polls/%66inal", "/polls/:poll", "poll", "%66inal", "final"},
		{"/polls/%66inal", "/polls/{poll}", "poll", "%66inal", "final"},
		{"/polls/%66inal", "/polls/{poll:[a-z]+}", "poll", "%66inal", "final"},
		{"/polls/%66inal", "POST /polls/{poll}", "poll", "final", "final"}, // undone by the router
		{"/polls/a/%66inal", "/polls/{rest...}", "rest", "a/%66inal", "a/final"},
		{"/polls/a/%66inal", "/polls/*rest", "rest", "a/%66inal", "a/final"},
		{"/polls/a/%66inal", "/polls/*rest", "rest", "/a/%66inal", "/a/final"}, // as gin has it
		{"/files/%2541/%62", "/files/{rest...}", "rest", "%41/b", "%41/b"},     // undone by the router
		{"/polls/%66inal", "", "poll", "%66inal", "final"},                     // no pattern known
		// The second segment has been undone to what the first one is written like: it must not be undone again.
		{"/%66inal/%2566inal", "/{team}/{poll}", "poll", "%66inal", "%66inal"},
		{"/%66inal/%2566inal", "/{team}/{poll}", "team", "final", "final"},
		{"/polls/%zz", "/polls/:poll", "poll", "%zz", "%zz"},
		{"/x", "/polls/:poll", "poll", "%66inal", "%66inal"},
	} {
		u, err := url.Parse(c.path)
		if err != nil {
			u = &url.URL{RawPath: c.path}
		}
		if got := pathvalue.Plain(u, c.pattern, c.name, c.value); got != c.want {
			t.Errorf("Plain(%q, %q, %q, %q) = %q, want %q", c.path, c.pattern, c.name, c.value, got, c.want)
		}
	}
}
