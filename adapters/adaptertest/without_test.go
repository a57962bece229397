package adaptertest

import "testing"

// TestRowsAreLeftOutByName: by the whole name, or by parts of it between commas, and never by parts of words.
func TestRowsAreLeftOutByName(t *testing.T) {
	f := Framework{Without: map[string]string{"streamed": "", "client gone, then panic": ""}}
	for row, want := range map[string]bool{
		"streamed":                        true,
		"a vote, streamed":                true,
		"streamed, a vote":                true,
		"a vote, client gone, then panic": true,
		"client gone, then panic, a lock": true,
		"panic":                           false,
		"then panic":                      false,
		"streamed gently":                 false,
		"client gone":                     false,
	} {
		if f.leavesOut(t, row) != want {
			t.Errorf("%q is left out: %t, want %t", row, !want, want)
		}
	}
}
