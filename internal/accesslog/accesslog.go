package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

const (
	// maxLine is the length of the longest line that is read. Thousands of requests are held to sort them, so
	// longer ones would fill the memory; no server accepts such a request line by default.
	maxLine = sample
	// sample is how many bytes the format is detected by.
	sample = 64 << 10
	// maxNames is how many different names of fields are noted.
	maxNames = 1000
	// maxBroken is how many broken lines are named.
	maxBroken = 5
)

// Entry is a request as a line of a log has it.
type Entry struct {
	Time              time.Time // when it arrived, as far as the log says
	Method, URI, Host string
	Remote            string  // the address of the peer, perhaps with a port
	User              string  // of HTTP Basic authentication
	Status            int     // 0: unknown
	Fields            []Field // header fields, and those of Options.Wanted
}

// Options say how a log is read.
type Options struct {
	// Format is a name of Names, a log_format of nginx, or "" or "auto" to find out.
	Format string
	// Roles names the field of what a log may hold under any name: time, method, uri, status, remote, host,
	// request, duration.
	Roles map[string]string
	// Wanted are other fields that are kept.
	Wanted map[string]bool
}

// Broken is a line that is no request.
type Broken struct {
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// Reader reads a log. What it has counted is valid between calls of Next.
type Reader struct {
	Format string
	Lines  int
	Broken int
	First  []Broken
	Unused map[string]int // by the names of fields that say nothing about the request

	in      *bufio.Reader
	split   func(line string, fields []Field) ([]Field, error)
	options Options
	roles   map[string]role
	seen    map[string]bool // names of fields in the format or in the sample
	fields  []Field
	last    string // the text of the last time, and the time
	lastAt  time.Time
}

// NewReader returns a reader of a log, which may be compressed by gzip. It reads the first lines to see what
// they are.
func NewReader(from io.Reader, o Options) (*Reader, error) {
	for name := range o.Roles {
		if _, ok := roleNames[name]; !ok {
			return nil, fmt.Errorf("%q is nothing that a field can hold: want time, method, uri, status, remote, "+
				"host, request or duration", name)
		}
	}
	r := &Reader{options: o, roles: map[string]role{}, Unused: map[string]int{}, seen: map[string]bool{}}
	r.in = bufio.NewReaderSize(from, maxLine)
	if magic, _ := r.in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		zip, err := gzip.NewReader(r.in)
		if err != nil {
			return nil, fmt.Errorf("it begins as gzip does, and is not: %w", err)
		}
		r.in = bufio.NewReaderSize(zip, maxLine)
	}
	return r, r.detect()
}

// detect finds the format, and the names of fields.
func (r *Reader) detect() error {
	head, _ := r.in.Peek(sample)
	if len(head) == sample {
		head = head[:bytes.LastIndexByte(head, '\n')+1]
	}
	lines := strings.FieldsFunc(string(head), func(c rune) bool { return c == '\n' })
	switch format := r.options.Format; {
	case strings.Contains(format, "$"):
		p, err := compile(format)
		if err != nil {
			return fmt.Errorf("the format: %w", err)
		}
		r.Format, r.split = "log_format", p.split
	case format != "" && format != "auto":
		if r.split = splitter(format); r.split == nil {
			return fmt.Errorf("unknown format %q: want auto, %s, or a log_format of nginx with its $variables",
				format, strings.Join(Names(), ", "))
		}
		r.Format = format
	default:
		if err := r.guess(lines); err != nil {
			return err
		}
	}
	r.see(lines)
	return nil
}

// guess takes the format that reads most of the lines.
func (r *Reader) guess(lines []string) error {
	most := 0
	for _, name := range append([]string{"json"}, Names()[2:]...) {
		split, good := splitter(name), 0
		for _, line := range lines {
			if _, err := split(strings.TrimRight(line, "\r"), nil); err == nil {
				good++
			}
		}
		if good > most {
			r.Format, r.split, most = name, split, good
		}
	}
	switch {
	case r.split != nil:
		return nil
	case len(lines) == 0:
		r.Format, r.split = "json", splitter("json")
		return nil
	}
	return errors.New("no line is of a known format: name the log_format of nginx, with its $variables, or " +
		"one of " + strings.Join(Names(), ", "))
}

