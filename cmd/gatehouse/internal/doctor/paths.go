package doctor

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// paths asks by other ways to write the path.
func (p *proxy) paths(ctx context.Context) {
	var around, failed []string
	var other, failure *reply
	vague, ways := false, waysToWrite(p.url)
	for _, target := range ways {
		how, got := p.try(ctx, func() request { return request{method: p.method, target: target} }, p.leadsNowhere)
		switch {
		case ctx.Err() != nil:
			return
		case how == unclear:
			vague = true
		case how == wasNot && (got.err != nil || got.status >= http.StatusBadRequest):
			failed, failure = append(failed, target), got
		case how == wasNot:
			around, other = append(around, target), got
		}
	}
	if len(around) > 0 {
		p.report(stateProblem, "path", remedyPath, "%s: %v; before: %v", strings.Join(around, " "), other, p.last)
	}
	if len(failed) > 0 {
		p.report(stateProblem, "path", remedyOfStatus(failure.status), "%s: %v, in place of 400",
			strings.Join(failed, " "), failure)
	}
	if vague {
		p.report(stateUnseen, "path", remedySlower, "the limit gives back too fast to tell "+
			"whether other ways to write the path count")
	} else if len(around)+len(failed) == 0 {
		p.report(stateOK, "path", "", "%d other ways to write it count, or are no path", len(ways))
	}
}

// leadsNowhere reports whether an answer says that a target is none of the application, or is another one.
func (p *proxy) leadsNowhere(got *reply) bool {
	switch got.status {
	case http.StatusBadRequest, http.StatusNotFound:
		return true
	case http.StatusMovedPermanently, http.StatusPermanentRedirect:
		return got.status != p.first.status
	}
	return false
}

// waysToWrite returns other targets that some programs take for the path of the URL.
func waysToWrite(u *url.URL) []string {
	path, query := u.EscapedPath(), ""
	if u.RawQuery != "" {
		query = "?" + u.RawQuery
	}
	if path == "" {
		path = "/"
	}
	cut := strings.LastIndex(strings.TrimSuffix(path, "/"), "/") + 1 // where the last segment begins
	if path == "/" {
		cut = 1
	}
	ahead, last := path[:cut], path[cut:]
	escaped := func(format string) string {
		var b strings.Builder
		for i := range len(last) {
			letter := last[i]|0x20 >= 'a' && last[i]|0x20 <= 'z'
			if letter && (i == 0 || last[i-1] != '%') && (i < 2 || last[i-2] != '%') {
				fmt.Fprintf(&b, format, last[i])
			} else {
				b.WriteByte(last[i])
			}
		}
		return ahead + b.String()
	}
	all := []string{"/" + path, "/." + path, "/x/.." + path, ahead + "/" + last, ahead + "./" + last,
		ahead + "%2F" + last, ahead + "%2f" + last, ahead + "x%2F..%2F" + last, escaped("%%%02X"),
		escaped("%%%02x"),
		strings.TrimSuffix(path, "/") + ";a=1", ahead + ";a=1/" + last, "/;/.." + path}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(way string) bool { return way == path })
	for i := range all {
		all[i] += query
	}
	return all
}
