package keyfuncs_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestSpellingsOfAnAccountAreOneKey: a login limit of 3 by a form field let 8 of 8 spellings pass.
func TestSpellingsOfAnAccountAreOneKey(t *testing.T) {
	user := keyfuncs.Folded(keyfuncs.Form("user"))
	find := func(text string) (string, error) {
		body := strings.NewReader(url.Values{"user": {text}}.Encode())
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return user(&keyfuncs.Request{Request: r})
	}
	const want = "zoë@example.org"
	for _, text := range []string{
		want, "Zoë@Example.org", "ZOË@EXAMPLE.ORG", " zoë@example.org", "zoë@example.org\t\r\n",
		"zoe\u0308@example.org", "ZOE\u0308@example.org", "\u00a0zoë@example.org\u3000",
		"ｚｏë@example.org", "𝐳𝐨ë@example.org", "zoë＠example.org",
	} {
		if got, err := find(text); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"zoe@example.org", "zo ë@example.org", "zоë@example.org"} {
		if got, err := find(text); got == want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", " ", "\u3000\u00a0"} {
		if got, err := find(text); !errors.Is(err, keyfuncs.ErrMissing) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	list := keyfuncs.NewList(user)
	if list.Add("Zoë@example.org") == nil || list.Add(want) != nil || !keyfuncs.ReadsBody(user) {
		t.Error("what is known of the function is not so")
	}
}

// FuzzFold folds twice: the second time changes nothing, and spellings of a text stay one.
func FuzzFold(f *testing.F) {
	for _, text := range []string{"", "Ann", "İ", "ǅ", "ﬀ", "\u1e9e", "ſ", "\u0345\u0301",
		"\xff", "Σ", "\u212a\u2126"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := keyfuncs.Fold(text)
		if twice := keyfuncs.Fold(once); twice != once {
			t.Errorf("%q becomes %q, and that %q", text, once, twice)
		}
	})
}

// TestFoldedLettersOfOneCase: letters that differ in case alone are one. A sigma at the end of a word, and older
// forms of Cyrillic letters, have the capital of another letter, and had a limit of their own.
func TestFoldedLettersOfOneCase(t *testing.T) {
	if a, b := keyfuncs.Fold("ΝΙΚΟΣ"), keyfuncs.Fold("Νικος"); a != b {
		t.Errorf("%q and %q", a, b)
	}
	for r := rune(1); r <= unicode.MaxRune; r++ {
		want := keyfuncs.Fold("x" + string(r) + "x")
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			if got := keyfuncs.Fold("x" + string(other) + "x"); got != want {
				t.Errorf("%q (%U) is %q, and %q (%U) is %q", r, r, want, other, other, got)
			}
		}
		if again := keyfuncs.Fold(want); again != want {
			t.Errorf("%q (%U) is %q, and then %q", r, r, want, again)
		}
	}
}
