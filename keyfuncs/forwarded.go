package keyfuncs

import (
	"net/http"
	"net/netip"
	"strings"
)

// forwarding is one way in which proxies name their caller: a list that each proxy appends to, or one
// address.
type forwarding struct {
	header string                                   // in canonical form
	single bool                                     // the header carries one address; cut and parse are nil
	cut    func(line string) (rest, element string) // takes the last element off a header line
	parse  func(element string) (netip.Addr, bool)  // reads the address in it
}

var (
	xForwardedFor = forwarding{header: "X-Forwarded-For", cut: cutComma, parse: parseNode}
	forwarded     = forwarding{header: "Forwarded", cut: cutElement, parse: parseElement}
)

// only reads a header that carries one address.
func (f forwarding) only(h http.Header) (netip.Addr, error) {
	lines := h[f.header]
	if len(lines) != 1 {
		return netip.Addr{}, malformed("IP()", "the trusted peer sends %d lines of %s, want 1", len(lines),
			f.header)
	}
	value := strings.Trim(lines[0], " \t")
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return addr, malformed("IP()", "%s names no address in %s", f.header, quote(value))
	}
	return fold(addr), nil
}

// fold leaves one spelling of an address: not IPv4-mapped, and without a zone.
func fold(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

func cutComma(line string) (rest, element string) {
	i := strings.LastIndexByte(line, ',')
	return line[:max(i, 0)], line[i+1:]
}

// cutElement cuts at the last comma outside quoted strings. It reads from the right, because the left end
// may come from the client: one opening quote without a closing one would make a reader from the left take
// all that the proxies appended for a quoted string. From the right, what a proxy has appended is whole.
func cutElement(line string) (rest, element string) {
	for i := len(line) - 1; i >= 0; i-- {
		switch line[i] {
		case ',':
			return line[:i], line[i+1:]
		case '"':
			i = openingQuote(line[:i])
		}
	}
	return "", line
}

// openingQuote returns the index at which the quoted string begins that runs to the end of s, or -1. A
// quote inside the string is escaped: an odd number of backslashes stands before it. Before the opening
// quote stands the equals sign.
func openingQuote(s string) int {
	for {
		i := strings.LastIndexByte(s, '"')
		if i < 0 {
			return -1
		}
		unslashed := strings.TrimRight(s[:i], `\`)
		if (i-len(unslashed))%2 == 0 {
			return i
		}
		s = unslashed
	}
}

// parseElement reads the address in one forwarded-element (RFC 7239, section 4), such as
// for="[2001:db8::1]:4711";proto=https. It accepts common deviations that can be read in one way only:
// blanks around semicolons, and values without the quotes that their colons and brackets require. An
// element without a "for" hides who called that proxy, and one with two contradicts itself; neither gives
// an address.
func parseElement(element string) (addr netip.Addr, ok bool) {
	var node string
	for seen := false; ; {
		if element = strings.TrimLeft(element, "; \t"); element == "" {
			return parseNode(node) // "" without a for, which is no address
		}
		name, value, rest, ok := cutPair(element)
		if !ok {
			return addr, false
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return addr, false
			}
			node, seen = value, true
		}
		element = rest
	}
}

// cutPair takes the first name=value off an element. The rest is empty or begins with a semicolon.
func cutPair(s string) (name, value, rest string, ok bool) {
	name, s, ok = strings.Cut(s, "=")
	if !ok || !isToken(name) {
		return "", "", "", false
	}
	if strings.HasPrefix(s, `"`) {
		value, rest, ok = cutQuoted(s[1:])
	} else {
		end := strings.IndexAny(s, "; \t")
		if end < 0 {
			end = len(s)
		}
		value, rest = s[:end], s[end:]
		ok = value != "" && !strings.Contains(value, `"`)
	}
	rest = strings.TrimLeft(rest, " \t")
	return name, value, rest, ok && (rest == "" || rest[0] == ';')
}

// cutQuoted reads a quoted string (RFC 9110, section 5.6.4) behind its opening quote.
func cutQuoted(s string) (value, rest string, ok bool) {
	var before []byte // the unescaped part; usually empty, so that nothing is copied
	for {
		i := strings.IndexAny(s, `"\`)
		if i < 0 || s[i] == '\\' && i == len(s)-1 {
			return "", "", false
		}
		if s[i] == '"' {
			return string(before) + s[:i], s[i+1:], true
		}
		before = append(append(before, s[:i]...), s[i+1])
		s = s[i+2:]
	}
}

// parseNode reads an address as proxies and net/http write it: IPv4 or IPv6, with or without a port. With a
// port, IPv6 needs brackets (RFC 7239, section 6). The result is folded: see fold.
func parseNode(s string) (netip.Addr, bool) {
	host, port := s, ""
	bracketed := strings.HasPrefix(s, "[")
	if bracketed {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return netip.Addr{}, false
		}
		host, port = s[1:end], s[end+1:]
	} else if i := strings.IndexByte(s, ':'); i >= 0 && i == strings.LastIndexByte(s, ':') {
		host, port = s[:i], s[i:]
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || bracketed && addr.Is4() || port != "" && !isPort(port) {
		return netip.Addr{}, false
	}
	return fold(addr), true
}

// isPort reports whether s is a colon and a port: up to five digits, or an obfuscated port (RFC 7239,
// section 6.3). The port is not used, so 99999 does no harm.
func isPort(s string) bool {
	s, ok := strings.CutPrefix(s, ":")
	if strings.HasPrefix(s, "_") {
		return ok && isToken(s)
	}
	for i := range len(s) { // strings.Trim would cost each request more than the rest of its peer's address
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return ok && s != "" && len(s) <= 5
}
