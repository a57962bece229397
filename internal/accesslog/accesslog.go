package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
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

// Entry is a request as a line of a log has it: it has a time, a method, a target, and the peer's address.
type Entry struct {
	Time   time.Time     // when it arrived, as far as the log says
	Took   time.Duration // what was subtracted from the time in the log
	Method string
	URI    string
	Host   string
	Remote string  // the address of the peer, perhaps with a port; "@": a Unix socket
	User   string  // of HTTP Basic authentication
	Status int     // 0: unknown
	Fields []Field // header fields, and those of Options.Wanted
}

// Options say how a log is read.
type Options struct {
	// Format is a name of Names, a log_format of nginx, or "" or "auto" to find out.
	Format string
	// Roles names the field of what a log may hold under any name: time, method, uri, status, remote, host,
	// request, duration. A colon and s, ms, us or ns behind the field of a time or duration is its unit:
	// "latency:ns".
	Roles map[string]string
	// Layouts are further forms of times, as of time.Parse.
	Layouts []string
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
	Format  string
	Lines   int
	Broken  int
	First   []Broken
	Other   int            // lines of something else in the log, which no reader could take for a request
	Unused  map[string]int // by the names of fields that say nothing about the request
	NoUnit  string         // a field with durations of which nobody knows the unit: they are not subtracted
	Assumed string         // a field with durations that were taken for seconds by their name and form

	in       *bufio.Reader
	shape    shape
	w3c      w3c
	json     scanner
	outer    scanner
	options  Options
	units    map[string]time.Duration // of fields, as Options say
	times    clock
	roles    map[string]role
	seen     map[string]bool // names of fields in the format or in the sample
	decimals map[string]bool // fields of durations that have fractions in the sample
	absolute bool            // requests are logged with the host
	fields   []Field
}

// NewReader returns a reader of a log, which may be compressed by gzip. It reads the first lines to see what
// they are.
func NewReader(from io.Reader, o Options) (*Reader, error) {
	r := &Reader{options: o, Unused: map[string]int{}, roles: map[string]role{}, seen: map[string]bool{},
		decimals: map[string]bool{}, units: map[string]time.Duration{}, json: newScanner(), outer: newScanner()}
	r.times = clock{layouts: append(slices.Clone(o.Layouts), layouts...)}
	if err := r.named(o.Roles); err != nil {
		return nil, err
	}
	r.in = bufio.NewReaderSize(from, maxLine)
	if magic, _ := r.in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		zip, err := gzip.NewReader(r.in)
		if err != nil {
			return nil, fmt.Errorf("it begins as gzip does, and is not: %w", err)
		}
		r.in = bufio.NewReaderSize(zip, maxLine)
	}
	if mark, _ := r.in.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = r.in.Discard(3) // the byte order mark was there
	}
	return r, r.detect()
}

