package keyfuncs

import (
	"net/netip"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"
)

// NameOf returns how a program writes a function: User("uid"), Join(IP(), Route()). For a function of the
// application it is the name that Go has for it, such as main.tenant. It is for people, such as on the pages
// of operators, and calls no function of the application.
func NameOf(f Func) string {
	if known := aboutOf(f); known.name != "" {
		return known.name
	}
	if own := runtime.FuncForPC(reflect.ValueOf(f).Pointer()); own != nil {
		return strings.TrimSuffix(path.Base(own.Name()), "-fm") // of a method value
	}
	return "a function"
}

// Named returns a function that does what f does, and has this name for NameOf.
func Named(name string, f Func) Func {
	known := aboutOf(f)
	known.name = name
	return described(known, f)
}

// OfBody returns f with the mark that it reads the request's body: see [ReadsBody]. Use it for your own
// functions that do. The functions of this package have the mark, and so has a function that calls one,
// such as [Join].
func OfBody(f Func) Func {
	known := aboutOf(f)
	known.body = true
	if known.name == "" {
		known.name = NameOf(f)
	}
	return described(known, f)
}

// ReadsBody reports whether the function reads the request's body, for which it may have to wait as long as
// the client likes. Rules call such a function only when the rules in front have allowed the request.
func ReadsBody(f Func) bool { return f != nil && aboutOf(f).body }

// PartsOf returns the names of the parts of a key. A [Join] has the names of the functions that it joins,
// without constants. Any other function has its own name. It is nil where a name does not identify the
// function, as for a closure of the application. So a program sees that one key is a part of another.
func PartsOf(f Func) []string {
	known := aboutOf(f)
	switch {
	case known.parts != nil:
		return slices.Clone(known.parts)
	case known.constant:
		return []string{}
	case known.name != "":
		return []string{known.name}
	}
	own := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
	if own == nil || strings.Contains(own.Name(), ".func") || strings.HasSuffix(own.Name(), "-fm") {
		return nil
	}
	return []string{own.Name()}
}

// joinedParts returns the parts of a Join, or nil where those of one function are not known.
func joinedParts(fns []Func) []string {
	all := []string{}
	for _, fn := range fns {
		parts := PartsOf(fn)
		if parts == nil {
			return nil
		}
		all = append(all, parts...)
	}
	return all
}

// about is what is known of a function without a request.
type about struct {
	name     string
	body     bool // it reads the request's body
	constant bool // it finds the same for every request
	// parts are the names of the joined functions. Nil: the function joins nothing.
	parts []string
	// address finds the address before it is grouped. Nil: the function finds no address.
	address func(r *Request) (netip.Addr, error)
	// finds reports whether the function can find this text. Nil: nothing is known.
	finds func(text string) bool
}

// Error makes an about what a function returns.
func (*about) Error() string { return "keyfuncs: no request" }

// askAbout is the request by which aboutOf asks a function.
var askAbout = new(Request)

// described returns a function that does what f does. All functions of this package are made by it, so they
// have the same code, by which aboutOf knows them.
//
//go:noinline
func described(known about, f Func) Func {
	return func(r *Request) (string, error) {
		if r == askAbout {
			return "", &known
		}
		return f(r)
	}
}

// aboutOf returns what is known of a function. It calls no function of the application.
func aboutOf(f Func) about {
	if reflect.ValueOf(f).Pointer() != reflect.ValueOf(described(about{}, nil)).Pointer() {
		return about{}
	}
	_, known := f(askAbout)
	return *known.(*about) //nolint:errorlint,forcetypeassert // described made the function
}

// combined returns what is known of a call of other functions.
func combined(call string, fns []Func) about {
	return about{name: callOf(call, fns), body: slices.ContainsFunc(fns, ReadsBody)}
}

// canFind reports whether the function can find this text, as far as that is known.
func canFind(f Func, text string) bool {
	known := aboutOf(f)
	return text != "" && (known.finds == nil || known.finds(text))
}

// callOf is a call with functions as arguments.
func callOf(call string, fns []Func) string {
	names := make([]string, len(fns))
	for i, fn := range fns {
		names[i] = NameOf(fn)
	}
	return call + "(" + strings.Join(names, ", ") + ")"
}
