package pipeline_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// onceOf is a rule that replays the answers of one client.
func onceOf(t *testing.T) pipeline.Rule {
	t.Helper()
	gate := guardtest.NewEngine(redistest.Mini(t))
	return pipeline.Rule{Guard: idempotency.New(gate, "once", idempotency.Options{}), Who: keyfuncs.Const("ann"),
		ID: keyfuncs.IdempotencyKey()}
}

// gzipped is a middleware that compresses what a client wants compressed, as ordinary ones do.
func gzipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		z := &gzipWriter{ResponseWriter: w}
		next.ServeHTTP(z, r)
		if z.zip != nil {
			_ = z.zip.Close()
		}
	})
}

type gzipWriter struct {
	http.ResponseWriter
	zip    *gzip.Writer
	headed bool
}

func (w *gzipWriter) WriteHeader(status int) {
	if !w.headed && status >= 200 && w.Header().Get("Content-Encoding") == "" {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Del("Content-Length")
		w.zip = gzip.NewWriter(w.ResponseWriter)
	}
	w.headed = w.headed || status >= 200
	w.ResponseWriter.WriteHeader(status)
}

func (w *gzipWriter) Write(b []byte) (int, error) {
	if !w.headed {
		w.WriteHeader(http.StatusOK)
	}
	if w.zip != nil {
		return w.zip.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// TestCompressedAnswersAreReplayedToWhoCanReadThem: an answer that a middleware inside the rule had
// compressed was replayed to clients that did not ask for it.
//
// Promise (Idempotency): A compressed answer is replayed only to clients that accept its coding.
func TestCompressedAnswersAreReplayedToWhoCanReadThem(t *testing.T) {
	t.Parallel()
	plain := strings.Repeat("order 1\n", 100)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/1")
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, plain)
	})
	rule := nethttpmw.HTTP(onceOf(t))
	for _, c := range []struct {
		name      string
		app       http.Handler
		first, as string // Accept-Encoding
		want      int
	}{
		{"inside, for both", rule(gzipped(handler)), "gzip", "gzip", 201},
		{"inside, for the first only", rule(gzipped(handler)), "gzip", "", 409},
		{"inside, refused by the second", rule(gzipped(handler)), "gzip", "gzip;q=0, br", 409},
		{"inside, for the second only", rule(gzipped(handler)), "", "gzip", 201},
		{"inside, any coding", rule(gzipped(handler)), "gzip", "*;q=0.1", 201},
		{"around, for both", gzipped(rule(handler)), "gzip", "gzip", 201},
		{"around, for the first only", gzipped(rule(handler)), "gzip", "", 201},
		{"around, for the second only", gzipped(rule(handler)), "", "gzip", 201},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(c.app)
			defer srv.Close()
			post := func(accept string) (*http.Response, string) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Idempotency-Key", `"`+c.name+`"`)
				if accept != "" {
					r.Header.Set("Accept-Encoding", accept)
				}
				answer, err := (&http.Client{Transport: &http.Transport{DisableCompression: true,
					DisableKeepAlives: true}}).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				body := io.Reader(answer.Body)
				if answer.Header.Get("Content-Encoding") == "gzip" {
					if body, err = gzip.NewReader(answer.Body); err != nil {
						t.Fatal(err)
					}
				}
				text, err := io.ReadAll(body)
				if err != nil {
					t.Fatal(err)
				}
				return answer, string(text)
			}
			if first, text := post(c.first); first.StatusCode != http.StatusCreated || text != plain {
				t.Fatalf("the first: %d %q", first.StatusCode, text)
			}
			again, text := post(c.as)
			if again.StatusCode != c.want || again.Header.Get("Location") != "/orders/1" ||
				(text == plain) != (c.want == http.StatusCreated) ||
				!slices.Contains(again.Header.Values("Vary"), "Accept-Encoding") && c.want == http.StatusCreated {
				t.Errorf("again: %d %v %q, want %d", again.StatusCode, again.Header, text, c.want)
			}
			if replayed := again.Header.Get(answers.ReplayedHeader) == "true"; replayed != (c.want == 201) {
				t.Errorf("the answer is marked as a replay: %t", replayed)
			}
		})
	}
}

