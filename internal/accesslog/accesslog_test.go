package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// read reads a whole log.
func read(t *testing.T, from io.Reader, o Options) (*Reader, []Entry) {
	t.Helper()
	r, err := NewReader(from, o)
	if err != nil {
		t.Fatal(err)
	}
	var all []Entry
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r, all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

func TestFormatsAreDetected(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, format, line string }{
		{"common", "", `203.0.113.7 - ann [24/Nov/2026:10:00:00 +0000] "POST /a?b=c HTTP/1.1" 201 5`},
		{"combined", "", `203.0.113.7 - ann [24/Nov/2026:10:00:00 +0000] "POST /a?b=c HTTP/1.1" 201 5 "-" "agent \"x\""`},
		{"nginx-main", "", `203.0.113.7 - ann [24/Nov/2026:10:00:00 +0000] "POST /a?b=c HTTP/1.1" 201 5 "-" "x" "1.2.3.4"`},
		{"traefik", "", `203.0.113.7 - ann [24/Nov/2026:10:00:00 +0000] "POST /a?b=c HTTP/1.1" 201 5 "-" "x" 7 "r@docker" ` +
			`"http://10.0.0.2:80" 12ms`},
		{"alb", "", `http 2026-11-24T10:00:00.500000Z app/lb/1 203.0.113.7:2817 10.0.0.1:80 0.000 0.500 0.000 201 201 34 ` +
			`366 "POST http://shop.example:80/a?b=c HTTP/1.1" "curl" - - arn:x "Root=1" "-" "-" 0 ` +
			`2026-11-24T10:00:00.000000Z "forward" "-" "-" "10.0.0.1:80" "201" "-" "-"`},
		{"caddy", "", `{"level":"info","ts":1795514400.25,"request":{"remote_ip":"203.0.113.7","method":"POST",` +
			`"host":"shop.example","uri":"/a?b=c","headers":{"X-Forwarded-For":["1.1.1.1","2.2.2.2"]}},"duration":0.25,"status":201}`},
		{"json", "", `{"StartUTC":"2026-11-24T10:00:00Z","ClientAddr":"203.0.113.7:80","RequestMethod":"POST",` +
			`"RequestPath":"/a?b=c","DownstreamStatus":201,"Duration":1000,"time":"2026-11-24T10:00:09Z"}`},
		{"json", "", `{"time":"2026-11-24T10:00:00Z","remote_ip":"203.0.113.7","method":"POST","uri":"/a?b=c","status":201}`},
		{"log_format", `$msec|$remote_addr|$request_method|$uri|$args|$status|$request_time`,
			`1795514402.500|203.0.113.7|POST|/a|b=c|201|2.500`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, all := read(t, strings.NewReader(tt.line+"\n"), Options{Format: tt.format})
			if r.Format != tt.name || len(all) != 1 {
				t.Fatalf("format %s, %d requests, broken %v", r.Format, len(all), r.First)
			}
			e := all[0]
			if e.Method != http.MethodPost || !strings.HasSuffix(e.URI, "/a?b=c") || e.Status != 201 ||
				!strings.HasPrefix(e.Remote, "203.0.113.7") ||
				!e.Time.Equal(time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)) {
				t.Errorf("%+v", e)
			}
			if tt.name == "caddy" && (len(e.Fields) != 2 || e.Fields[1].Value != "2.2.2.2") {
				t.Errorf("a header field that came twice: %v", e.Fields)
			}
		})
	}
}

// TestHostileLinesAreCountedAndNeverFatal mixes good lines with what attackers and broken disks write.
//
// Promise: No line of an access log is fatal. Broken lines are counted and named, and none of more than 64
// KiB is held.
func TestHostileLinesAreCountedAndNeverFatal(t *testing.T) {
	t.Parallel()
	const good = `203.0.113.7 - - [24/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	lines := []string{
		strings.Repeat("x", 3<<20), "\x00\x00", "\xff\xfe", `{"a":`, strings.Repeat("[", 1<<16),
		`203.0.113.7 - - [24/Nov/-026:10:00:00 +0000] "GET / HTTP/1.1" 200 5`,
		`203.0.113.7 - - [-5] "GET / HTTP/1.1" 200 5`, `203.0.113.7 - - [24/Nov/2026:10:00:00 +0000] "\x16\x03" 400 5`,
		`203.0.113.7 - - [24/Nov/9026:10:00:00 +0000] "GET / HTTP/1.1" 200 5`,
	}
	text := strings.Repeat(good, 20) + strings.Join(lines, "\n") + "\n" + good
	r, all := read(t, strings.NewReader(text), Options{})
	if len(all) != 21 || r.Broken != len(lines) || len(r.First) != maxBroken || r.First[0].Line != 21 {
		t.Errorf("%d requests, %d of %d broken: %v", len(all), r.Broken, len(lines), r.First)
	}
	for _, b := range r.First {
		if len(b.Why) > 300 {
			t.Errorf("a reason of %d bytes", len(b.Why))
		}
	}
}

// TestAGzipBombIsReadInPieces reads a line that is a thousand times as long as the file.
func TestAGzipBombIsReadInPieces(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	zip := gzip.NewWriter(&file)
	zeros := make([]byte, 1<<20)
	for range 64 {
		_, _ = zip.Write(zeros)
	}
	_ = zip.Close()
	r, all := read(t, &file, Options{Format: "common"})
	if len(all) != 0 || r.Lines != 1 || r.Broken != 1 {
		t.Errorf("%d requests, %d lines, %d broken", len(all), r.Lines, r.Broken)
	}
}

// TestAFileThatEndsInTheMiddleKeepsItsRequests reads a gzip file that is still written.
func TestAFileThatEndsInTheMiddleKeepsItsRequests(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	zip := gzip.NewWriter(&file)
	_, _ = io.WriteString(zip, `203.0.113.7 - - [24/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5`+"\n")
	_ = zip.Flush()
	r, all := read(t, &file, Options{})
	if len(all) != 1 || r.Broken != 1 {
		t.Errorf("%d requests, broken %v", len(all), r.First)
	}
}

func FuzzLines(f *testing.F) {
	f.Add(`203.0.113.7 - - [24/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5`, "")
	f.Add(`{"ts":1.5,"request":{"uri":"/","headers":{"A":["b"]}}}`, "json")
	f.Add(`1|2`, "$msec|$remote_addr")
	f.Fuzz(func(t *testing.T, text, format string) {
		r, err := NewReader(strings.NewReader(text), Options{Format: format})
		if err != nil {
			return
		}
		for {
			e, err := r.Next()
			if err != nil {
				return
			}
			if e.Method == "" || e.URI == "" || e.Remote == "" || !inRange(e.Time.Add(24*time.Hour)) {
				t.Fatalf("%+v", e)
			}
		}
	})
}
