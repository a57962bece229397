package limit

import (
	"encoding/json"
	"flag"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core/kit"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Limit{
		"10/s":                      PerSecond(10),
		"10/sec":                    PerSecond(10),
		"100/m":                     PerMinute(100),
		"100/min":                   PerMinute(100),
		"100/minute":                PerMinute(100),
		"5/h":                       PerHour(5),
		"5/hour":                    PerHour(5),
		"1000/day":                  PerDay(1000),
		"7/w":                       Per(7, 7*24*time.Hour),
		"1/30s":                     Per(1, 30*time.Second),
		"1/30 seconds":              Per(1, 30*time.Second),
		"1/7d":                      Per(1, 7*24*time.Hour),
		"5/10 min":                  Per(5, 10*time.Minute),
		"5/10 mins":                 Per(5, 10*time.Minute),
		"5/2 weeks":                 Per(5, 14*24*time.Hour),
		"3/1h30m":                   Per(3, 90*time.Minute),
		"3/1.5s":                    Per(3, 1500*time.Millisecond),
		"3/100ms":                   Per(3, 100*time.Millisecond),
		"3/1_000 s":                 Per(3, 1000*time.Second),
		"  9\t/ minute ":            PerMinute(9),
		"100 per minute":            PerMinute(100),
		" 5  per 10 min ":           Per(5, 10*time.Minute),
		"5 per day/24":              PerDay(5).WithResolution(24),
		"100_000/day":               PerDay(100_000),
		"100_000/day/1440":          PerDay(100_000).WithResolution(1440),
		" 100_000 / day / 1_440 ":   PerDay(100_000).WithResolution(1440),
		"9223372036854775807/hours": PerHour(1<<63 - 1),
		"1/366d":                    Per(1, 366*24*time.Hour),
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestParseNamesTheMistake(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "want units/window",
		"100":                    "want units/window",
		"1/2/3/4":                "want units/window",
		"/s":                     "units: missing",
		"per minute":             "want units/window",
		"100 per":                "want units/window",
		"100 per min per min":    "a window of",
		"100 a minute":           "want units/window",
		"ten/s":                  `units: "ten"`,
		"-1/s":                   `units: "-1"`,
		"1.5/s":                  `units: "1.5"`,
		"1__0/s":                 `units: "1__0"`,
		"_1/s":                   `units: "_1"`,
		"1_/s":                   `units: "1_"`,
		"0x10/s":                 `units: "0x10"`,
		"99999999999999999999/s": "too large",
		"0/s":                    "lets nobody in",
		"1/":                     `a window of ""`,
		"1/fortnight":            "want s, min, h, day or week",
		"1/S":                    `a window of "S"`,
		"1/ss":                   `a window of "ss"`,
		"1/10":                   `a window of "10"`,
		"1/1_s":                  `a window of "1_s"`,
		"1/0s":                   "1 ms or more",
		"1/-1s":                  "1 ms or more",
		"1/-0.5s":                "1 ms or more",
		"1/1us":                  "whole milliseconds",
		"1/1ms500us":             "whole milliseconds",
		"1/367d":                 "at most",
		"1/9223372036854775807s": "at most",
		"1/99999999999h":         "at most",
		"1/day/":                 "resolution: missing",
		"1/day/0":                "leave it out",
		"1/day/1":                "2 to 10000 parts",
		"1/day/10001":            "2 to 10000 parts",
		"1/s/2000":               "shorter than 1 ms",
		"1/day/x":                `resolution: "x"`,
	} {
		l, err := Parse(text)
		if err == nil || l != (Limit{}) || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "limit: \""+text+"\": ") {
			t.Errorf("%q: %v, %v, want an error with the text and %q", text, l, err, want)
		}
	}
	if _, err := Parse(strings.Repeat("x", 1<<20)); err == nil || len(err.Error()) > 500 {
		t.Errorf("the error for a long text is %d bytes long", len(err.Error()))
	}
}

