package config_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestDocumentedFilesLoad: each block of YAML on the page is a whole file that builds.
func TestDocumentedFilesLoad(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, "../../docs/config.md"), -1)
	if len(blocks) < 5 {
		t.Fatalf("found only %d blocks", len(blocks))
	}
	for _, block := range blocks {
		c, err := config.Parse("docs/config.md", []byte(block[1]))
		if err != nil {
			t.Errorf("%v\n%s", err, block[1])
			continue
		}
		if _, err := c.Build(guardtest.NewEngine(redistest.Mini(t))); err != nil {
			t.Error(err)
		}
	}
}

// TestDocumentedCodeCompiles: each block of Go on the page is in the examples.
func TestDocumentedCodeCompiles(t *testing.T) {
	dedent := func(s string) string { return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(s, "") }
	code := dedent(read(t, "example_test.go"))
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "../../docs/config.md"), -1) {
		if !strings.Contains(code, dedent(block[1])) {
			t.Errorf("not in example_test.go:\n%s", block[1])
		}
	}
}

// TestDocumentedMistakes: the page shows what a file with these mistakes gets.
func TestDocumentedMistakes(t *testing.T) {
	shown := regexp.MustCompile("(?s)<!-- mistakes -->\n```text\n(.*?)\n```").FindStringSubmatch(read(t, "../../docs/config.md"))
	_, err := config.Parse("rules.yaml", []byte("guards:\n  api: {sliding_window: {limits: 9/s}}\n\n"+
		"rules:\n  api:\n    - {guard: apy, who: ip, cost: 0}\n"))
	if shown == nil || err == nil || err.Error() != shown[1] {
		t.Errorf("got\n%v\nthe page has\n%s", err, shown)
	}
}

// TestEveryFieldIsDocumented: the page names each field, kind and key function of the schema.
func TestEveryFieldIsDocumented(t *testing.T) {
	var schema any
	if err := json.Unmarshal([]byte(read(t, "schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	var collect func(any)
	collect = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if properties, ok := v["properties"].(map[string]any); ok {
				for name := range properties {
					names[name] = true
				}
			}
			if word, ok := v["const"].(string); ok {
				names[word] = true
			}
			for _, inner := range v {
				collect(inner)
			}
		case []any:
			for _, inner := range v {
				collect(inner)
			}
		}
	}
	collect(schema)
	if len(names) < 80 {
		t.Errorf("the schema has only %d names", len(names))
	}
	page := read(t, "../../docs/config.md")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !regexp.MustCompile("`" + name + "[`:]").MatchString(page) {
			t.Errorf("docs/config.md does not name `%s`", name)
		}
	}
}

// TestTheFirstExampleWorksAsShown: the first file and the first code of the page are a program.
func TestTheFirstExampleWorksAsShown(t *testing.T) {
	first := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, "../../docs/config.md"))
	t.Chdir(t.TempDir())
	if err := os.WriteFile("rules.yaml", []byte(first[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	order := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }
	h := serve(t.Context(), guardtest.NewEngine(redistest.Mini(t)), http.NewServeMux(), order)
	for i, want := range append(slices.Repeat([]int{http.StatusNotFound}, 10), http.StatusTooManyRequests) {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "203.0.113.7:1234"
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("request %d: got %d, want %d", i, w.Code, want)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/sales/ticket/orders", nil)
	r.RemoteAddr = "192.0.2.7:1234" // of the office, which passes the limit; nobody has opened the sale
	r = r.WithContext(keyfuncs.WithValue(r.Context(), "uid", "ann"))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "not_ready") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
