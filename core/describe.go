package core

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Describer is a guard that describes itself: how its refusals are answered, what an operator can look at and
// do, and what observers hear of. It is optional. The built-in guards describe themselves in a file
// describe.go each, so nothing outside of a guard's package lists its reasons or its operations.
type Describer interface {
	// Describe returns the description. It is called when rules and operators' pages are set up, never in a
	// request, and returns the same at all times.
	Describe() Description
}

// Description is what a guard says of itself. The zero value says nothing: then every refusal is answered
// with [StandardAnswer], and an operator can look at and reset what the guard has methods for.
type Description struct {
	// Kind is what sort of guard it is, for people: "votes".
	Kind string
	// Answers are the answers to the reasons for which the guard refuses. Reasons that several guards share have
	// a [StandardAnswer], which [StandardAnswers] collects. One that is missing here is answered with its
	// standard answer.
	Answers []Answer
	// Operations are what an operator can ask of the guard, in the order in which they are shown. Their names
	// differ.
	Operations []Operation
	// Ops are the values of [Event.Op] that observers hear of the guard.
	Ops []string
}

// DescriptionOf returns the description of a guard, and the zero Description for one that does not describe
// itself.
func DescriptionOf(guard any) Description {
	if d, ok := guard.(Describer); ok {
		return d.Describe()
	}
	return Description{}
}

// Answer is what a client is told of a refusal, whatever the client asked for: its texts are fixed, and no
// cause of an error and no user's input belongs into them.
type Answer struct {
	// Reason is the reason for which the guard refuses.
	Reason Reason
	// Status is the status of the answer, as HTTP has them: 409. Zero is 403.
	Status int
	// Title says in a few words, in English, what happened. Empty: what HTTP calls the status.
	Title string
	// Detail says in an English sentence what the client can make of it. Empty: that the request was refused.
	Detail string
	// Type is the URI of the problem type, as RFC 9457 has it. Empty: "about:blank", which is that the status
	// says it all. With [TypeQuotaExceeded] and [TypeAbnormalUsage] the answer names the limit that refused.
	Type string
	// Expected reports that clients hear this while they do as they should, such as ask again after a lost
	// answer. It is no strike that could lead to a ban. Answers of 500 and above never are.
	Expected bool
}