func TestParseAll(t *testing.T) {
	got, err := ParseAll("10/s, 100/min,1000/day/24")
	if want := []Limit{PerSecond(10), PerMinute(100), PerDay(1000).WithResolution(24)}; err != nil ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, text := range []string{"", ",", "10/s,", "10/s,,5/h", "10/s; 5/h"} {
		if got, err := ParseAll(text); err == nil || got != nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestLimitString(t *testing.T) {
	for want, l := range map[string]Limit{
		"100/1m":         PerMinute(100),
		"100000/24h":     PerDay(100_000),
		"1/90m":          Per(1, 90*time.Minute),
		"1/61s":          Per(1, 61*time.Second),
		"1/1500ms":       Per(1, 1500*time.Millisecond),
		"5/24h/1440":     PerDay(5).WithResolution(1440),
		"0/0s":           {},
		"-1/1.5µs/1":     {Max: -1, Window: 1500, Resolution: 1},
		"1/-1h0m0s/2400": {Max: 1, Window: -time.Hour, Resolution: 2400},
	} {
		if got := l.String(); got != want {
			t.Errorf("%#v is %q, want %q", l, got, want)
		}
	}
}

// drawLimit draws a limit that makes sense.
func drawLimit(rt *rapid.T) Limit {
	unit := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour,
		24 * time.Hour}).Draw(rt, "unit")
	l := Per(rapid.Int64Min(1).Draw(rt, "max"),
		time.Duration(rapid.Int64Range(1, int64(kit.MaxTTL/unit)).Draw(rt, "window"))*unit)
	if most := min(maxResolution, l.Window.Milliseconds()); most >= 2 && rapid.Bool().Draw(rt, "by parts") {
		l.Resolution = rapid.Int64Range(2, most).Draw(rt, "resolution")
	}
	return l
}

func TestLimitTextComesBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLimit(rt)
		if got, err := Parse(l.String()); err != nil || got != l {
			rt.Fatalf("%#v is %q, which is %#v, %v", l, l, got, err)
		}
		text, err := json.Marshal(map[Limit]Limit{l: l})
		var back map[Limit]Limit
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil || back[l] != l {
			rt.Fatalf("%#v is %s, which is %v, %v", l, text, back, err)
		}
	})
}

func TestLimitInJSONAndFlags(t *testing.T) {
	config := struct{ API []Limit }{}
	if err := json.Unmarshal([]byte(`{"api": ["10/s", "100_000/day/1440"]}`), &config); err != nil ||
		!reflect.DeepEqual(config.API, []Limit{PerSecond(10), PerDay(100_000).WithResolution(1440)}) {
		t.Errorf("%v, %v", config, err)
	}
	limit := PerSecond(1)
	if err := json.Unmarshal([]byte(`"10/eon"`), &limit); err == nil || limit != PerSecond(1) {
		t.Errorf("%v, %v: want an error, and the limit as it was", limit, err)
	}
	if text, err := json.Marshal(Limit{}); err == nil {
		t.Errorf("a limit that makes no sense is %s", text)
	}

	flags := flag.NewFlagSet("app", flag.ContinueOnError)
	flags.TextVar(&limit, "limit", PerMinute(100), "requests for each address")
	if limit != PerMinute(100) {
		t.Errorf("the default is %v", limit)
	}
	if err := flags.Parse([]string{"-limit", "5/10min"}); err != nil || limit != Per(5, 10*time.Minute) {
		t.Errorf("%v, %v", limit, err)
	}
}

func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{"10/s", "5 / 10 min", "100_000/day/1440", "3/1h30m", "1/1.5s", "1/2/3/4",
		"1/\xff", "9223372036854775807/366d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			return
		}
		if err := l.check(); err != nil {
			t.Errorf("%q is %#v: %v", text, l, err)
		}
		if back, err := Parse(l.String()); err != nil || back != l {
			t.Errorf("%q is %#v, whose text %q is %#v, %v", text, l, l, back, err)
		}
	})
}
