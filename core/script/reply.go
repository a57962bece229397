package script

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Reply reads the array or the words that a script returned, from left to right. The first value that is not
// as expected sets Err; every later read returns a zero value. A Reply is not safe for concurrent use.
type Reply struct {
	values []any
	words  string // instead of values: those that are left
	more   bool   // whether a word is left
	next   int
	Err    error
}

// ReadReply begins to read a reply that must have least to most values. It returns a Reply with Err set for
// any other reply.
func ReadReply(value any, least, most int) *Reply {
	r := &Reply{}
	r.begin(value, least, most)
	return r
}

// begin is a function of its own so that ReadReply can be inlined, and its Reply needs no allocation.
func (r *Reply) begin(value any, least, most int) {
	values, ok := value.([]any)
	if !ok || len(values) < least || len(values) > most {
		r.Err = fmt.Errorf("unexpected reply %.100q: want %d to %d values", fmt.Sprint(value), least, most)
		return
	}
	r.values = values
}

// ReadWords begins to read a reply that is one text of least words or more, with a space between any two of
// them. A word may be empty. It returns a Reply with Err set for any other reply.
func ReadWords(value any, least int) *Reply {
	r := &Reply{}
	r.beginWords(value, least)
	return r
}

// beginWords is to ReadWords what begin is to ReadReply.
func (r *Reply) beginWords(value any, least int) {
	if r.words, r.more = value.(string); !r.more || strings.Count(r.words, " ")+1 < least {
		r.Err = fmt.Errorf("unexpected reply %.100q: want %d words", fmt.Sprint(value), least)
	}
}

// ReadNumber reads a reply that is a single number.
func ReadNumber(value any) (int64, error) {
	number, ok := value.(int64)
	if !ok {
		return 0, fmt.Errorf("unexpected reply %.100q: want a number", fmt.Sprint(value))
	}
	return number, nil
}

// More reports whether there are values left to read.
func (r *Reply) More() bool { return r.Err == nil && (r.more || r.next < len(r.values)) }

// ReadValue reads the next value, which must have type T. Call it only while [Reply.More] is true or the
// reply is known to have the value.
func ReadValue[T any](r *Reply) (value T) {
	if r.Err != nil {
		return value
	}
	value, ok := r.values[r.next].(T)
	if !ok {
		r.Err = fmt.Errorf("unexpected reply %.100q: value %d is a %T", fmt.Sprint(r.values), r.next+1,
			r.values[r.next])
	}
	r.next++
	return value
}

// Text reads the next value as text.
func (r *Reply) Text() string {
	if !r.more || r.Err != nil {
		return ReadValue[string](r)
	}
	var word string
	word, r.words, r.more = strings.Cut(r.words, " ")
	return word
}

// Number reads the next value as a number. Inlined into another package, the call of the generic function
// would need the Reply on the heap.
//
//go:noinline
func (r *Reply) Number() int64 {
	if !r.more || r.Err != nil {
		return ReadValue[int64](r)
	}
	word := r.Text()
	number, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		r.Err = fmt.Errorf("unexpected reply: %.100q is no number", word)
	}
	return number
}

// Flag reads the next value as a flag: 1 is true, any other number is false.
func (r *Reply) Flag() bool { return r.Number() == 1 }

// Rest reads all words that are left.
func (r *Reply) Rest() []string {
	if r.Err != nil || !r.more {
		return nil
	}
	r.more = false
	return strings.Split(r.words, " ")
}

// Texts reads the next value as an array of text.
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

// Duration reads the next value as a number of units of time, as [DurationOf] does.
func (r *Reply) Duration(unit time.Duration) time.Duration { return DurationOf(r.Number(), unit) }

// DurationOf returns n units of time. It is zero when n is negative, and the longest Duration when the result
// would be longer.
func DurationOf(n int64, unit time.Duration) time.Duration {
	const longest = time.Duration(1<<63 - 1)
	if n > int64(longest/unit) {
		return longest
	}
	return time.Duration(max(n, 0)) * unit
}