// TestReplaysHaveTheFieldsOfTheAnswer: Vary, Link, Content-Disposition and the fields of CORS were dropped, and
// then those by which a browser protects the page, so a replayed document ran without its sandbox.
//
// Promise (Idempotency): A replay has all header fields of its handler, except Set-Cookie and fields of one
// response. If one cannot be kept, it has no body.
func TestReplaysHaveTheFieldsOfTheAnswer(t *testing.T) {
	t.Parallel()
	kept := map[string]string{
		"Content-Type": "text/csv", "Content-Disposition": `attachment; filename="orders.csv"`,
		"Link": `</orders/1>; rel="self", </style.css>; rel="preload"`, "Content-Language": "en",
		"Access-Control-Allow-Origin": "https://shop.example", "Access-Control-Allow-Credentials": "true",
		"Location": "/orders/1", "Content-Security-Policy": "sandbox; default-src 'none'",
		"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp",
		"Permissions-Policy": "camera=()", "Referrer-Policy": "no-referrer",
		"Strict-Transport-Security": "max-age=31536000", "X-Robots-Tag": "noindex", "X-Total": "7",
	}
	unkept := []string{"X-Request-Id", "Traceparent", "Date", "Cache-Control", "CDN-Cache-Control", "Expires",
		"X-RateLimit-Limit", "Keep-Alive", "Trailer:X-Sum"}
	rule := nethttpmw.HTTP(onceOf(t))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range kept {
			w.Header().Set(name, value)
		}
		w.Header().Add("Vary", "Origin, Accept-Language")
		w.Header().Set("Access-Control-Expose-Headers", "Location")
		w.Header().Set("Set-Cookie", "session=secret")
		for _, name := range unkept {
			w.Header().Set(name, "max-age=60")
		}
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		fmt.Fprint(w, "a,b\n")
	}))
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding, origin")
		rule.ServeHTTP(w, r)
	})
	ask := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", `"fields"`)
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		return w
	}
	ask()
	again := ask()
	for name, value := range kept {
		if got := again.Header().Values(name); !slices.Equal(got, []string{value}) {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if vary := again.Header().Values("Vary"); !slices.Equal(vary, []string{"Accept-Encoding, origin",
		"Accept-Language"}) {
		t.Errorf("Vary is %q", vary)
	}
	if exposed := again.Header().Values("Access-Control-Expose-Headers"); !slices.Contains(exposed, "Location") {
		t.Errorf("exposed are %q", exposed)
	}
	for _, name := range append(unkept, "Set-Cookie", "X-Hop", "Connection") {
		if strings.Contains(again.Header().Get(name), "60") || name[0] != 'C' && again.Header().Get(name) != "" {
			t.Errorf("%s is replayed", name)
		}
	}
	if again.Body.String() != "a,b\n" {
		t.Errorf("the body is %q", again.Body)
	}
}

// TestAnswersAreNotReplayedWithoutAFieldThatCannotBeKept: the body came back without its policy.
func TestAnswersAreNotReplayedWithoutAFieldThatCannotBeKept(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"long":      "default-src " + strings.Repeat("https://a.example ", 500),
		"not UTF-8": "default-src caf\xe9.example",
	} {
		app := nethttpmw.HTTP(onceOf(t))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Security-Policy", value)
			w.Header().Set("Location", "/pages/1")
			fmt.Fprint(w, "<script>")
		}))
		for _, want := range []int{http.StatusOK, http.StatusConflict} {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", `"policy"`)
			w := httptest.NewRecorder()
			app.ServeHTTP(w, r)
			if w.Code != want || w.Header().Get("Location") != "/pages/1" ||
				want != http.StatusOK && strings.Contains(w.Body.String(), "<script>") {
				t.Errorf("%s: %d %v %s, want %d", name, w.Code, w.Header(), w.Body, want)
			}
		}
	}
}

// TestAnswersThatBreakOffAreNotReplayed: a handler that writes less than it has promised has not answered.
//
// Promise (Idempotency): An answer is replayed whole or not at all.
func TestAnswersThatBreakOffAreNotReplayed(t *testing.T) {
	t.Parallel()
	app := nethttpmw.HTTP(onceOf(t))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		fmt.Fprint(w, "short")
	}))
	codes := []int{}
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", `"brief"`)
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		codes = append(codes, w.Code)
	}
	if !slices.Equal(codes, []int{200, 409}) {
		t.Errorf("the statuses are %v, want 200 and 409", codes)
	}
}
