package script_test

import (
	"slices"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/script"
)

// TestRepliesOfOneText: a script may reply with the values of an array as one text. A word may be empty.
func TestRepliesOfOneText(t *testing.T) {
	for text, rest := range map[string][]string{
		"ok 1 7": {}, "ok 1 7 ": {""}, "ok 1 7 red  blue": {"red", "", "blue"},
	} {
		r := script.ReadWords(text, 3)
		if reason, flag, n := r.Text(), r.Flag(), r.Number(); reason != "ok" || !flag || n != 7 {
			t.Errorf("%q: %q, %t, %d, %v", text, reason, flag, n, r.Err)
		}
		if r.More() != (len(rest) > 0) {
			t.Errorf("%q: more: %t", text, r.More())
		}
		if words := r.Rest(); r.Err != nil || !slices.Equal(words, rest) || r.More() {
			t.Errorf("%q: %q left, %v", text, words, r.Err)
		}
	}
	for _, value := range []any{"ok 1", int64(7), nil, []any{"ok", int64(1), int64(7)}} {
		if r := script.ReadWords(value, 3); r.Err == nil || r.More() || r.Text() != "" || r.Rest() != nil {
			t.Errorf("%v is no reply of three words", value)
		}
	}
	r := script.ReadWords("ok seven 8", 3)
	_ = r.Text()
	if n := r.Number(); n != 0 || r.Err == nil || r.Number() != 0 {
		t.Errorf("a word that is no number is %d, %v", n, r.Err)
	}
}