// named notes the fields that the caller has named, and their units.
func (r *Reader) named(given map[string]string) error {
	r.options.Roles = map[string]string{}
	for what, field := range given {
		if _, ok := roleNames[what]; !ok {
			return fmt.Errorf("%q is nothing that a field can hold: want time, method, uri, status, remote, "+
				"host, request or duration", what)
		}
		if name, unit, ok := cutUnit(field); ok && (what == "time" || what == "duration") {
			field, r.units[name] = name, unit
		}
		r.options.Roles[what] = field
	}
	return nil
}

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
func (r *Reader) HasHost() bool { return r.absolute || r.has(host) }

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
		if line == "" || r.w3c.directive(line) {
			continue
		}
		fields, when, err := r.split(&r.shape, line, r.fields[:0])
		if r.fields = fields; err == nil {
			var e Entry
			if e, err = r.entry(fields, when); err == nil {
				r.count(fields)
				return e, nil
			}
		}
		if r.other(line, fields) {
			r.Other++
			continue
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

// count counts the fields that nothing reads.
func (r *Reader) count(fields []Field) {
	for i := range fields {
		name := fields[i].Name
		if r.roleOf(name) == unused && !r.options.Wanted[name] {
			if _, known := r.Unused[name]; known || len(r.Unused) < maxNames {
				r.Unused[name]++
			}
		}
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
		return plain(string(line)), nil
	}
}

// plain returns a line without its end, and without the colors of a terminal.
func plain(line string) string {
	line = strings.TrimRight(line, "\r\n")
	if strings.IndexByte(line, 0x1b) < 0 {
		return line
	}
	var b strings.Builder
	for {
		at := strings.Index(line, "\x1b[")
		if at < 0 {
			b.WriteString(line)
			return b.String()
		}
		b.WriteString(line[:at])
		line = line[at+2:]
		if rest := strings.TrimLeft(line, "0123456789;"); strings.HasPrefix(rest, "m") {
			line = rest[1:]
		}
	}
}

// roleOf returns the role of a field.
func (r *Reader) roleOf(name string) role {
	if known, ok := r.roles[name]; ok {
		return known
	}
	is := roles[name]
	if is == unused && HeaderOf(name) != "" {
		is = header
	}
	for what, field := range r.options.Roles {
		if field == name {
			if is = roleNames[what]; what == "time" && r.options.Roles["duration"] != "" {
				is = ended // both were named, so one is to be subtracted from the other
			}
			break
		}
		switch {
		case is == roleNames[what], is == ended && what == "time",
			is == request && (what == "uri" || what == "method"):
			is = unused // another field was named
		}
	}
	if len(r.roles) < maxNames {
		r.roles[name] = is
	}
	return is
}

// said is what the fields of a line say before it is known which of them count.
type said struct {
	values [roleCount]string
	names  [roleCount]string
	ranks  [roleCount]int
}

// entry makes a request of the fields of a line. The time of a shipper counts if the line has none.
func (r *Reader) entry(fields []Field, shipped string) (Entry, error) {
	var v said
	var e Entry
	for i := range fields {
		f := &fields[i]
		is := r.roleOf(f.Name)
		if is == header || r.options.Wanted[f.Name] {
			e.Fields = append(e.Fields, *f)
		}
		if is == unused || is == header {
			continue
		}
		if n := rankOf(f.Name); v.values[is] == "" || n < v.ranks[is] {
			v.values[is], v.names[is], v.ranks[is] = f.Value, f.Name, n
		}
	}
	e.Method, e.URI, e.Host, e.User = v.values[method], v.values[uri], v.values[host], v.values[user]
	e.Status = statusOf(v.values[status])
	if err := e.target(v.values[request], v.values[query]); err != nil {
		return e, err
	}
	if err := e.peer(v.values[remote]); err != nil {
		return e, err
	}
	return e, r.when(&e, &v, shipped)
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
		e.Method, e.URI = name, strings.TrimSpace(rest)
		if at := strings.LastIndex(e.URI, " HTTP/"); at > 0 {
			e.URI = e.URI[:at]
		}
	}
	switch {
	case e.Method == "" || e.URI == "":
		return errors.New("it has no method and path")
	case strings.ContainsFunc(e.Method, notOfMethods):
		return fmt.Errorf("the method is %.40q", e.Method)
	case !isTarget(e.URI):
		return fmt.Errorf("the path is %.40q", e.URI)
	}
	if args != "" && !strings.Contains(e.URI, "?") {
		e.URI += "?" + strings.TrimPrefix(args, "?")
	}
	return nil
}

// notOfMethods reports whether a character is in no method.
func notOfMethods(c rune) bool { return c != '-' && c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') }

func isTarget(uri string) bool { return uri[0] == '/' || uri == "*" || hasHost(uri) }

func hasHost(uri string) bool {
	return strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://")
}

// peer takes the address of the peer. A Unix socket has none, and needs a header field that has the client's.
func (e *Entry) peer(text string) error {
	switch {
	case text == "":
		return errors.New("it has no address of a client")
	case isAddress(text):
		e.Remote = text
		return nil
	case text != "unix:" && text != "@":
		return fmt.Errorf("the address of the client is %.40q", text)
	}
	for i := range e.Fields {
		if name := HeaderOf(e.Fields[i].Name); strings.EqualFold(name, "X-Forwarded-For") ||
			strings.EqualFold(name, "Forwarded") || strings.EqualFold(name, "X-Real-Ip") {
			e.Remote = "@"
			return nil
		}
	}
	return errors.New("it came over a Unix socket, and has no header field with the address of its client")
}

// when finds out when the request arrived.
func (r *Reader) when(e *Entry, v *said, shipped string) error {
	is := begun
	if v.values[begun] == "" {
		is = ended
	}
	at, name := v.values[is], v.names[is]
	if at == "" {
		at, name = shipped, ""
	}
	if at == "" {
		return errors.New("it has no time")
	}
	var ok bool
	if e.Time, ok = r.times.parse(at, r.units[name]); !ok {
		return fmt.Errorf("the time is %.40q", at)
	}
	if text := v.values[duration]; text != "" && is == ended {
		e.Took = r.took(v.names[duration], text)
		e.Time = e.Time.Add(-e.Took)
	}
	return nil
}

// took returns a duration. One whose unit nobody knows is 0, and its field is noted.
func (r *Reader) took(name, text string) time.Duration {
	if d, ok := durationOf(text, r.units[name]); ok {
		return d
	}
	unit := unitOfName(name)
	if unit == 0 && inSeconds[name] && r.decimals[name] && (name != "duration" || r.Format == "caddy") {
		unit, r.Assumed = time.Second, name
	}
	if unit == 0 && name == "time-taken" && r.w3c.milliseconds {
		unit = time.Millisecond
	}
	d, ok := durationOf(text, unit)
	if !ok && strings.Trim(text, "0.") != "" && r.NoUnit == "" {
		r.NoUnit = name
	}
	return d
}
