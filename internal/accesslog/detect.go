package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// maxWords is how many words a shipper may write in front of a line.
	maxWords = 12
	// maxTried is by how many lines of the sample the format is detected.
	maxTried = 200
)

// shape is how a line is read: behind words that a shipper has written in front, perhaps out of a member of
// a JSON object that it has wrapped around, and again behind words, in a format.
type shape struct {
	outer  int    // words in front of the object
	member string // the object's member; "": there is no object
	words  int    // words in front of the line
	name   string // of the format
	text   *compiled
}

// members are where shippers put the line, as a text or as an object.
var members = []string{"log", "message", "MESSAGE", "msg", "line", "textPayload", "event.original",
	"@message", "jsonPayload", "log_processed", "json", "parsed"}

// split splits a line into its fields. It also returns when the shipper read the line, if it says so.
func (r *Reader) split(s *shape, line string, fields []Field) (_ []Field, when string, err error) {
	var ok bool
	if s.member != "" {
		if line, when, ok = behind(line, s.outer, when); !ok {
			return fields, "", errJSON
		}
		outer, err := r.outer.split(line, fields)
		if err != nil {
			return outer, "", err
		}
		if fields, line, when, ok = inside(outer, s.member, when); !ok {
			return fields, when, fmt.Errorf("it has no %s", s.member)
		}
		if line == "" {
			return fields, when, nil
		}
	}
	if line, when, ok = behind(line, s.words, when); !ok {
		return fields, when, errors.New("it is shorter than the lines before it")
	}
	switch {
	case s.text != nil:
		fields, err = s.text.split(line, fields)
	case s.name == "json":
		fields, err = r.json.split(line, fields)
	case s.name == "w3c":
		fields, err = r.w3c.split(line, fields)
	default:
		fields, err = splitPairs(line, fields)
	}
	return fields, when, err
}

// inside returns what a member of an object holds: a line, or fields.
func inside(object []Field, member, when string) (_ []Field, line, _ string, ok bool) {
	kept := object[:0]
	for _, f := range object {
		switch {
		case f.Name == member:
			line, ok = strings.TrimRight(f.Value, "\r\n"), true
		case (f.Name == "time" || f.Name == "timestamp" || f.Name == "@timestamp") && aTime(f.Value):
			when = f.Value
		case len(f.Name) > len(member) && f.Name[:len(member)] == member && f.Name[len(member)] == '.':
			kept, ok = append(kept, Field{f.Name[len(member)+1:], f.Value}), true
		}
	}
	if line != "" {
		return object[:0], plain(line), when, true
	}
	return kept, "", when, ok
}

// behind returns a line without its first words, of which one may be the time.
func behind(line string, words int, when string) (rest, _ string, ok bool) {
	for range words {
		line = strings.TrimLeft(line, " \t")
		end := strings.IndexAny(line, " \t")
		if end < 0 {
			return "", when, false
		}
		if when == "" && aTime(line[:end]) {
			when = line[:end]
		}
		line = line[end+1:]
	}
	if words > 0 {
		line = strings.TrimLeft(line, " \t")
	}
	return line, when, true
}

// detect finds the format, and the names of fields.
func (r *Reader) detect() error {
	head, _ := r.in.Peek(sample)
	if len(head) == sample {
		head = head[:bytes.LastIndexByte(head, '\n')+1]
	}
	lines := strings.FieldsFunc(string(head), func(c rune) bool { return c == '\n' })
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" || r.w3c.directive(line) })
	shapes, err := r.shapes()
	if err != nil {
		return err
	}
	if read := r.guess(shapes, lines); read == 0 && len(lines) > 0 && len(shapes) > 1 {
		return r.unknown(shapes, lines)
	}
	r.see(lines)
	return nil
}

