package gateway

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// This file makes one path of the many ways to write it. What a proxy, an application and a rule could read
// in different ways is refused.

// ambiguous is the error of a path that can be read in two ways.
type ambiguous struct {
	path, why string
	option    string // that lets it pass, if one does: for the operator, since clients cannot set it
}

func (e *ambiguous) Error() string { return fmt.Sprintf("the path %.100q %s", e.path, e.why) }

// clean returns the URL of a request target. Empty segments and those of dots are resolved, as proxies do
// before they route. The error says what could be read in two ways.
func clean(target string, o *Options) (*url.URL, error) {
	if target == "*" {
		return &url.URL{Path: "*"}, nil
	}
	path, query, asked := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("the path %.100q does not begin with a slash", path)
	}
	if err := unambiguous(path, o); err != nil {
		return nil, err
	}
	if strings.Contains(path, "/..") && isCrooked(path) {
		return nil, &ambiguous{path: path, why: "goes back by .. past what not all take for a segment"}
	}
	path = resolve(path)
	if o.FoldPath {
		path = folded(path)
	}
	u := &url.URL{RawQuery: query, ForceQuery: asked && query == ""}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return nil, fmt.Errorf("the path %.100q: %w", path, err) // which unambiguous has found before
	}
	u.Path = plain
	if u.EscapedPath() != path {
		u.RawPath = path
	}
	return u, nil
}

// folded returns a path in lower case, also the letters that are escaped. Its escapes are those of a path.
func folded(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		plain, _ := url.PathUnescape(segment) // unambiguous has looked at the escapes
		if segments[i] = lower(plain); plain != segment {
			segments[i] = url.PathEscape(segments[i])
		}
	}
	return strings.Join(segments, "/")
}

// lower returns a text in lower case: of one that is no UTF-8, only the letters of ASCII.
func lower(text string) string {
	if utf8.ValidString(text) {
		return strings.ToLower(text)
	}
	bytes := []byte(text)
	for i, c := range bytes {
		if 'A' <= c && c <= 'Z' {
			bytes[i] = c | 0x20
		}
	}
	return string(bytes)
}

// isCrooked reports whether a path with a segment ".." also has an empty one, which some merge with the next,
// or dots that are escaped.
func isCrooked(path string) bool {
	back, odd := false, false
	segments := strings.Split(path[1:], "/")
	for i, segment := range segments {
		plain, _ := url.PathUnescape(segment) // unambiguous has looked at the escapes
		back = back || segment == ".."
		odd = odd || segment == "" && i < len(segments)-1 || segment != plain && (plain == "." || plain == "..")
	}
	return back && odd
}

// unambiguous returns an error for a path with what applications read in different ways.
func unambiguous(path string, o *Options) error {
	refuse := func(why string) error { return &ambiguous{path: path, why: why} }
	refuseBut := func(option, why string) error { return &ambiguous{path, why, option} }
	for i := 0; i < len(path); i++ {
		c := path[i]
		escape := c == '%'
		if escape {
			value, ok := escaped(path[i:])
			if !ok {
				return refuse("has a % that is no escape")
			}
			c, i = value, i+2
		}
		switch {
		case isControl(c), c == ' ' && !escape:
			return refuse("has a control character or a space")
		case c == '\\':
			return refuse("has a backslash, which some read as a slash")
		case c == '#' && !escape:
			return refuse("has a #, at which some end the path")
		case c == '/' && escape && !o.EncodedSlashes:
			return refuseBut("Options.EncodedSlashes, -encoded-slashes",
				"has an encoded slash, which some read as a slash")
		case c == ';' && !o.PathParameters:
			return refuseBut("Options.PathParameters, -path-parameters",
				"has a semicolon, at which some end a segment")
		}
	}
	return nil
}

func isControl(c byte) bool { return c < ' ' || c == 0x7f }

// escaped returns the value of the escape that a text begins with.
func escaped(s string) (value byte, ok bool) {
	if len(s) < 3 {
		return 0, false
	}
	for _, c := range []byte(s[1:3]) {
		value <<= 4
		switch {
		case '0' <= c && c <= '9':
			value |= c - '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			value |= c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
	}
	return value, true
}

// resolve removes empty segments, and resolves those of dots, also escaped ones.
func resolve(path string) string {
	if !strings.Contains(path, "//") && !strings.Contains(path, "/.") && !strings.Contains(path, "/%2") {
		return path
	}
	var kept []string
	segments := strings.Split(path[1:], "/")
	last := ""
	for _, s := range segments {
		switch last = unescapedDots(s); last {
		case "", ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, s)
		}
	}
	resolved := "/" + strings.Join(kept, "/")
	if (last == "" || last == "." || last == "..") && len(kept) > 0 {
		resolved += "/"
	}
	return resolved
}

// unescapedDots returns a segment with its dots.
func unescapedDots(s string) string {
	if len(s) > 6 || !strings.Contains(s, "%2") { // two dots take six characters
		return s
	}
	return strings.NewReplacer("%2e", ".", "%2E", ".").Replace(s)
}
