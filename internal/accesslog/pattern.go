package accesslog

import (
	"errors"
	"fmt"
	"strings"
)

// pattern is a format of lines: each variable stands between two texts.
type pattern struct {
	before string // the text in front of the first variable
	vars   []variable
}

type variable struct{ name, after string }

// compile reads a log_format, such as `$remote_addr [$time_local] "$request" $status`.
func compile(format string) (*pattern, error) {
	p := new(pattern)
	text, rest := &p.before, format
	for rest != "" {
		at := strings.IndexByte(rest, '$')
		if at < 0 {
			*text += rest
			break
		}
		*text += rest[:at]
		name, after, err := variableOf(rest[at+1:])
		if err != nil {
			return nil, err
		}
		if name == "" {
			return nil, errors.New("a $ without the name of a variable")
		}
		if n := len(p.vars); n > 0 && *text == "" && name != "unread" {
			return nil, fmt.Errorf("no text between $%s and $%s: their values could not be told apart",
				p.vars[n-1].name, name)
		}
		p.vars = append(p.vars, variable{name: name})
		text, rest = &p.vars[len(p.vars)-1].after, after
	}
	if len(p.vars) == 0 {
		return nil, errors.New("it has no variables, such as $remote_addr")
	}
	return p, nil
}

// variableOf returns the name of a variable behind its $, and what follows.
func variableOf(text string) (name, after string, err error) {
	if inner, ok := strings.CutPrefix(text, "{"); ok {
		if name, after, ok = strings.Cut(inner, "}"); !ok {
			return "", "", errors.New("a ${ without }")
		}
		return name, after, nil
	}
	end := strings.IndexFunc(text, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if end < 0 {
		end = len(text)
	}
	return text[:end], text[end:], nil
}

// split splits a line into its fields, without "-" and empty ones, and adds them to fields.
func (p *pattern) split(line string, fields []Field) ([]Field, error) {
	rest, ok := strings.CutPrefix(line, p.before)
	if !ok {
		return fields, fmt.Errorf("it does not begin with %q", p.before)
	}
	for i := range p.vars {
		v := &p.vars[i]
		end := len(rest)
		if v.after != "" {
			if end = p.end(rest, v.after); end < 0 {
				return fields, fmt.Errorf("no %q behind $%s", v.after, v.name)
			}
		} else if i+1 < len(p.vars) { // $unread, which may be empty, or begins behind a blank
			if end = strings.IndexByte(rest, ' '); end < 0 {
				end = len(rest)
			}
		}
		if value := strings.TrimSpace(rest[:end]); value != "" && value != "-" {
			fields = append(fields, Field{v.name, unescape(value)})
		}
		rest = rest[min(end+len(v.after), len(rest)):]
	}
	if rest != "" {
		return fields, fmt.Errorf("more than the format has: %.40q", rest)
	}
	return fields, nil
}

// end returns where the text after a value begins. A quote that is part of a value has a backslash.
func (p *pattern) end(rest, after string) int {
	for from := 0; ; {
		at := strings.Index(rest[from:], after)
		if at < 0 {
			return -1
		}
		at += from
		slashes := 0
		for after[0] == '"' && slashes < at && rest[at-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
		from = at + 1
	}
}

// unescape returns a value without the escapes of nginx and Apache: \xHH, \" and \\.
func unescape(value string) string {
	if strings.IndexByte(value, '\\') < 0 {
		return value
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		switch rest := value[i:]; {
		case len(rest) >= 4 && rest[:2] == `\x` && hex(rest[2]) >= 0 && hex(rest[3]) >= 0:
			b.WriteByte(byte(hex(rest[2])<<4 | hex(rest[3])))
			i += 3
		case len(rest) >= 2 && rest[0] == '\\' && (rest[1] == '"' || rest[1] == '\\'):
			b.WriteByte(rest[1])
			i++
		default:
			b.WriteByte(rest[0])
		}
	}
	return b.String()
}

func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
