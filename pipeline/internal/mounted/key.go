package mounted

import (
	"errors"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// text calls a key function. Empty text counts as nothing found, so that a function of the application cannot
// put everybody into one bucket.
func text(field string, f keyfuncs.Func, req *keyfuncs.Request) (string, error) {
	found, err := f(req)
	if err == nil && found == "" {
		err = keyfuncs.ErrMissing
	}
	if err != nil {
		return "", &keyError{field, err}
	}
	return found, nil
}

// keyError is the error of a key function or list of the rule.
type keyError struct {
	field string // see core.Event.Key
	err   error
}

func (e *keyError) Error() string { return e.field + ": " + e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

// keyOf returns the field that an error is about, or "".
func keyOf(err error) string {
	if from := (*keyError)(nil); errors.As(err, &from) {
		return from.field
	}
	return ""
}
