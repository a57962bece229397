package limit

import (
	"strings"
	"testing"
)

// TestParseErrorsAreShort: a text of a configuration may be anything, and ends up in logs. Each part of it is
// quoted by an error of its own.
func TestParseErrorsAreShort(t *testing.T) {
	for _, filler := range []string{"x", "9", "\x00", "é", "/", ","} {
		long := strings.Repeat(filler, 10_000)
		for _, text := range []string{
			long, long + "/s", "1/" + long, "1/" + long + "s", "1/s/" + long, "1/1" + long + "d",
		} {
			_, err := ParseAll(text)
			if err == nil {
				t.Fatalf("%.10q: no error", text)
			}
			if n := len(err.Error()); n > 800 {
				t.Errorf("%.10q: an error of %d bytes", text, n)
			}
		}
	}
}
