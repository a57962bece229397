package core

import "errors"

var (
	// ErrInvalid is wrapped by the errors of attempts and calls that make no sense, such as an attempt without
	// an actor. It is a mistake of the caller or of the caller's client: a repetition gets the same error.
	ErrInvalid = errors.New("core: invalid attempt")
	// ErrNotFound is the kind of errors that say that a call names something that does not exist, such as
	// seckill.ErrNoSale.
	ErrNotFound = errors.New("core: not found")
	// ErrNotNow is the kind of errors that say that a call by name is not possible now, such as
	// seckill.ErrTooFewLeft.
	ErrNotNow = errors.New("core: not possible now")
	// ErrGone is wrapped by the error of Settle when the claim no longer exists: the reservation has ended and
	// its units were taken, or another attempt has begun the operation since.
	ErrGone = errors.New("core: the claim is gone")
)

// NewError returns an error of a guard's package that wraps its kind, so that errors.Is matches both. The
// kind is [ErrInvalid], [ErrNotFound] or [ErrNotNow]. It decides what observers and operators see.
func NewError(text string, kind error) error { return &kindError{text, kind} }

type kindError struct {
	text string
	kind error
}

func (e *kindError) Error() string { return e.text }
func (e *kindError) Unwrap() error { return e.kind }
