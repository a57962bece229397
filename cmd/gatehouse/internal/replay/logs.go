package replay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/internal/accesslog"
)

// logFiles are the opened logs.
type logFiles struct {
	names []string
	files []io.Reader
	open  []*os.File
	size  int64 // of all, 0 if it is not known
}

func openLogs(e *cli.Env, names []string) (*logFiles, error) {
	all := &logFiles{names: names}
	for _, name := range names {
		if name == "-" {
			all.files = append(all.files, e.In)
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			return all, err
		}
		all.open = append(all.open, file)
		info, err := file.Stat()
		if err != nil {
			return all, err
		}
		if info.IsDir() {
			return all, fmt.Errorf("%s is a directory: name a log", name)
		}
		all.size += info.Size()
		all.files = append(all.files, file)
	}
	if len(all.open) < len(names) {
		all.size = 0
	}
	return all, nil
}

func (l *logFiles) close() {
	for _, file := range l.open {
		_ = file.Close() // it was only read
	}
}

// logged is what the requests of a log say about how it was read.
type logged struct {
	requests    int
	took        time.Duration
	first, last time.Time // when the log has the first and the last
}

func (l *logged) add(e *accesslog.Entry) {
	at := e.Time.Add(e.Took)
	if l.requests++; l.requests == 1 || at.Before(l.first) {
		l.first = at
	}
	if at.After(l.last) {
		l.last = at
	}
	l.took += min(e.Took, maxTook-l.took)
}

const (
	// fewRequests is how many requests tell nothing about the unit of their durations.
	fewRequests = 10
	// maxRunning is how many requests run at a time, at most, if their durations have the unit that their form
	// suggests.
	maxRunning = 1000
	// maxTook bounds the sum of durations.
	maxTook = time.Duration(1 << 62)
)

// doubt returns why the log says nothing about rules, or nil. Either most lines could not be read, or the
// durations have another unit.
func (l *logged) doubt(in *accesslog.Reader) error {
	if in.Broken > l.requests || l.requests == 0 && in.Other > 0 {
		text := fmt.Sprintf("%s of %s were read, which says nothing about the rules",
			cli.Count(l.requests, "request"), cli.Count(in.Lines, "line"))
		for _, b := range in.First {
			text += fmt.Sprintf("\n  line %d: %s", b.Line, cli.Printable(b.Why))
		}
		return errors.New(text)
	}
	running := l.took.Seconds() / max(l.last.Sub(l.first), time.Second).Seconds()
	most := min(maxRunning, float64(l.requests)/4)
	if in.Assumed != "" && l.requests >= fewRequests && running > most {
		return fmt.Errorf("if %s is in seconds, %.0f requests ran at a time: name its unit, as in "+
			"-field duration=%[1]s:ms", in.Assumed, running)
	}
	return nil
}

// bar shows on a terminal how far the replay is.
type bar struct {
	out   io.Writer // nil: nowhere
	logs  *logFiles
	begun time.Time
}

func newBar(out io.Writer, logs *logFiles) *bar {
	b := &bar{logs: logs, begun: time.Now()}
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			b.out = out
		}
	}
	return b
}

// barWidth is the length of the bar.
const barWidth = 30

func (b *bar) show(lines int) {
	if b.out == nil {
		return
	}
	text := fmt.Sprintf("%d requests, %.0f s", lines, time.Since(b.begun).Seconds())
	if b.logs.size > 0 {
		var read int64
		for _, file := range b.logs.open {
			at, _ := file.Seek(0, io.SeekCurrent)
			read += at
		}
		done := min(float64(read)/float64(b.logs.size), 1)
		full := int(done * barWidth)
		text = fmt.Sprintf("[%s%s] %3.0f %%, %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full),
			100*done, text)
	}
	_, _ = fmt.Fprintf(b.out, "\r%s", text)
}

// clear removes the bar.
func (b *bar) clear() {
	if b.out != nil {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K")
	}
}
