package guardtest

import (
	"os"
	"strings"
	"testing"
)

// WantOnPage wants a page to have the text between the comments <!-- name --> and <!-- end of name -->. With
// write it puts it there.
func WantOnPage(t testing.TB, page, name, text string, write bool) {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	has, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(has), begin)
	shown, after, ends := strings.Cut(rest, end)
	switch {
	case !begins || !ends:
		t.Fatalf("%s has no part between %q and %q", page, begin, end)
	case shown == text:
	case write:
		if err := os.WriteFile(page, []byte(before+begin+text+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has\n%sbut should have (run %s with -update):\n%s", page, shown, t.Name(), text)
	}
}
