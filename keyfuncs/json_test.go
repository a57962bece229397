package keyfuncs_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestJSONFindsAMember(t *testing.T) {
	for _, c := range []struct {
		body, want string
		err        error
	}{
		{`{"choice":"red"}`, "red", nil},
		{` {"x":{"choice":"blue"},"choice":"r\u0065d"} `, "red", nil},
		{`{"choice":7}`, "7", nil},
		{`{"choice":-12345678901234567890}`, "-12345678901234567890", nil},
		{`{"choice":true}`, "true", nil},
		{`{"Choice":"red"}`, "red", nil}, // encoding/json takes it, so the handler does
		{`{"choice":"red","choice":"red"}`, "red", nil},
		{`{"choice":"red","CHOICE":"blue"}`, "", keyfuncs.ErrMalformed},
		{`{"choice":1.0}`, "", keyfuncs.ErrMalformed},
		{`{"choice":1e3}`, "", keyfuncs.ErrMalformed},
		{`{"choice":-0}`, "", keyfuncs.ErrMalformed},
		{`{"choice":["red"]}`, "", keyfuncs.ErrMalformed},
		{`{"choice":{"red":1}}`, "", keyfuncs.ErrMalformed},
		{`{"choice":""}`, "", keyfuncs.ErrMissing},
		{`{"choice":null}`, "", keyfuncs.ErrMissing},
		{`{}`, "", keyfuncs.ErrMissing},
		{`"choice"`, "", keyfuncs.ErrMissing},
		{`["choice","red"]`, "", keyfuncs.ErrMissing},
		{``, "", keyfuncs.ErrMissing},
		{`{"choice":"red"`, "", keyfuncs.ErrMissing},
		{`{"choice":"red"} {}`, "", keyfuncs.ErrMissing},
		{`choice=red`, "", keyfuncs.ErrMissing},
		{`{"choice":"` + strings.Repeat("r", 100) + `"}`, "", keyfuncs.ErrTooLarge},
	} {
		for _, length := range []int64{int64(len(c.body)), -1} {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
			r.ContentLength = length
			for range 2 { // two rules
				got, err := keyfuncs.JSON(64, "choice")(&keyfuncs.Request{Request: r})
				check(t, got, err, c.want, c.err)
			}
			if left, err := io.ReadAll(r.Body); err != nil || string(left) != c.body {
				t.Errorf("%s: the handler reads %q, %v", c.body, left, err)
			}
		}
	}
	inner := keyfuncs.JSON(64, "order", "sku")
	for body, want := range map[string]string{`{"order":{"sku":"tv"}}`: "tv", `{"order":"tv"}`: ""} {
		got, err := inner(&keyfuncs.Request{Request: httptest.NewRequest(http.MethodPost, "/",
			strings.NewReader(body))})
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", body, got, err)
		}
	}
	for _, wrong := range []func(){
		func() { keyfuncs.JSON(0, "choice") }, func() { keyfuncs.JSON(64) }, func() { keyfuncs.JSON(64, "a", "") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			wrong()
		}()
	}
}

// TestFormsAreLeftForTheHandler: Form had read the body, and handlers that read it themselves, or pass it on,
// found it empty.
//
// Promise: Key functions leave the body for the handler, and read no more than they may.
func TestFormsAreLeftForTheHandler(t *testing.T) {
	for _, body := range []string{"choice=red&x=1", "choice=%zz", ""} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		got, _ := keyfuncs.Form("choice")(&keyfuncs.Request{Request: r})
		if left, err := io.ReadAll(r.Body); err != nil || string(left) != body {
			t.Errorf("%q: the handler reads %q, %v", body, left, err)
		}
		if r.PostFormValue("choice") != got {
			t.Errorf("%q: the handler finds %q in the form", body, r.PostFormValue("choice"))
		}
	}
}

// TestBodiesBeyondALimitInFront: a limit of net/http in front of the rules is told from a malformed body.
func TestBodiesBeyondALimitInFront(t *testing.T) {
	for name, fn := range map[string]keyfuncs.Func{
		"Form": keyfuncs.Form("choice"), "JSON": keyfuncs.JSON(1000, "choice"),
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("choice="+strings.Repeat("r", 100)))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 10)
		if got, err := fn(&keyfuncs.Request{Request: r}); !errors.Is(err, keyfuncs.ErrTooLarge) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
