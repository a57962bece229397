package core

import (
	"fmt"
	"time"
)

// reply reads the array that a script returned, from left to right. The first thing that is not as expected becomes its
// error; what is read after that is zero.
type reply struct {
	values []any
	next   int
	err    error
}

// readReply begins to read a reply that must have from least to most values.
func readReply(value any, least, most int) *reply {
	values, ok := value.([]any)
	if !ok || len(values) < least || len(values) > most {
		return &reply{err: fmt.Errorf("unexpected reply %.100q: want %d to %d values", fmt.Sprint(value), least, most)}
	}
	return &reply{values: values}
}

// readNumber reads a reply that is one number.
func readNumber(value any) (int64, error) {
	number, ok := value.(int64)
	if !ok {
		return 0, fmt.Errorf("unexpected reply %.100q: want a number", fmt.Sprint(value))
	}
	return number, nil
}

// more reports whether there are values left to read.
func (r *reply) more() bool { return r.err == nil && r.next < len(r.values) }

func read[T any](r *reply) (value T) {
	if r.err != nil {
		return value
	}
	value, ok := r.values[r.next].(T)
	if !ok {
		r.err = fmt.Errorf("unexpected reply %.100q: value %d is a %T", fmt.Sprint(r.values), r.next+1, r.values[r.next])
	}
	r.next++
	return value
}

func (r *reply) text() string  { return read[string](r) }
func (r *reply) number() int64 { return read[int64](r) }
func (r *reply) flag() bool    { return read[int64](r) == 1 }

// texts reads an array of text.
func (r *reply) texts() []string {
	array := &reply{values: read[[]any](r)}
	texts := make([]string, 0, len(array.values))
	for array.more() {
		texts = append(texts, array.text())
	}
	if r.err == nil {
		r.err = array.err
	}
	return texts
}

// duration reads a number of units of time; more than a Duration holds counts as the longest there is.
func (r *reply) duration(unit time.Duration) time.Duration { return durationOf(r.number(), unit) }

// durationOf returns n units of time: none where n is negative, and the longest Duration where that is more.
func durationOf(n int64, unit time.Duration) time.Duration {
	const longest = time.Duration(1<<63 - 1)
	if n > int64(longest/unit) {
		return longest
	}
	return time.Duration(max(n, 0)) * unit
}
