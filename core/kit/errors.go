package kit

// NewError returns an error of a guard's package that wraps its kind, so that errors.Is matches both. The
// kind is [core.ErrInvalid], [core.ErrNotFound] or [core.ErrNotNow]. It decides what observers and operators
// see.
func NewError(text string, kind error) error { return &kindError{text, kind} }

type kindError struct {
	text string
	kind error
}

func (e *kindError) Error() string { return e.text }
func (e *kindError) Unwrap() error { return e.kind }