// see notes the names of the fields.
func (r *Reader) see(lines []string) {
	for _, line := range lines {
		r.fields, _ = r.split(strings.TrimRight(line, "\r"), r.fields[:0])
		for _, f := range r.fields {
			if len(r.seen) < maxNames {
				r.seen[f.Name] = true
			}
			if f.Name == "request.remote_ip" && r.Format == "json" {
				r.Format = "caddy"
			}
		}
	}
	if p, err := compile(r.patternText()); err == nil {
		for _, v := range p.vars {
			r.seen[v.name] = true
		}
	}
}

// patternText returns the log_format of the reader's lines, or "" for JSON.
func (r *Reader) patternText() string {
	for _, f := range named {
		if f.name == r.Format {
			return f.pattern
		}
	}
	if r.Format == "log_format" {
		return r.options.Format
	}
	return ""
}

func splitter(name string) func(string, []Field) ([]Field, error) {
	if name == "json" || name == "caddy" {
		return (&scanner{names: map[string]string{}}).split
	}
	for _, f := range named {
		if f.name == name {
			p, err := compile(f.pattern)
			if err != nil {
				panic(err) // a constant of this package
			}
			return p.split
		}
	}
	return nil
}

// Has reports whether the log has a field of this name.
func (r *Reader) Has(name string) bool { return r.seen[name] }

// HasHeader reports whether the log has a header field. Caddy logs all of a request but those that hold
// secrets.
func (r *Reader) HasHeader(name string) bool {
	if r.Format == "caddy" {
		return !strings.EqualFold(name, "Cookie") && !strings.EqualFold(name, "Authorization")
	}
	for field := range r.seen {
		if strings.EqualFold(HeaderOf(field), name) {
			return true
		}
	}
	return false
}

// HasUser reports whether the log has the user of HTTP Basic authentication.
func (r *Reader) HasUser() bool { return r.has(user) }

// HasHost reports whether the log has the host that clients asked for.
func (r *Reader) HasHost() bool { return r.has(host) }

// HasStatus reports whether the log has the status of answers.
func (r *Reader) HasStatus() bool { return r.has(status) }

func (r *Reader) has(what role) bool {
	for name := range r.seen {
		if r.roleOf(name) == what {
			return true
		}
	}
	return false
}

// Next returns the next request, or io.EOF. Lines that are none are counted.
func (r *Reader) Next() (Entry, error) {
	for {
		line, err := r.line()
		if err != nil {
			return Entry{}, err
		}
		if line == "" {
			continue
		}
		e, err := r.entry(line)
		if err == nil {
			return e, nil
		}
		r.broken(err)
	}
}

// broken counts a broken line.
func (r *Reader) broken(err error) {
	if r.Broken++; len(r.First) < maxBroken {
		r.First = append(r.First, Broken{r.Lines, err.Error()})
	}
}

// line returns the next line that is not too long.
func (r *Reader) line() (string, error) {
	for {
		line, err := r.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			r.Lines++
			r.broken(fmt.Errorf("longer than %d bytes", maxLine))
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = r.in.ReadSlice('\n')
			}
			continue
		case len(line) == 0 && errors.Is(err, io.EOF):
			return "", io.EOF
		case err != nil && !errors.Is(err, io.EOF): // such as the end of a file that gzip still writes
			r.Lines++
			r.broken(fmt.Errorf("the log cannot be read any further: %w", err))
			return "", io.EOF
		}
		r.Lines++
		return strings.TrimRight(string(line), "\r\n"), nil
	}
}

