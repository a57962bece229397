package core

import "errors"

var (
	// ErrInvalidAttempt is wrapped by the errors of attempts that make no sense, such as one without an actor. Such an error is
	// the caller's mistake, or the caller's client's: asking again gives the same answer.
	ErrInvalid = errors.New("core: invalid attempt")
	// ErrNotFound is the kind of errors that say that a call by name has named nothing that is there, such as seckill.ErrNoSale.
	ErrNotFound = errors.New("core: not found")
	// ErrNotNow is the kind of errors that say that a call by name is not possible now, such as seckill.ErrTooFewLeft.
	ErrNotNow = errors.New("core: not possible now")
	// ErrGone is wrapped by the error of settling a claim that cannot be kept any more: the reservation is over and its units are taken,
	// another attempt has begun the operation since.
	ErrGone = errors.New("core: the claim is gone")
)

// NewError makes an error value of a guard's package, of a kind: errors.Is finds both. The kind decides what observers and
// operators are told: ErrInvalidAttempt, ErrNotFound or ErrNotNow.
func NewError(text string, kind error) error { return &kindError{text, kind} }

type kindError struct {
	text string
	kind error
}

func (e *kindError) Error() string { return e.text }
func (e *kindError) Unwrap() error { return e.kind }
