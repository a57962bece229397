package keyfuncs

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/gatehouse-go/gatehouse/internal/pathvalue"
	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// Route finds the pattern that the request matched, not its path: "/polls/:poll/votes" on gin and echo,
// "/polls/{poll}/votes" on net/http and chi. A pattern of [net/http.ServeMux] loses its method ("POST ")
// and keeps its host; Join(Method(), Route()) has the method on every router.
//
// It returns [ErrMissing] where no route matched, or where the rule wraps the whole router and runs before
// it. In the latter case it warns once: mount the rule on routes, on chi with With or in a Group, on echo
// not with Pre. A router that tells net/http nothing about the route, that is, any but ServeMux and chi,
// needs a [Func] of its own.
func Route() Func {
	notFound := missing("Route()")
	look := &routeDetector{}
	return Named("Route()", func(r *Request) (string, error) {
		if r.Facts != nil {
			// The framework alone decides: the pattern of a ServeMux around it says only how it was
			// mounted.
			route := r.Facts.Route()
			look.inspect(r, route)
			return found(route, notFound)
		}
		pattern := r.Pattern
		look.inspect(r, pattern)
		if i := strings.IndexAny(pattern, " \t"); i >= 0 {
			pattern = strings.TrimLeft(pattern[i+1:], " \t")
		}
		return found(pattern, notFound)
	})
}

// Param finds a path parameter by its bare name: Param("poll") for /polls/:poll on gin and echo, and for
// /polls/{poll} on net/http and chi. It asks the framework first, then [net/http.Request.PathValue].
//
// It undoes escapes in the path on every router: /polls/final and /polls/%66inal are one poll. (Where a
// path has needless escapes, echo and chi hand values to handlers as the client sent them.) If your handler
// maps several spellings to one thing, for example by ignoring case, the guard must count under the mapped
// spelling: write a [Func] that maps them too.
//
// A parameter that is empty or that the route does not have is [ErrMissing]. If the route does not have it,
// Param logs the warning GH007 at the first request.
func Param(name string) Func {
	bare := strings.TrimSuffix(strings.Trim(name, ":{}"), "...")
	if len(bare) > 1 {
		bare = strings.TrimPrefix(bare, "*") // alone, it names a catch-all on echo and chi
	}
	switch {
	case bare == "":
		misuse("Param(%q) needs the name of a path parameter, such as Param(\"poll\")", name)
	case bare != name:
		misuse("Param(%q): write the name without the router's punctuation, as Param(%q)", name, bare)
	}
	notFound := missing(fmt.Sprintf("Param(%q)", name))
	return Named(fmt.Sprintf("Param(%q)", name), func(r *Request) (string, error) {
		if r.Facts != nil {
			if value, ok := r.Facts.Param(name); ok {
				return found(value, notFound)
			}
		}
		warnOfUnknown(r, name)
		return found(pathvalue.Plain(r.URL, r.Pattern, name, r.PathValue(name)), notFound)
	})
}

// warnOfUnknown warns if the request's route is known and does not have the parameter.
func warnOfUnknown(r *Request, name string) {
	route := r.Pattern
	if r.Facts != nil {
		route = r.Facts.Route()
	}
	subject := route + " " + name
	if route == "" || warn.Unknown.Told(subject) {
		return
	}
	separates := func(c rune) bool { return strings.ContainsRune("/{}.: ", c) }
	for _, part := range strings.FieldsFunc(route, separates) {
		if strings.TrimPrefix(part, "*") == name {
			return
		}
	}
	warn.Unknown.Tell(r.Context(), r.logger(), subject, "param", name, "route", route)
}

// Method finds the request's method, such as "POST", as the client sent it: methods are case-sensitive (RFC
// 9110, section 9.1). HEAD is not GET here, although most routers answer both in the same handler.
func Method() Func {
	notFound := missing("Method()")
	return Named("Method()", func(r *Request) (string, error) { return found(r.Method, notFound) })
}

// Host finds the host that the client asked for, in one spelling: lower case, without a port or a final
// dot, and an IPv6 address without brackets. It comes from the client: let your proxy or your routes decide
// which hosts reach this server.
//
// An empty host is [ErrMissing]. [ErrMalformed] is anything but an address or a name of at most 253 bytes
// made of letters, digits, "-", "_" and "."; internationalized names arrive as "xn--".
func Host() Func {
	notFound := missing("Host()")
	finds := func(text string) bool { // a network matches the addresses in it
		host, ok := hostText(text)
		_, network := parsePrefix(text)
		return ok && host == text || network
	}
	return described(about{name: "Host()", finds: finds}, func(r *Request) (string, error) {
		if r.Host == "" {
			return "", notFound
		}
		host, ok := hostText(r.Host)
		if !ok {
			return "", malformed("Host()", "%s is not a host", quote(r.Host))
		}
		return host, nil
	})
}

func hostText(s string) (host string, ok bool) {
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		if strings.Trim(s[i+1:], "0123456789") != "" {
			return "", false
		}
		s = s[:i] // the port may be empty (RFC 3986, section 3.2.3)
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !ok || err != nil || addr.Is4() {
			return "", false
		}
		return addr.Unmap().WithZone("").String(), true
	}
	s = strings.TrimSuffix(s, ".")
	if !isHostName(s) {
		return "", false
	}
	return strings.ToLower(s), true
}

// isHostName reports whether a text is made of labels of letters, digits, '-' and '_'.
func isHostName(s string) bool {
	const most = 253
	for label := range strings.SplitSeq(s, ".") {
		if label == "" {
			return false
		}
		for i := range len(label) {
			c := label[i] | 0x20 // lower case, of a letter
			if (c < 'a' || c > 'z') && (label[i] < '0' || label[i] > '9') && label[i] != '-' && label[i] != '_' {
				return false
			}
		}
	}
	return len(s) <= most
}

// found ends most functions: an empty value counts as missing.
func found(value string, notFound error) (string, error) {
	if value == "" {
		return "", notFound
	}
	return value, nil
}

// logger returns where functions log their warnings.
func (r *Request) logger() *slog.Logger {
	if r.Logger == nil {
		return nil
	}
	return r.Logger()
}
