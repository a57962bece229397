package pipeline

import (
	"net/http"
	"path"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// PlainPaths refuses requests with a path that routers and handlers may read differently, with 400 and the
// reason malformed. Such a path has an escaped slash ("%2F"), a backslash, escaped or not, an empty element
// ("//"), or an element "." or "..". Put it around the whole application: the router, gin's Engine, echo's
// Echo.
//
//	http.ListenAndServe(addr, pipeline.PlainPaths(mux))
//
// A rule that is mounted on a subtree, such as /files/, guards the requests that the router sends there. Some
// routers, ServeMux among them, take /files%2Fa.txt for one element, which does not match /files/. A handler
// behind another pattern, such as an http.FileServer at "/", reads the decoded path, and serves /files/a.txt
// past the rule. docs/guides/rules.md says what each framework does.
//
// Leave it out where such paths have a meaning, such as "%2F" within the name of a package, and mount the
// rule around the application. PlainPaths panics on a nil handler.
func PlainPaths(next http.Handler) http.Handler {
	if next == nil {
		panic("gatehouse: pipeline.PlainPaths has a nil handler: pass the handler of the application")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isPlain(r.URL.Path) && !escapesSlash(r.URL.EscapedPath()) {
			next.ServeHTTP(w, r)
			return
		}
		answers.Refuse(answers.Own, answers.ReasonMalformed, core.Decision{}).Reply(w, r)
	})
}

// isPlain reports whether a decoded path has no backslash, no empty element, no "." and no "..".
func isPlain(decoded string) bool {
	if strings.Contains(decoded, `\`) {
		return false
	}
	clean := path.Clean(decoded)
	return decoded == clean || clean != "/" && decoded == clean+"/" || decoded == ""
}

// escapesSlash reports whether an escaped path has an escaped slash.
func escapesSlash(escaped string) bool {
	for {
		i := strings.IndexByte(escaped, '%')
		if i < 0 || len(escaped) < i+3 {
			return false
		}
		if strings.EqualFold(escaped[i:i+3], "%2F") {
			return true
		}
		escaped = escaped[i+3:]
	}
}
