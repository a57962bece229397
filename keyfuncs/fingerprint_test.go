package keyfuncs_test

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func fingerprintOf(t *testing.T, r *http.Request) string {
	t.Helper()
	text, err := keyfuncs.Fingerprint()(&keyfuncs.Request{Request: r})
	if err != nil || text == "" {
		t.Fatalf("%q, %v", text, err)
	}
	return text
}

// TestAPrefixThatWasStrippedCounts: /beta/orders got the answer of /acme/orders.
func TestAPrefixThatWasStrippedCounts(t *testing.T) {
	found := map[string]string{}
	for _, target := range []string{"/acme/orders", "/beta/orders", "/acme/orders?a=1", "/acme/orders?a=2"} {
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			text, err := keyfuncs.Fingerprint()(&keyfuncs.Request{Request: r})
			if other := found[text]; err != nil || other != "" {
				t.Errorf("%s is the same as %q: %v", target, other, err)
			}
			found[text] = target
		})
		prefix := target[:len("/acme")]
		r := httptest.NewRequest(http.MethodPost, target, nil)
		http.StripPrefix(prefix, handler).ServeHTTP(httptest.NewRecorder(), r)
	}
}

// TestFingerprintTellsRequestsApart: each of these requests differs from the others, and equals itself when
// it is sent again.
//
// Promise (Idempotency): Fingerprints tell requests apart by method, host, path as written, query and whole
// body, or refuse with 413.
func TestFingerprintTellsRequestsApart(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	seen := map[string]string{}
	for _, c := range []struct{ method, url, body string }{
		{"POST", "/orders", ""},
		{"PUT", "/orders", ""},
		{"POST", "/orders/", ""},
		{"POST", "/orders?n=1", ""},
		{"POST", "/orders?n=2", ""},
		{"POST", "/orders%3Fn=1", ""},
		{"POST", "/orders", "n=1"},
		{"POST", "/orders", "n=2"},
		{"POST", "/orders", long[1:]},
		{"POST", "/orders", long},
		{"POST", "/orders", long + "x"},
		{"POST", "/orders", "y" + long},
		{"POST", "/orders", long + long[1:] + "y"},
		{"POST", "/orders", long + long},
		{"POST", "/orders/a/b", ""},
		{"POST", "/orders/a%2Fb", ""},
		{"POST", "/orders/a%2fb", ""},
		{"POST", "http://other.example/orders", ""},
	} {
		ask := func() string {
			r := httptest.NewRequest(c.method, c.url, strings.NewReader(c.body))
			text := fingerprintOf(t, r)
			if again := fingerprintOf(t, r); again != text {
				t.Errorf("asked twice: %q and %q", text, again)
			}
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != c.body {
				t.Errorf("%s %s: the handler reads %d bytes (%v), want %d", c.method, c.url, len(body), err, len(c.body))
			}
			return text
		}
		text := ask()
		if again := ask(); again != text {
			t.Errorf("%s %s: %q, and again %q", c.method, c.url, text, again)
		}
		name := c.method + " " + c.url + " " + c.body
		if other, found := seen[text]; found {
			t.Errorf("%.60q and %.60q have the same fingerprint", name, other)
		}
		seen[text] = name
	}
}

// TestFingerprintOfAChunkedBody: how a body is sent does not matter.
func TestFingerprintOfAChunkedBody(t *testing.T) {
	plain := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("n=1"))
	chunked := httptest.NewRequest(http.MethodPost, "/orders", iotest.OneByteReader(strings.NewReader("n=1")))
	if plain.ContentLength == chunked.ContentLength {
		t.Fatal("both have a length")
	}
	if a, b := fingerprintOf(t, plain), fingerprintOf(t, chunked); a != b {
		t.Errorf("%q and %q", a, b)
	}
	bare := httptest.NewRequest(http.MethodPost, "/orders", nil)
	bare.Body = nil
	if a, b := fingerprintOf(t, bare),
		fingerprintOf(t, httptest.NewRequest(http.MethodPost, "/orders", nil)); a != b {
		t.Errorf("without a body %q and %q", a, b)
	}
}

