package core

import (
	"fmt"
	"time"
)

// reply reads the array that a script returned, from left to right. The first thing that is not as expected becomes its
// error; what is read after that is zero.
type Reply struct {
	values []any
	next   int
	Err    error
}

// readReply begins to read a reply that must have from least to most values.
func ReadReply(value any, least, most int) *Reply {
	values, ok := value.([]any)
	if !ok || len(values) < least || len(values) > most {
		return &Reply{Err: fmt.Errorf("unexpected reply %.100q: want %d to %d values", fmt.Sprint(value), least, most)}
	}
	return &Reply{values: values}
}

// readNumber reads a reply that is one number.
func ReadNumber(value any) (int64, error) {
	number, ok := value.(int64)
	if !ok {
		return 0, fmt.Errorf("unexpected reply %.100q: want a number", fmt.Sprint(value))
	}
	return number, nil
}

// more reports whether there are values left to read.
func (r *Reply) More() bool { return r.Err == nil && r.next < len(r.values) }

func ReadValue[T any](r *Reply) (value T) {
	if r.Err != nil {
		return value
	}
	value, ok := r.values[r.next].(T)
	if !ok {
		r.Err = fmt.Errorf("unexpected reply %.100q: value %d is a %T", fmt.Sprint(r.values), r.next+1, r.values[r.next])
	}
	r.next++
	return value
}

func (r *Reply) Text() string  { return ReadValue[string](r) }
func (r *Reply) Number() int64 { return ReadValue[int64](r) }
func (r *Reply) Flag() bool    { return ReadValue[int64](r) == 1 }

// texts reads an array of text.
func (r *Reply) Texts() []string {
	array := &Reply{values: ReadValue[[]any](r)}
	texts := make([]string, 0, len(array.values))
	for array.More() {
		texts = append(texts, array.Text())
	}
	if r.Err == nil {
		r.Err = array.Err
	}
	return texts
}

// duration reads a number of units of time; more than a Duration holds counts as the longest there is.
func (r *Reply) Duration(unit time.Duration) time.Duration { return DurationOf(r.Number(), unit) }

// durationOf returns n units of time: none where n is negative, and the longest Duration where that is more.
func DurationOf(n int64, unit time.Duration) time.Duration {
	const longest = time.Duration(1<<63 - 1)
	if n > int64(longest/unit) {
		return longest
	}
	return time.Duration(max(n, 0)) * unit
}
