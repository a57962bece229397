package accesslog

import (
	"encoding/json"
	"errors"
	"strings"
)

var errJSON = errors.New("it is no JSON object")

// maxDepth is how deep objects and lists of a line may be nested.
const maxDepth = 16

// scanner reads a JSON object into fields with dotted names. It is several times as fast as encoding/json,
// and reads what that reads.
type scanner struct {
	text   string
	at     int
	fields []Field
	names  map[string]string // dotted names, so that each is made once
}

func newScanner() scanner { return scanner{names: map[string]string{}} }

// split adds the members of an object to fields: "request.uri" for a member of a member, and one field for
// each value of a list, as header fields that come several times are logged. null and what is empty are left
// out.
func (s *scanner) split(line string, fields []Field) ([]Field, error) {
	s.text, s.at, s.fields = line, 0, fields
	s.blanks()
	if s.at >= len(line) || line[s.at] != '{' {
		return fields, errJSON
	}
	err := s.value("", 0)
	if s.blanks(); err == nil && s.at != len(line) {
		err = errJSON
	}
	return s.fields, err
}

func (s *scanner) blanks() {
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.at]) >= 0 {
		s.at++
	}
}

// next reports whether the next token is c, and goes on behind it.
func (s *scanner) next(c byte) bool {
	s.blanks()
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// value reads a value. The name is empty for the object itself.
func (s *scanner) value(name string, depth int) error {
	s.blanks()
	if depth > maxDepth || s.at >= len(s.text) {
		return errJSON
	}
	switch s.text[s.at] {
	case '{':
		s.at++
		return s.object(name, depth)
	case '[':
		s.at++
		return s.list(name, depth)
	case '"':
		text, err := s.string()
		s.keep(name, text)
		return err
	}
	from := s.at
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n,]}", s.text[s.at]) < 0 {
		s.at++
	}
	text := s.text[from:s.at]
	if !json.Valid([]byte(text)) {
		return errJSON
	}
	if text != "null" {
		s.keep(name, text)
	}
	return nil
}

func (s *scanner) keep(name, value string) {
	if value != "" && value != "-" {
		s.fields = append(s.fields, Field{name, value})
	}
}

func (s *scanner) object(name string, depth int) error {
	if s.next('}') {
		return nil
	}
	for {
		if s.blanks(); s.at >= len(s.text) || s.text[s.at] != '"' {
			return errJSON
		}
		member, err := s.string()
		if err != nil || !s.next(':') {
			return errJSON
		}
		if err := s.value(s.join(name, member), depth+1); err != nil {
			return err
		}
		if s.next('}') {
			return nil
		}
		if !s.next(',') {
			return errJSON
		}
	}
}

func (s *scanner) list(name string, depth int) error {
	if s.next(']') {
		return nil
	}
	for {
		if err := s.value(name, depth+1); err != nil {
			return err
		}
		if s.next(']') {
			return nil
		}
		if !s.next(',') {
			return errJSON
		}
	}
}

// join returns the dotted name of a member.
func (s *scanner) join(name, member string) string {
	if name == "" {
		return member
	}
	var room [128]byte
	key := append(append(append(room[:0], name...), '.'), member...)
	if known, ok := s.names[string(key)]; ok {
		return known
	}
	joined := string(key)
	if len(s.names) < maxNames {
		s.names[joined] = joined
	}
	return joined
}

// string reads a string.
func (s *scanner) string() (string, error) {
	from := s.at
	plain := true
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			if plain {
				return s.text[from+1 : s.at-1], nil
			}
			var text string
			if json.Unmarshal([]byte(s.text[from:s.at]), &text) != nil {
				return "", errJSON
			}
			return text, nil
		case c == '\\':
			plain = false
			s.at++
		case c < 0x20:
			return "", errJSON
		}
	}
	return "", errJSON
}
