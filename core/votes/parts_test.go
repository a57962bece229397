package votes

import (
	"testing"
	"time"
)

// TestDivisionsOfPolls: a number of parts is remembered for a minute, but no longer than polls are kept. A
// poll with an unexpected number is asked for until the answer has arrived.
func TestDivisionsOfPolls(t *testing.T) {
	for keep, want := range map[time.Duration]time.Duration{time.Hour: time.Minute, time.Second: time.Second} {
		m, now := newDivisions(keep), time.Now()
		wants := func(what string, at time.Time, parts int, differs bool) {
			t.Helper()
			got, found := m.find("p", at)
			if got != parts || found != (parts != 0) || m.differs("p") != differs {
				t.Errorf("%s: %d, %t, differs %t; want %d, %t", what, got, found, m.differs("p"), parts, differs)
			}
		}
		wants("nothing is known", now, 0, false)
		m.differ("p")
		wants("it differs from one part", now, 0, true)
		m.hear(m.Ask("p", now), 7)
		wants("it has been asked for", now, 7, true)
		wants("shortly before the end", now.Add(want-1), 7, true)
		wants("at the end", now.Add(want), 0, true)
		wants("with the clock set back", now.Add(-1), 0, true)
		m.differ("p")
		wants("it differs from what is known", now, 0, true)
		m.hear(m.Ask("p", now), 8)
		wants("it has been asked for again", now, 8, true)
	}
}
