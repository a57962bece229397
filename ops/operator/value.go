package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gatehouse-go/gatehouse/core"
)

// pair is a name and a text.
type pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// value is a result as people read it: pairs, a table, or a text.
type value struct {
	Pairs []member
	Head  []string
	Rows  [][]pair // with the name of the column, for narrow screens
	Text  string
}

type member struct {
	Name  string
	Value value
}

// shownMost is how many characters of a text are shown.
const shownMost = 120

// shownText returns a client's text in readable form: unprintable characters are escaped as in Go, and long
// texts are cut.
func shownText(text string) string {
	length := len(text)
	if length > 4*shownMost {
		text = text[:4*shownMost]
		for i := 0; i < utf8.UTFMax && !utf8.ValidString(text[len(text)-1:]); i++ {
			text = text[:len(text)-1] // no half of a character
		}
	}
	isHidden := func(c rune) bool { return !unicode.IsPrint(c) }
	isPlain := utf8.ValidString(text) && !strings.ContainsFunc(text, isHidden)
	if !isPlain {
		text = strconv.Quote(text)
		text = text[1 : len(text)-1]
	}
	if runes := []rune(text); len(runes) > shownMost || length > len(text) && isPlain {
		return fmt.Sprintf("%s… (%d bytes)", string(runes[:min(len(runes), shownMost)]), length)
	}
	return text
}

// sendable reports whether a form of a page sends the text as it is.
func sendable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0
}

// givenOf returns the fields that have a text, by their names.
func givenOf(a *Action) (all []pair) {
	for _, name := range slices.Sorted(maps.Keys(a.Fields)) {
		if text := a.Fields[name]; text != "" {
			all = append(all, pair{name, text})
		}
	}
	return all
}

// Unsendable reports whether the form would send other values than the given ones.
func (f *form) Unsendable() bool {
	return slices.ContainsFunc(givenOf(f.Asked), func(p pair) bool { return !sendable(p.Value) })
}

// sentenceOf says what came of an action.
func sentenceOf(result any, a Action) string {
	switch r := result.(type) {
	case nil:
		return "Done."
	case core.Decision:
		return sentenceOfDecision(r)
	}
	if !a.Changes {
		return ""
	}
	return "Done:"
}

func sentenceOfDecision(d core.Decision) string {
	left := ""
	if d.Limit > 0 {
		left = fmt.Sprintf(" %s of %s left", grouped(max(d.Remaining, 0)), grouped(d.Limit))
		if d.Window > 0 {
			left += " in each " + spoken(d.Window)
		}
		left += "."
	} else if d.Allowed {
		left = " No limit applies."
	}
	if d.Allowed {
		return "Allowed." + left
	}
	text := "Refused: " + reasonText(d.Reason) + "." + left
	if d.RetryAfter > 0 {
		text += " Again in " + spoken(d.RetryAfter) + "."
	}
	return text
}

// reasonText is a reason in words.
func reasonText(reason core.Reason) string { return strings.ReplaceAll(string(reason), "_", " ") }

// spoken returns a duration with one unit or two: 45 s, 12 min, 1 h 5 min, 3 days.
func spoken(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + " ms"
	case d < 2*time.Minute:
		return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10) + " s"
	case d <= 59*time.Minute:
		return strconv.FormatInt(int64((d+time.Minute-1)/time.Minute), 10) + " min"
	case d < 48*time.Hour:
		d = (d + time.Minute - 1).Truncate(time.Minute)
		h, m := int64(d/time.Hour), int64(d%time.Hour/time.Minute)
		if m == 0 {
			return fmt.Sprintf("%d h", h)
		}
		return fmt.Sprintf("%d h %d min", h, m)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// grouped writes a number with commas: 12,345.
func grouped[N int64 | uint64](n N) string { return groupedText(fmt.Sprint(n)) }

func groupedText(text string) string {
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// valueOf returns a result as people read it.
func valueOf(result any) (value, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return value{}, err
	}
	return read(text), nil
}

// read reads a JSON text, with members in their order.
func read(text json.RawMessage) value {
	text = bytes.TrimSpace(text)
	switch {
	case len(text) > 0 && text[0] == '{':
		return value{Pairs: members(text)}
	case len(text) > 0 && text[0] == '[':
		return readList(text)
	}
	return value{Text: plain(text)}
}

// members returns the members of a JSON object.
func members(text json.RawMessage) (all []member) {
	d := json.NewDecoder(bytes.NewReader(text))
	_, _ = d.Token() // the text is from json.Marshal
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return all
		}
		var inner json.RawMessage
		if err := d.Decode(&inner); err != nil {
			return all
		}
		all = append(all, member{shownText(strings.ReplaceAll(fmt.Sprint(name), "_", " ")), read(inner)})
	}
	return all
}

// readList reads an array: as a table if its elements are objects.
func readList(text json.RawMessage) (v value) {
	var all []json.RawMessage
	_ = json.Unmarshal(text, &all) // from json.Marshal
	var texts []string
	for _, element := range all {
		if element[0] != '{' {
			texts = append(texts, plain(element))
			continue
		}
		row := make([]pair, len(v.Head))
		for i, name := range v.Head {
			row[i].Name = name
		}
		for _, m := range members(element) {
			at := slices.Index(v.Head, m.Name)
			if at < 0 {
				at = len(v.Head)
				v.Head, row = append(v.Head, m.Name), append(row, pair{Name: m.Name})
			}
			row[at].Value = m.Value.String()
		}
		v.Rows = append(v.Rows, row)
	}
	for i, row := range v.Rows { // those from before a column was known
		for _, name := range v.Head[len(row):] {
			v.Rows[i] = append(v.Rows[i], pair{Name: name})
		}
	}
	if v.Text = strings.Join(texts, ", "); len(all) == 0 {
		v.Text = "none"
	}
	return v
}

// String returns the value in one line.
func (v value) String() string {
	if len(v.Pairs) == 0 {
		return v.Text
	}
	texts := make([]string, len(v.Pairs))
	for i, m := range v.Pairs {
		texts[i] = m.Name + " " + m.Value.String()
	}
	return strings.Join(texts, ", ")
}

// plain returns a JSON scalar as people write it.
func plain(text json.RawMessage) string {
	var s string
	switch {
	case json.Unmarshal(text, &s) == nil:
		return s
	case string(text) == "true":
		return "yes"
	case string(text) == "false":
		return "no"
	}
	return string(text)
}
