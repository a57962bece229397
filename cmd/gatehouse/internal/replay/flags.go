package replay

import (
	"errors"
	"flag"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/accesslog"
)

// flags are the flags of the command replay.
type flags struct {
	format   string
	roles    map[string]string // what of a request: the field of the log
	users    map[string]string // the name under which the login stores the user: the field
	headers  map[string]string // the header field: the field
	keys     map[string]string // the program's key function: the field
	costs    map[string]string // the program's cost function: units, or the field
	mounts   []mount
	layouts  []string
	sweeps   []string
	top      int
	csv      bool
	everyone string // the field of every user
}

// mount is where the program has a list of rules: on the route with the pattern, or around all routes.
type mount struct{ list, pattern string }

func (f *flags) register(fs *flag.FlagSet) {
	f.roles, f.users, f.headers = map[string]string{}, map[string]string{}, map[string]string{}
	f.keys, f.costs = map[string]string{}, map[string]string{}
	fs.StringVar(&f.format, "format", "auto", "the `format` of the log: "+strings.Join(accesslog.Names(), ", ")+
		", a log_format of nginx with its $variables, or auto")
	pairs := func(into map[string]string, bare bool) func(string) error {
		return func(text string) error {
			name, field, ok := strings.Cut(text, "=")
			if name == "" || field == "" && (ok || !bare) {
				return errors.New("write it as NAME=FIELD")
			}
			into[name] = strings.TrimPrefix(field, "$")
			return nil
		}
	}
	fs.Func("field", "where the log has time, method, uri, status, remote, host, request or duration, as "+
		"`WHAT=FIELD`, a time or duration with its unit: duration=latency:ns; may be repeated", pairs(f.roles, false))
	fs.Func("time", "a `LAYOUT` of times, as package time of Go has it: '02.01.2006 15:04:05'; may be repeated",
		func(text string) error {
			at := time.Date(2026, 11, 24, 10, 20, 30, 0, time.UTC)
			if got, err := time.Parse(text, at.Format(text)); err != nil || !got.Equal(at) {
				return errors.New("write the moment 2006-01-02 15:04:05 as the log would")
			}
			f.layouts = append(f.layouts, text)
			return nil
		})
	fs.Func("user", "the field of the log with the user that the login stores, as `NAME=FIELD`, or FIELD for all "+
		"names; may be repeated", func(text string) error {
		if !strings.Contains(text, "=") && text != "" {
			f.everyone = strings.TrimPrefix(text, "$")
			return nil
		}
		return pairs(f.users, false)(text)
	})
	fs.Func("header", "the field of the log with a header field, as `NAME=FIELD`; may be repeated", pairs(f.headers, false))
	fs.Func("key", "a key function of the program, as `NAME`, or NAME=FIELD with the field of the log that has what "+
		"it finds; may be repeated", pairs(f.keys, true))
	fs.Func("cost", "a cost function of the program, as `NAME`, NAME=UNITS, or NAME=FIELD; may be repeated",
		pairs(f.costs, true))
	fs.Func("mount", "a `LIST` of rules that all requests pass, or LIST=PATTERN for a route, as of http.ServeMux: "+
		"'voting=POST /polls/{poll}/votes'; may be repeated, the outermost first", func(text string) error {
		list, pattern, _ := strings.Cut(text, "=")
		f.mounts = append(f.mounts, mount{list, pattern})
		return nil
	})
	fs.Func("sweep", "other `limits` to try, as a file has them, of the only guard or of GUARD=...: "+
		"'site=5/s, 100/min'; may be repeated", func(text string) error {
		f.sweeps = append(f.sweeps, text)
		return nil
	})
	fs.IntVar(&f.top, "top", 10, "how many actors to name of each rule")
	fs.BoolVar(&f.csv, "csv", false, "write CSV")
}

// wanted returns the fields of the log that flags name.
func (f *flags) wanted() map[string]bool {
	all := map[string]bool{}
	for _, names := range []map[string]string{f.users, f.headers, f.keys, f.costs} {
		for _, field := range names {
			all[field] = true
		}
	}
	if f.everyone != "" {
		all[f.everyone] = true
	}
	return all
}
