package kit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// Describer is a guard that describes itself: the answers to its refusals, its operations for an operator,
// and its figures for observers. It is optional. Each built-in guard describes itself in its file
// describe.go, so that no other package lists its reasons or operations.
type Describer interface {
	// Describe returns the description. It is called when rules and operators' pages are set up, never in a
	// request, and always returns the same.
	Describe() Description
}

// Description is what a guard says about itself. The zero value says nothing: then every refusal gets its
// [StandardAnswer], and an operator can look at and reset the guard as far as it has methods for that.
type Description struct {
	// Kind is the kind of the guard, for people: "votes".
	Kind string
	// Settings are what the guard was made with, such as its limits, as operators see them.
	Settings []Detail
	// Answers are the answers to the reasons for which the guard denies attempts, and to replays of finished
	// operations ([ReasonReplayed]). Reasons that several guards share have a [StandardAnswer], and
	// [StandardAnswers] collects these. A reason that is missing here gets its standard answer.
	Answers []Answer
	// Operations are what an operator can do with the guard, in the order in which they are shown. Their
	// names must differ.
	Operations []Operation
	// Ops are the values of [Event].Op for the guard's calls.
	Ops []string
}

// Tool is something that an application calls by name and that no rule checks, such as a delay queue. It is
// made with an engine, as guards are, and shares the engine's deadline, breaker and observer. Operators see
// it beside the guards.
type Tool interface {
	Describer
	// Name returns the tool's name, which is unique in its engine, guards included.
	Name() string
}

// DescriptionOf returns the description of a guard. It is the zero Description for a guard that does not
// describe itself.
func DescriptionOf(guard any) Description {
	if d, ok := guard.(Describer); ok {
		return d.Describe()
	}
	return Description{}
}

// Answer is what a client is told of a refusal. Its texts are fixed: they must not contain the cause of an
// error or the input of a user.
type Answer struct {
	// Reason is the reason for which the guard denies.
	Reason core.Reason
	// Status is the HTTP status of the answer, such as 409. Zero means 403.
	Status int
	// Title says in a few English words what happened. Empty means the HTTP text of the status.
	Title string
	// Detail is an English sentence that tells the client what to do. Empty means that the request was
	// refused.
	Detail string
	// PageTitle and PageDetail are what pages say in place of Title and Detail: in English words for people who
	// do not know what an operation or a guard is. A page adds by itself when to come back. Empty: Title and
	// Detail.
	PageTitle, PageDetail string
	// Pages are what pages say to readers of other languages, by Accept-Language.
	Pages []PageText
	// PageStatus is the status of the page if it differs from Status, such as 200 for a visitor in line. Then
	// only page views get the page: GET and HEAD requests of a browser that does not fetch for a script. All
	// other requests get the body for programs. Search engines are to index neither. A page view without a
	// token, and without Sec-Fetch-Mode: navigate, may be a search engine. It gets 503, so that the page
	// behind stays indexed. Zero: Status.
	PageStatus int
	// Waits reports whether the client waits in line, and comes in by asking again. The page asks by itself,
	// as often as the decision's RetryAfter says. It shows these of the decision's details, if present:
	// "position" (int64), "estimate" (text as in ISO 8601, such as PT4M), "opens" (time.Time), and "state",
	// where only a change matters. An answer with a PageStatus and a RetryAfter has that page, too.
	Waits bool
	// Type is the URI of the problem type (RFC 9457). Empty means "about:blank": the status says it all. With
	// [TypeQuotaExceeded] and [TypeAbnormalUsage] the answer names the limit that denied the request.
	Type string
	// Expected reports whether a well-behaved client gets this answer, for example when it retries after a
	// lost response. Such an answer is not a strike, which could lead to a ban. Answers with a status of 500
	// or above are never strikes.
	Expected bool
}

// PageText is what a page says in a language.
type PageText struct {
	Lang          string // such as "zh-Hans" (RFC 5646)
	Title, Detail string
}

