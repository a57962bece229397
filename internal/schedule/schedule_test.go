package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/schedule"
)

func TestCheck(t *testing.T) {
	var none time.Time
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name          string
		opens, closes time.Time
		want          string // in the error; "": there is none
	}{
		{"always open", none, none, ""},
		{"opens", noon, none, ""},
		{"closes", none, noon, ""},
		{"opens and closes", noon, noon.Add(time.Millisecond), ""},
		{"the first and the last second", time.Unix(1, 0), time.Date(2200, 12, 31, 23, 59, 59, 0, time.UTC), ""},
		{"closes as it opens", noon, noon, "never open"},
		{"closes before it opens", noon, noon.Add(-time.Hour), "never open"},
		{"opens before 1970", time.Unix(-1, 0), none, "opens at"},
		{"opens when time begins", time.Unix(0, 0), none, "opens at"},
		{"closes after 2200", none, time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC), "closes at"},
	} {
		err := schedule.Check(c.opens, c.closes)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestMilli(t *testing.T) {
	if n := schedule.Milli(time.Time{}); n != 0 {
		t.Errorf("no time is %d, want 0", n)
	}
	if n := schedule.Milli(time.UnixMilli(1234)); n != 1234 {
		t.Errorf("%d, want 1234", n)
	}
}