// Problem types that draft-ietf-httpapi-ratelimit-headers, revision 11, section 10.2, asks to be registered.
const (
	// TypeQuotaExceeded is the type of refusals by a limit that is used up.
	TypeQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	// TypeAbnormalUsage is the type of refusals because of how the client has behaved.
	TypeAbnormalUsage = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

const documentedTypes = "https://github.com/gatehouse-go/gatehouse#"

// standardAnswers are the answers to the reasons that are not of one guard alone.
var standardAnswers = []Answer{
	{
		Reason: ReasonLimited, Status: 429, Title: "Quota Exceeded", // as the draft calls it
		Detail: "Too many requests. Try again later.", Type: TypeQuotaExceeded,
	},
	{
		Reason: ReasonOverLimit, Status: 429, Title: "Quota Exceeded",
		Detail: "This request asks for more than the limit allows at all.", Type: TypeQuotaExceeded,
	},
	{
		Reason: ReasonQuota, Status: 429, Title: "Quota Exceeded",
		Detail: "All that is allowed has been used.", Type: TypeQuotaExceeded,
	},
	{
		Reason: ReasonDuplicate, Status: 409, Title: "Done Before",
		Detail: "This has been done before, as often as is allowed.", Type: documentedTypes + "duplicate",
	},
	{
		Reason: ReasonNotOpen, Status: 409, Title: "Not Open",
		Detail: "This is not open.", Type: documentedTypes + "not_open",
	},
	{
		Reason: ReasonClosed, Status: 409, Title: "Closed",
		Detail: "This is closed.", Type: documentedTypes + "closed",
	},
	{
		Reason: ReasonGone, Status: 409, Title: "Reservation Over",
		Detail: "The reservation is over.", Type: documentedTypes + "gone",
	},
	{
		Reason: ReasonConflict, Status: 422, Title: "Operation ID In Use",
		Detail: "This operation ID belongs to a different request.", Type: documentedTypes + "conflict",
	},
	{
		Reason: ReasonNotReady, Status: 503, Title: "Not Ready",
		Detail: "This is not ready.", Type: documentedTypes + "not_ready",
	},
	{
		Reason: ReasonUnconfirmed, Status: 503, Title: "Not Confirmed",
		Detail: "This has not been confirmed. Try again, as the same operation.", Type: documentedTypes + "unconfirmed",
	},
	{
		Reason: ReasonDayRolled, Status: 503, Title: "New Period",
		Detail: "A new period is just beginning. Try again.", Type: documentedTypes + "day_rolled",
	},
}

// StandardAnswer returns the answer to a reason that several guards share, such as ReasonDuplicate; ok is
// false for other reasons.
func StandardAnswer(reason Reason) (answer Answer, ok bool) {
	i := slices.IndexFunc(standardAnswers, func(a Answer) bool { return a.Reason == reason })
	if i < 0 {
		return Answer{}, false
	}
	return standardAnswers[i], true
}

// StandardAnswers returns the standard answers to the reasons, for a Description. It panics on a reason that
// has none: give an Answer of the guard's own then.
func StandardAnswers(reasons ...Reason) []Answer {
	answers := make([]Answer, 0, len(reasons))
	for _, reason := range reasons {
		answer, ok := StandardAnswer(reason)
		if !ok {
			panic(fmt.Sprintf("core: there is no standard answer to the reason %q: describe it with an Answer", reason))
		}
		answers = append(answers, answer)
	}
	return answers
}

// Operation is something that an operator can ask of a guard by name.
type Operation struct {
	// Name is what it is called, in lower-case letters and hyphens: "peek".
	Name string
	// Changes reports that it changes something, rather than only looks. Changes go on record.
	Changes bool
	// Fields are what it is asked with.
	Fields []Field
	// Run does it. The result is shown as JSON; a Decision is shown by its figures. Of an error whose kind is
	// ErrInvalid, ErrNotFound or ErrNotNow the operator reads the text, of others that it failed. It may be
	// called concurrently.
	Run func(ctx context.Context, in Input) (any, error)
}

// Field is one of the texts that an operation is asked with.
type Field struct {
	// Name is what it is called: "actor".
	Name string
	// Kind is how it is read. The zero value is FieldText.
	Kind FieldKind
	// Required reports that it cannot be left out, nor be empty.
	Required bool
}

// FieldKind is how the text of a Field is read.
type FieldKind int

const (
	// FieldText is any text.
	FieldText FieldKind = iota
	// FieldNumber is a whole number.
	FieldNumber
	// FieldDuration is a duration as time.ParseDuration reads it: "90m".
	FieldDuration
	// FieldPercent is a number that may have a fraction.
	FieldPercent
	// FieldFlag is true or false.
	FieldFlag
)

// Input is what an operation is asked with, as [Operation.Read] has read it. Fields that were left out are
// zero.
type Input struct {
	texts  map[string]string
	values map[string]any
}

// Text returns a field as it was given.
func (in Input) Text(name string) string { return in.texts[name] }

// Number returns a field of FieldNumber.
func (in Input) Number(name string) int64 { return valueOf[int64](in, name) }

// Duration returns a field of FieldDuration.
func (in Input) Duration(name string) time.Duration { return valueOf[time.Duration](in, name) }

// Percent returns a field of FieldPercent.
func (in Input) Percent(name string) float64 { return valueOf[float64](in, name) }

// Flag returns a field of FieldFlag.
func (in Input) Flag(name string) bool { return valueOf[bool](in, name) }

// Attempt returns the attempt that the fields actor, resource, item and id name, each as far as it was given.
func (in Input) Attempt() Attempt {
	return Attempt{Actor: in.Text("actor"), Resource: in.Text("resource"), Item: in.Text("item"), ID: in.Text("id")}
}

func valueOf[T any](in Input, name string) T {
	value, _ := in.values[name].(T)
	return value
}

// Read reads the texts that the operation is asked with. A required one that is missing, one that the
// operation does not have, and one that cannot be read is an ErrInvalid whose text is for the operator.
func (o Operation) Read(texts map[string]string) (Input, error) {
	in := Input{texts: texts, values: map[string]any{}}
	known := map[string]bool{}
	for _, field := range o.Fields {
		known[field.Name] = true
		text := texts[field.Name]
		switch {
		case text == "" && field.Required:
			return Input{}, NewError(field.Name+" is missing", ErrInvalid)
		case text == "":
			continue
		}
		value, err := field.read(text)
		if err != nil {
			return Input{}, err
		}
		in.values[field.Name] = value
	}
	for name := range texts {
		if !known[name] {
			return Input{}, NewError(fmt.Sprintf("there is no field %.100q", name), ErrInvalid)
		}
	}
	return in, nil
}

func (f Field) read(text string) (value any, err error) {
	what := ""
	switch f.Kind {
	case FieldNumber:
		what = "a whole number"
		value, err = strconv.ParseInt(text, 10, 64)
	case FieldDuration:
		what = "a duration, such as 90m"
		value, err = time.ParseDuration(text)
	case FieldPercent:
		what = "a percentage"
		value, err = strconv.ParseFloat(text, 64)
	case FieldFlag:
		what = "true or false"
		value, err = strconv.ParseBool(text)
	default:
		value = text
	}
	if err != nil {
		return nil, NewError(fmt.Sprintf("%s is not %s: %.100q", f.Name, what, text), ErrInvalid)
	}
	return value, nil
}

// Detail is a figure of a decision that its guard wants clients to read, also when the attempt was refused: a
// member of the body of the answer.
type Detail struct {
	// Name is the member's name, such as "choices". Names that RFC 9457 defines, "reason" and
	// "violated-policies" are taken.
	Name string
	// Value is written as JSON.
	Value any
}

// DetailsOf returns the details that a decision has for clients. Guards give them by a claim with a method
// Details.
func DetailsOf(d Decision) []Detail {
	if c, ok := d.claim.(interface{ Details() []Detail }); ok {
		return c.Details()
	}
	return nil
}
