package keyfuncs_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestForm(t *testing.T) {
	const urlencoded = "application/x-www-form-urlencoded"
	for name, c := range map[string]struct {
		contentType, body string
		want              string
		err               error
	}{
		"urlencoded":           {urlencoded, "choice=dark+red&x=1", "dark red", nil},
		"the same value twice": {urlencoded, "choice=red&choice=red", "red", nil},
		"different values":     {urlencoded, "choice=red&choice=blue", "", keyfuncs.ErrMalformed},
		"absent":               {urlencoded, "x=1", "", keyfuncs.ErrMissing},
		"empty":                {urlencoded, "choice=", "", keyfuncs.ErrMissing},
		"no body":              {urlencoded, "", "", keyfuncs.ErrMissing},
		"bad escape":           {urlencoded, "choice=%zz", "", keyfuncs.ErrMalformed},
		"multipart": {"multipart/form-data; boundary=x",
			"--x\r\nContent-Disposition: form-data; name=\"choice\"\r\n\r\nred\r\n--x--\r\n", "", keyfuncs.ErrMissing},
		"JSON": {"application/json", `{"choice":"red"}`, "", keyfuncs.ErrMissing},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/?choice=query&x=a;b", strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.contentType)
			for range 2 {
				got, err := keyfuncs.Form("choice")(&keyfuncs.Request{Request: r})
				if got != c.want || !errors.Is(err, c.err) {
					t.Fatalf("%q, %v; want %q, %v", got, err, c.want, c.err)
				}
				if err != nil {
					return
				}
				// Where it was found, the second rule of a route and the handler find it again.
			}
			if r.PostFormValue("choice") != c.want {
				t.Error("the handler does not find the form any more")
			}
		})
	}
	_, err := keyfuncs.Form("choice")(&keyfuncs.Request{Request: &http.Request{}})
	if !errors.Is(err, keyfuncs.ErrMissing) {
		t.Errorf("a request without anything: %v", err)
	}
	defer func() {
		if v, _ := recover().(string); !strings.Contains(v, "name of a form field") {
			t.Errorf("panic %q", v)
		}
	}()
	keyfuncs.Form("")
}
