package accesslog

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// The formats of lines without JSON, as a log_format of nginx. What follows behind the known fields is
// "unread": servers add to these formats.
const (
	common   = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combined = common + ` "$http_referer" "$http_user_agent"`
	// proxied is the format main of nginx's packages.
	proxied = combined + ` "$http_x_forwarded_for"`
	traefik = combined + ` $request_count "$router_name" "$server_url" ${router_ms}ms`
	alb     = `$type $time $elb $client_addr $target_addr $request_processing_time $target_processing_time ` +
		`$response_processing_time $status $target_status_code $received_bytes $sent_bytes "$request" ` +
		`"$http_user_agent" $ssl_cipher $ssl_protocol $target_group_arn "$trace_id" "$host" ` +
		`"$chosen_cert_arn" $matched_rule_priority $request_creation_time $unread`
	// ofGin and ofChi are what the loggers of gin and chi write, ofChiID with middleware.RequestID.
	ofGin   = `[GIN] $time |$status|$latency|$remote_addr|$method "$uri"`
	ofChi   = `$time "$request" from $remote_addr - $status ${bytes}B in $latency`
	ofChiID = `$time [$request_id] "$request" from $remote_addr - $status ${bytes}B in $latency`
)

// format is a form in which programs write lines.
type format struct {
	name     string
	patterns []string // the first that reads a line counts; none for JSON, logfmt, W3C
	mark     string   // lines without it are of something else that the program writes
	needs    string   // a field that has to be a number
}

// formats are in the order in which they are tried: the first of those that read most lines wins.
var formats = []format{
	{name: "json"}, {name: "w3c"},
	{name: "alb", patterns: []string{alb}},
	{name: "traefik", patterns: []string{traefik}},
	{name: "nginx-main", patterns: []string{proxied}},
	{name: "vhost", patterns: []string{`$host:$server_port ` + combined + "$unread"}, needs: "server_port"},
	{name: "combined", patterns: []string{combined + "$unread"}},
	{name: "common", patterns: []string{common + "$unread"}},
	{name: "gin", patterns: []string{ofGin}, mark: "[GIN] "},
	{name: "chi", patterns: []string{ofChiID, ofChi}, mark: `" from `},
	{name: "logfmt"},
}

// inJSON are programs whose lines are JSON, so that -format may name them.
var inJSON = []string{"caddy", "echo"}

// Names returns the names of the formats.
func Names() []string {
	names := append([]string{}, inJSON...)
	for i := range formats {
		names = append(names, formats[i].name)
	}
	return names
}

// compiled is a format that is ready to read.
type compiled struct {
	*format
	patterns []*pattern
}

func compileFormat(f *format) (*compiled, error) {
	c := &compiled{format: f}
	for _, text := range f.patterns {
		p, err := compile(text)
		if err != nil {
			return nil, err
		}
		c.patterns = append(c.patterns, p)
	}
	return c, nil
}

// split splits a line by the patterns.
func (c *compiled) split(line string, fields []Field) (_ []Field, err error) {
	from := len(fields)
	for _, p := range c.patterns {
		var all []Field
		if all, err = p.split(line, fields[:from]); err == nil {
			return all, c.check(all[from:])
		}
		fields = all
	}
	return fields, err
}

// check looks for the field that has to be a number.
func (c *compiled) check(fields []Field) error {
	if c.needs == "" {
		return nil
	}
	for i := range fields {
		if fields[i].Name == c.needs {
			if _, err := strconv.ParseUint(fields[i].Value, 10, 64); err == nil {
				return nil
			}
		}
	}
	return errors.New("it has no " + c.needs)
}

var errPairs = errors.New("it is no list of NAME=VALUE")

// splitPairs splits a line of logfmt, as log/slog writes it: name=value name="value".
func splitPairs(line string, fields []Field) ([]Field, error) {
	pairs := 0
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			break
		}
		name, rest, ok := strings.Cut(line, "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t\"") {
			return fields, errPairs
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return fields, errPairs
			}
			if value, err = strconv.Unquote(quoted); err != nil {
				return fields, errPairs
			}
			line = rest[len(quoted):]
		} else {
			value, line, _ = strings.Cut(rest, " ")
		}
		pairs++
		if value != "" && value != "-" {
			fields = append(fields, Field{name, value})
		}
	}
	if pairs < 2 {
		return fields, errPairs
	}
	return fields, nil
}

// w3c reads the extended log format of W3C, whose directives name the fields.
type w3c struct {
	names        []string
	milliseconds bool // of IIS, which writes durations so
}

// directive reads a line that begins with #, which is no request in any format.
func (w *w3c) directive(line string) bool {
	if line == "" || line[0] != '#' {
		return false
	}
	if fields, ok := strings.CutPrefix(line, "#Fields:"); ok {
		w.names = strings.Fields(fields)
	}
	if software, ok := strings.CutPrefix(line, "#Software:"); ok {
		w.milliseconds = strings.Contains(software, "Microsoft")
	}
	return true
}

var errW3C = errors.New("it has not the values that #Fields names")

// split splits a line. Date and time are one field.
func (w *w3c) split(line string, fields []Field) ([]Field, error) {
	values, tabs := strings.Split(line, "\t"), true
	if len(values) == 1 {
		values, tabs = strings.Split(line, " "), false
	}
	if len(w.names) == 0 || len(values) != len(w.names) {
		return fields, errW3C
	}
	var date, at string
	for i, name := range w.names {
		value := values[i]
		switch {
		case value == "" || value == "-":
		case name == "date":
			date = value
		case name == "time":
			at = value
		case strings.HasPrefix(name, "cs(") && !tabs: // as IIS writes blanks
			fields = append(fields, Field{name, strings.ReplaceAll(value, "+", " ")})
		case strings.HasPrefix(name, "cs("): // as CloudFront does
			fields = append(fields, Field{name, unpercent(value)})
		default:
			fields = append(fields, Field{name, value})
		}
	}
	if date != "" && at != "" {
		fields = append(fields, Field{"date time", date + " " + at})
	}
	return fields, nil
}

// unpercent returns a value without the escapes of URLs.
func unpercent(value string) string {
	if strings.IndexByte(value, '%') < 0 {
		return value
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if rest := value[i:]; len(rest) >= 3 && rest[0] == '%' && hex(rest[1]) >= 0 && hex(rest[2]) >= 0 {
			b.WriteByte(byte(hex(rest[1])<<4 | hex(rest[2])))
			i += 2
			continue
		}
		b.WriteByte(value[i])
	}
	return b.String()
}

// methods are what requests begin with.
var methods = map[string]bool{"GET": true, "HEAD": true, "POST": true, "PUT": true, "PATCH": true,
	"DELETE": true, "OPTIONS": true, "CONNECT": true, "TRACE": true}

// other reports whether a line that could not be read is of something else, so that nobody misses a request:
// it lacks the mark of its format, or none of its fields is an address, a method or a request.
func (r *Reader) other(line string, fields []Field) bool {
	if f := r.shape.text; f != nil && f.mark != "" {
		return !strings.Contains(line, f.mark)
	}
	if r.shape.text != nil || r.shape.name == "w3c" || len(fields) == 0 {
		return false
	}
	for i := range fields {
		first, _, _ := strings.Cut(fields[i].Value, " ")
		if methods[strings.ToUpper(first)] || isAddress(first) || strings.HasPrefix(first, "/") {
			return false
		}
	}
	return true
}

// aTime reports whether a text is the time that a shipper writes.
func aTime(text string) bool {
	if len(text) < len("2006-01-02T15:04:05Z") || text[4] != '-' {
		return false
	}
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}
