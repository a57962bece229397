package pipeline_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestAnotherSpellingOfAPathDoesNotPassTheRuleOnASubtree: /files%2Fa.txt was served past the limit on /files/,
// by a file server at the root. The routers send it there; PlainPaths does not let it in.
func TestAnotherSpellingOfAPathDoesNotPassTheRuleOnASubtree(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "files", "a b%c.txt"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := http.FileServer(http.Dir(dir))
	const name = "a%20b%25c.txt"
	for router, build := range map[string]func(func(http.Handler) http.Handler) http.Handler{
		"ServeMux": func(rule func(http.Handler) http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/", files)
			mux.Handle("/files/", rule(files))
			return mux
		},
		"chi": func(rule func(http.Handler) http.Handler) http.Handler {
			r := chi.NewRouter()
			r.Handle("/*", files)
			r.Handle("/files/*", rule(files))
			return r
		},
	} {
		t.Run(router, func(t *testing.T) {
			gate := core.NewMemory(core.WithObserver(guardtest.Ignore{}))
			rule := nethttpmw.HTTP(pipeline.Rule{Guard: limit.NewSlidingWindow(gate, "files", limit.PerHour(1)),
				Who: keyfuncs.IP()})
			app := build(rule)
			ask := func(h http.Handler, path string) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				return w
			}
			plain := pipeline.PlainPaths(app)
			if first, second := ask(plain, "/files/"+name), ask(plain, "/files/"+name); first.Code != 200 ||
				second.Code != 429 {
				t.Errorf("%d, %d", first.Code, second.Code)
			}
			if w := ask(app, "/files%2F"+name); w.Code != 200 {
				t.Errorf("the router has changed: %d; look whether docs/guides/rules.md still tells the truth", w.Code)
			}
			for _, path := range []string{
				"/files%2F" + name, "/files%2f" + name, "/files%5C" + name, "/files%5c" + name, `/files\` + name,
				"//files/" + name, "/files//" + name, "/x/../files/" + name, "/./files/" + name, "/%2e/files/" + name,
				"/x/%2E%2e/files/" + name, "/files/%2e%2E/files/" + name, "/files/.", "/files/..", "//",
			} {
				if w := ask(plain, path); w.Code != 400 || !strings.Contains(w.Body.String(), `"malformed"`) {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			}
			for _, path := range []string{"/", "/files/", "/files/..a", "/a.b/c..d", "/%252F", "/100%25", "/a%20b",
				"/%E4%B8%AD"} {
				if w := ask(plain, path); w.Code == 400 {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			}
		})
	}
	star := httptest.NewRequest(http.MethodOptions, "/", nil)
	star.URL.Path, star.RequestURI = "*", "*"
	w := httptest.NewRecorder()
	pipeline.PlainPaths(http.NotFoundHandler()).ServeHTTP(w, star)
	if w.Code != 404 {
		t.Errorf("OPTIONS *: %d", w.Code)
	}
	guardtest.WantPanic(t, "nil handler", func() { pipeline.PlainPaths(nil) })
}