// shapes returns the formats that may be those of the log.
func (r *Reader) shapes() (all []shape, err error) {
	given := r.options.Format
	if strings.Contains(given, "$") {
		f, err := compileFormat(&format{name: "log_format", patterns: []string{given}})
		if err != nil {
			return nil, fmt.Errorf("the format: %w", err)
		}
		return []shape{{name: f.name, text: f}}, nil
	}
	if slices.Contains(inJSON, given) {
		given = "json"
	}
	for i := range formats {
		f := &formats[i]
		if given != "" && given != "auto" && given != f.name {
			continue
		}
		s := shape{name: f.name}
		if f.patterns != nil {
			if s.text, err = compileFormat(f); err != nil {
				return nil, err
			}
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("unknown format %q: want auto, %s, or a log_format of nginx with its $variables",
			r.options.Format, strings.Join(Names(), ", "))
	}
	return all, nil
}

// guess takes the shape in which most lines of the sample are whole requests. The fewer words it skips, the
// better. It returns how many lines are.
func (r *Reader) guess(shapes []shape, lines []string) (most int) {
	lines = lines[:min(len(lines), maxTried)]
	r.shape, r.Format = shapes[0], shapes[0].name
	try := func(s shape) {
		if good := r.wholes(&s, lines, most); good > most {
			most, r.shape, r.Format = good, s, s.name
		}
	}
	overWords := func(s shape) {
		for words := 0; words <= maxWords && most < len(lines); words++ {
			for _, f := range shapes {
				s.words, s.name, s.text = words, f.name, f.text
				try(s)
			}
		}
	}
	overWords(shape{})
	for outer := 0; outer <= maxWords && most < len(lines); outer++ {
		object := shape{outer: outer, member: "?"}
		if !slices.ContainsFunc(lines, func(line string) bool {
			rest, _, ok := behind(line, object.outer, "")
			return ok && strings.HasPrefix(rest, "{")
		}) {
			continue
		}
		for _, member := range members {
			if text := `"` + member + `"`; !strings.Contains(member, ".") &&
				!slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, text) }) {
				continue
			}
			overWords(shape{outer: outer, member: member})
		}
	}
	return most
}

// wholes returns how many lines are whole requests. It gives up when they cannot be more than most.
func (r *Reader) wholes(s *shape, lines []string, most int) (good int) {
	for i, line := range lines {
		if good+len(lines)-i <= most {
			return 0
		}
		var when string
		var err error
		if r.fields, when, err = r.split(s, line, r.fields[:0]); err != nil {
			continue
		}
		if _, err = r.entry(r.fields, when); err == nil {
			good++
		}
	}
	return good
}

// unknown returns why no line of the sample is a request: what the form lacks that the lines have, if one
// has it.
func (r *Reader) unknown(shapes []shape, lines []string) error {
	for i := range shapes {
		s := &shapes[i]
		for n, line := range lines[:min(len(lines), maxTried)] {
			fields, when, err := r.split(s, line, nil)
			if err != nil || len(fields) == 0 {
				continue
			}
			if _, err = r.entry(fields, when); err == nil || r.other(line, fields) {
				continue
			}
			var names []string
			for _, f := range fields {
				if !slices.Contains(names, f.Name) {
					names = append(names, f.Name)
				}
			}
			return fmt.Errorf("no line is a whole request. As %s, line %d: %w. Its fields are %.300s: "+
				"-field WHAT=FIELD names what holds the time, the address (remote), the method and the uri; "+
				"-time LAYOUT the form of the time", s.name, n+1, err, strings.Join(names, ", "))
		}
	}
	return errors.New("no line is of a known format: name the log_format of nginx, with its $variables, or " +
		"one of " + strings.Join(Names(), ", "))
}

// see notes the names of the fields, and what the sample tells about them.
func (r *Reader) see(lines []string) {
	for _, line := range lines {
		fields, when, err := r.split(&r.shape, line, r.fields[:0])
		if r.fields = fields; err != nil {
			continue
		}
		for i := range fields {
			r.seeField(&fields[i])
		}
		if e, err := r.entry(fields, when); err == nil && hasHost(e.URI) {
			r.absolute = true
		}
	}
	r.NoUnit, r.Assumed = "", "" // the sample is read once more
	if r.shape.text != nil {
		for _, p := range r.shape.text.patterns {
			for _, v := range p.vars {
				r.seen[v.name] = true
			}
		}
	}
	if r.shape.name == "w3c" {
		for _, name := range r.w3c.names {
			r.seen[name] = true
		}
	}
}

// seeField notes a field of the sample.
func (r *Reader) seeField(f *Field) {
	if len(r.seen) < maxNames {
		r.seen[f.Name] = true
	}
	if r.roleOf(f.Name) == duration && strings.Contains(f.Value, ".") {
		r.decimals[f.Name] = true
	}
	switch {
	case r.shape.name != "json":
	case f.Name == "request.remote_ip" || f.Name == "request.remote_addr":
		r.Format = "caddy"
	case f.Name == "latency_human":
		r.Format = "echo"
	}
}