// TestFingerprintOfAParsedForm: another rule may have read the form, and then the body is gone.
func TestFingerprintOfAParsedForm(t *testing.T) {
	ask := func(body string) string {
		r := httptest.NewRequest(http.MethodPost, "/votes", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if choice, err := keyfuncs.Form("choice")(&keyfuncs.Request{Request: r}); err != nil || choice == "" {
			t.Fatal(choice, err)
		}
		return fingerprintOf(t, r)
	}
	if a, b := ask("choice=red"), ask("choice=blue"); a == b {
		t.Errorf("two choices have the same fingerprint, %q", a)
	}
	if a, b := ask("choice=red"), ask("choice=red"); a != b {
		t.Errorf("%q and %q", a, b)
	}
}

// TestFingerprintOfABodyThatIsNoForm: after a form's field was read, a JSON body leaves a form without
// fields, and only the body distinguishes the requests. Before, another order with the same Idempotency-Key
// got the first one's answer.
func TestFingerprintOfABodyThatIsNoForm(t *testing.T) {
	for name, parse := range map[string]func(r *http.Request){
		"Form":      func(r *http.Request) { _, _ = keyfuncs.Form("csrf")(&keyfuncs.Request{Request: r}) },
		"ParseForm": func(r *http.Request) { _ = r.ParseForm() },
		"FormValue": func(r *http.Request) { _ = r.FormValue("_method") },
	} {
		ask := func(body string) string {
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			parse(r)
			text := fingerprintOf(t, r)
			if left, err := io.ReadAll(r.Body); err != nil || string(left) != body {
				t.Errorf("%s: the handler reads %q, %v, want %q", name, left, err, body)
			}
			return text
		}
		if a, b := ask(`{"n":1}`), ask(`{"n":2}`); a == b {
			t.Errorf("%s: two orders have the same fingerprint, %q", name, a)
		}
		if a, b := ask(`{"n":1}`), ask(`{"n":1}`); a != b {
			t.Errorf("%s: %q and %q", name, a, b)
		}
	}
}

// TestFingerprintOfFilesThatHaveBeenParsed: the fields may be equal while the files differ.
func TestFingerprintOfFilesThatHaveBeenParsed(t *testing.T) {
	ask := func(field, name, content string) string {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		file, err := form.CreateFormFile(field, name)
		if err == nil {
			_, err = io.WriteString(file, content)
		}
		if err = errors.Join(err, form.WriteField("title", "cat"), form.Close()); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/pictures", &body)
		r.Header.Set("Content-Type", form.FormDataContentType())
		if title := r.FormValue("title"); title != "cat" {
			t.Fatal(title)
		}
		return fingerprintOf(t, r)
	}
	first := ask("picture", "a.png", "one")
	if again := ask("picture", "a.png", "one"); again != first {
		t.Errorf("%q, and again %q", first, again)
	}
	for _, other := range []string{ask("picture", "a.png", "two"), ask("picture", "b.png", "one"),
		ask("film", "a.png", "one")} {
		if other == first {
			t.Errorf("two uploads have the same fingerprint, %q", other)
		}
	}
}

// TestFingerprintThenForm: a form can be read after its fingerprint.
func TestFingerprintThenForm(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/votes", strings.NewReader("choice=red"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	fingerprintOf(t, r)
	if choice, err := keyfuncs.Form("choice")(&keyfuncs.Request{Request: r}); err != nil || choice != "red" {
		t.Error(choice, err)
	}
}

func TestFingerprintOfABodyThatBreaksOff(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/orders", iotest.ErrReader(errors.New("the connection is lost")))
	text, err := keyfuncs.Fingerprint()(&keyfuncs.Request{Request: r})
	if !errors.Is(err, keyfuncs.ErrMalformed) || text != "" {
		t.Errorf("%q, %v", text, err)
	}
}