// Problem types that draft-ietf-httpapi-ratelimit-headers, revision 11, section 10.2, asks IANA to register.
const (
	// TypeQuotaExceeded is the type of refusals by a limit that is used up.
	TypeQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	// TypeAbnormalUsage is the type of refusals because of the client's behaviour.
	TypeAbnormalUsage = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

const documentedTypes = "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#"

// standardAnswers are the answers to the reasons that several guards share.
var standardAnswers = []Answer{
	{
		Reason: core.ReasonLimited, Status: 429, Title: "Quota Exceeded", // as the draft calls it
		Detail: "Too many requests. Try again later.", Type: TypeQuotaExceeded,
		PageTitle:  "Too many requests",
		PageDetail: "You have sent more requests than are allowed in this time.",
	},
	{
		Reason: core.ReasonOverLimit, Status: 429, Title: "Quota Exceeded",
		Detail: "This request asks for more than the limit allows at all.", Type: TypeQuotaExceeded,
		PageTitle:  "Too much at once",
		PageDetail: "This is more than is allowed at all. Ask for less.",
	},
	{
		Reason: core.ReasonQuota, Status: 429, Title: "Quota Exceeded",
		Detail: "All that is allowed has been used.", Type: TypeQuotaExceeded,
		PageTitle:  "Nothing left",
		PageDetail: "You have used all that is allowed.",
	},
	{
		Reason: core.ReasonBusy, Status: 429, Title: "Busy",
		Detail: "Too many of these are running at once. Try again in a moment.", Type: documentedTypes + "busy",
		PageTitle:  "Busy",
		PageDetail: "Too much is going on at the moment.",
	},
	{
		Reason: core.ReasonDuplicate, Status: 409, Title: "Already Done",
		Detail: "You have already done this.", Type: documentedTypes + "duplicate",
		PageTitle:  "Already done",
		PageDetail: "You have already done this, as often as is allowed.",
	},
	{
		Reason: core.ReasonNotOpen, Status: 409, Title: "Not Open",
		Detail: "This is not open.", Type: documentedTypes + "not_open",
		PageTitle:  "Not open",
		PageDetail: "This is not open.",
	},
	{
		Reason: core.ReasonClosed, Status: 409, Title: "Closed",
		Detail: "This is closed.", Type: documentedTypes + "closed",
		PageTitle:  "Closed",
		PageDetail: "This is closed.",
	},
	{
		Reason: core.ReasonGone, Status: 409, Title: "Reservation Over",
		Detail: "The reservation is over.", Type: documentedTypes + "gone",
		PageTitle:  "Reservation over",
		PageDetail: "Your reservation no longer exists. Please begin again.",
	},
	{
		Reason: core.ReasonInProgress, Status: 409, Title: "In Progress", Expected: true,
		Detail: "The same request is in progress. Try again in a moment.", Type: documentedTypes + "in_progress",
		PageTitle:  "In progress",
		PageDetail: "Your request is being worked on. Wait a moment before you try again.",
	},
	{
		Reason: core.ReasonConflict, Status: 422, Title: "Operation ID In Use",
		Detail: "This operation ID belongs to a different request.", Type: documentedTypes + "conflict",
		PageTitle: "Sent before",
		PageDetail: "This was sent before, with different content. Reload the page that " +
			"you came from, and send it again.",
	},
	{
		Reason: core.ReasonReplayed, Status: 200, Title: "Already Done", Expected: true,
		Detail: "This request was already completed.", Type: documentedTypes + "replayed",
		PageTitle:  "Already done",
		PageDetail: "This was done before. Nothing was done twice.",
	},
	{
		Reason: core.ReasonDeferred, Status: 202, Title: "Accepted", Expected: true,
		Detail:     "The request runs later. The Location field says where its answer will be.",
		Type:       documentedTypes + "deferred",
		PageTitle:  "Accepted",
		PageDetail: "Your request is waiting for its turn. It runs by itself, and its answer is kept for you.",
	},
	{
		Reason: core.ReasonNotReady, Status: 503, Title: "Not Ready",
		Detail: "This is not ready.", Type: documentedTypes + "not_ready",
		PageTitle:  "Not ready",
		PageDetail: "This is not available at the moment.",
	},
	{
		Reason: core.ReasonUnconfirmed, Status: 503, Title: "Not Confirmed",
		Detail:     "This has not been confirmed. Try again, as the same operation.",
		Type:       documentedTypes + "unconfirmed",
		PageTitle:  "Not confirmed",
		PageDetail: "This could not be confirmed. Please send it again.",
	},
	{
		Reason: core.ReasonDayRolled, Status: 503, Title: "New Period",
		Detail: "A new period is just beginning. Try again.", Type: documentedTypes + "day_rolled",
		PageTitle:  "Just a moment",
		PageDetail: "A new period is just beginning.",
	},
}

// StandardAnswer returns the answer to a reason that several guards share, such as ReasonDuplicate. For other
// reasons ok is false.
func StandardAnswer(reason core.Reason) (answer Answer, ok bool) {
	i := slices.IndexFunc(standardAnswers, func(a Answer) bool { return a.Reason == reason })
	if i < 0 {
		return Answer{}, false
	}
	return standardAnswers[i], true
}

// StandardAnswers returns the standard answers to the reasons, for a [Description]. It panics on a reason
// without a standard answer: the guard then needs an [Answer] of its own.
func StandardAnswers(reasons ...core.Reason) []Answer {
	answers := make([]Answer, 0, len(reasons))
	for _, reason := range reasons {
		answer, ok := StandardAnswer(reason)
		if !ok {
			panic(fmt.Sprintf("core: the reason %q has no standard answer: describe it with an Answer",
				reason))
		}
		answers = append(answers, answer)
	}
	return answers
}

// Operation is something that an operator can do with a guard, by name.
type Operation struct {
	// Name is the operation's name, in lower-case letters and hyphens, such as "peek".
	Name string
	// Changes reports whether the operation changes anything, or shows data that only operators with the right
	// to change may see, such as the contents of a task. It is recorded.
	Changes bool
	// Reversible reports whether another operation takes the change back, or it does no harm. Pages ask for a
	// confirmation of all other changes.
	Reversible bool
	// Fields are the operation's parameters.
	Fields []Field
	// Run performs the operation. Its result is shown as JSON, and a [Decision] by its figures. The operator
	// sees the text of an error of kind core.ErrInvalid, ErrNotFound or ErrNotNow. For any other error they
	// see only that the operation failed. Run may be called concurrently.
	Run func(ctx context.Context, in Input) (any, error)
}

// Field is a parameter of an [Operation], given as text.
type Field struct {
	// Name is the field's name, such as "actor".
	Name string
	// Kind is the kind of text. The zero value is FieldText.
	Kind FieldKind
	// Required reports whether the field must be present and not empty.
	Required bool
	// Hint says what to enter, with an example: "as the rule's Who has it, such as 203.0.113.7". Empty: pages
	// have hints for the fields that [Input.Attempt] reads, and for each Kind.
	Hint string
	// Caller reports that the field is who performs the operation. The operator's page fills it in with the name
	// that Authorize returned, whatever was sent.
	Caller bool
	// Choices are the values that pages offer, in their order. Any other text is read as well. Nil: any text.
	Choices []string
}

// FieldKind is how the text of a [Field] is parsed.
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

// Input is the input of an operation, as [Operation.Read] parsed it. Fields that were left out are zero.
type Input struct {
	texts  map[string]string
	values map[string]any
}

// Text returns the text of a field, as it was given.
func (in Input) Text(name string) string { return in.texts[name] }

// Number returns a field of kind FieldNumber.
func (in Input) Number(name string) int64 { return valueOf[int64](in, name) }

// Duration returns a field of kind FieldDuration.
func (in Input) Duration(name string) time.Duration { return valueOf[time.Duration](in, name) }

// Percent returns a field of kind FieldPercent.
func (in Input) Percent(name string) float64 { return valueOf[float64](in, name) }

// Flag returns a field of kind FieldFlag.
func (in Input) Flag(name string) bool { return valueOf[bool](in, name) }

// Attempt returns an attempt made of the fields actor, resource, item and id, as far as they were given.
func (in Input) Attempt() core.Attempt {
	return core.Attempt{Actor: in.Text("actor"), Resource: in.Text("resource"), Item: in.Text("item"),
		ID: in.Text("id")}
}

func valueOf[T any](in Input, name string) T {
	value, _ := in.values[name].(T)
	return value
}

// Read parses the texts given for the operation's fields. It returns an [core.ErrInvalid] with a text for the
// operator when a required field is missing, a field is unknown, or a text cannot be parsed.
func (o Operation) Read(texts map[string]string) (Input, error) {
	in := Input{texts: texts, values: map[string]any{}}
	known := map[string]bool{}
	for _, field := range o.Fields {
		known[field.Name] = true
		text := texts[field.Name]
		switch {
		case text == "" && field.Required:
			return Input{}, NewError(field.Name+" is missing", core.ErrInvalid)
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
			return Input{}, NewError(fmt.Sprintf("there is no field %.100q", name), core.ErrInvalid)
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
		return nil, NewError(fmt.Sprintf("%s is not %s: %.100q", f.Name, what, text), core.ErrInvalid)
	}
	return value, nil
}

// Detail is a figure of a decision that its guard wants clients to see, in denials too: a member of the
// response's body.
type Detail struct {
	// Name is the member's name, such as "choices". Names that RFC 9457 defines, "reason" and
	// "violated-policies" are taken.
	Name string
	// Value is written as JSON.
	Value any
}

// DetailsOf returns the details that a decision has for clients. A guard provides them by a claim with a
// method Details.
func DetailsOf(d core.Decision) []Detail {
	if c, ok := core.ClaimOf[interface{ Details() []Detail }](d); ok {
		return c.Details()
	}
	return nil
}

// TextOf returns a duration as operators see it, rounded up to a useful unit: 59m29s, 1.5s, 20ms.
// time.ParseDuration reads it.
func TextOf(d time.Duration) string {
	unit := time.Millisecond
	if d >= time.Minute {
		unit = time.Second
	}
	return (d + unit - 1).Truncate(unit).String()
}
