package keyfuncs

import (
	"path"
	"reflect"
	"runtime"
	"strings"
)

// NameOf returns how a program writes a function: User("uid"), Join(IP(), Route()). For a function of the
// application it is the name that Go has for it, such as main.tenant. It is for people, such as on the pages
// of operators, and calls no function of the application.
func NameOf(f Func) string {
	code := reflect.ValueOf(f).Pointer()
	if code == reflect.ValueOf(Named("", nil)).Pointer() {
		name, _ := f(askName)
		return name
	}
	if own := runtime.FuncForPC(code); own != nil {
		return strings.TrimSuffix(path.Base(own.Name()), "-fm") // of a method value
	}
	return "a function"
}

// askName is the request by which NameOf asks a function for its name.
var askName = new(Request)

// Named returns a function that does what f does, and has this name for NameOf. All functions of this
// package are made by it, so they have the same code, by which NameOf knows them.
//
//go:noinline
func Named(name string, f Func) Func {
	return func(r *Request) (string, error) {
		if r == askName {
			return name, nil
		}
		return f(r)
	}
}

// callOf is a call with functions as arguments.
func callOf(call string, fns []Func) string {
	names := make([]string, len(fns))
	for i, fn := range fns {
		names[i] = NameOf(fn)
	}
	return call + "(" + strings.Join(names, ", ") + ")"
}
