// Package plainhost makes one host of the many ways to write it, for the gateway and for the routes of files.
package plainhost

import (
	"net/netip"
	"strings"
)

// Of returns a host as patterns have it: in lower case, without a port and without dots at its end. Proxies
// and applications take all spellings for the same, and http.ServeMux does not.
func Of(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]")); err == nil {
			return "[" + addr.String() + "]"
		}
	}
	return strings.ToLower(strings.TrimRight(host, "."))
}