// roleOf returns the role of a field.
func (r *Reader) roleOf(name string) role {
	if known, ok := r.roles[name]; ok {
		return known
	}
	is := roles[name]
	switch {
	case name == "duration" && r.Format != "caddy":
		is = unused // of what unit, nobody knows
	case is == unused && HeaderOf(name) != "":
		is = header
	}
	for what, field := range r.options.Roles {
		switch {
		case field == name:
			is = roleNames[what]
		case is == roleNames[what] || is == ended && what == "time":
			is = unused // another field was named
		}
		if field == name {
			break
		}
	}
	if len(r.roles) < maxNames {
		r.roles[name] = is
	}
	return is
}

// entry makes a request of a line.
func (r *Reader) entry(line string) (Entry, error) {
	var err error
	if r.fields, err = r.split(line, r.fields[:0]); err != nil {
		return Entry{}, err
	}
	e, v := Entry{}, said{from: ended, rank: 1 << 10}
	for i := range r.fields {
		f := &r.fields[i]
		is, wanted := r.roleOf(f.Name), r.options.Wanted[f.Name]
		if is == unused && !wanted {
			if _, known := r.Unused[f.Name]; known || len(r.Unused) < maxNames {
				r.Unused[f.Name]++
			}
		}
		if is == header || wanted {
			e.Fields = append(e.Fields, *f)
		}
		e.note(f, is, &v)
	}
	if err := e.target(v.request, v.args); err != nil {
		return e, err
	}
	return e, r.when(&e, v.at, v.from, v.took)
}

// said is what the fields of a line say before it is known which of them count.
type said struct {
	at, took, args, request string
	from                    role
	rank                    int
}

// note notes what a field says.
func (e *Entry) note(f *Field, is role, v *said) {
	switch is {
	case begun, ended:
		if n := rankOf(f.Name, is); n < v.rank {
			v.at, v.from, v.rank = f.Value, is, n
		}
	case duration:
		v.took = f.Value
	case request:
		v.request = f.Value
	case method:
		e.Method = f.Value
	case uri:
		e.URI = f.Value
	case query:
		v.args = f.Value
	case status:
		e.Status = statusOf(f.Value)
	case remote:
		e.Remote = f.Value
	case host:
		e.Host = f.Value
	case user:
		e.User = f.Value
	case unused, header: // see entry
	}
}

// rankOf orders the times of a line: the lowest counts.
func rankOf(name string, is role) int {
	switch {
	case is == begun:
		return 0
	case name == "msec":
		return 1
	case name == "time_iso8601", name == "time_local":
		return 2
	}
	return 3
}

func statusOf(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 100 || n > 999 {
		return 0
	}
	return n
}

// target completes method and URI out of the request line.
func (e *Entry) target(requestLine, args string) error {
	if requestLine != "" && e.URI == "" {
		name, rest, ok := strings.Cut(requestLine, " ")
		if !ok {
			return fmt.Errorf("the request line is %.40q", requestLine)
		}
		e.Method, e.URI, _ = strings.Cut(name+" "+strings.TrimSpace(rest), " ")
		if at := strings.LastIndex(e.URI, " HTTP/"); at > 0 {
			e.URI = e.URI[:at]
		}
	}
	switch {
	case e.Method == "" || e.URI == "":
		return errors.New("it has no method and path")
	case e.Remote == "":
		return errors.New("it has no address of a client")
	}
	if args != "" && !strings.Contains(e.URI, "?") {
		e.URI += "?" + args
	}
	return nil
}

// when finds out when the request arrived.
func (r *Reader) when(e *Entry, at string, from role, took string) error {
	if at == "" {
		return errors.New("it has no time")
	}
	if at != r.last {
		t, ok := parseTime(at)
		if !ok {
			return fmt.Errorf("the time is %.40q", at)
		}
		r.last, r.lastAt = at, t
	}
	e.Time = r.lastAt
	if s, ok := seconds(took); ok && from == ended {
		e.Time = e.Time.Add(-time.Duration(s * float64(time.Second)))
	}
	return nil
}
