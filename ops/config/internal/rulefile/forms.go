package rulefile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/core/kit"
)

// form is what a value in a file may be: how it is read, and what the JSON Schema says of it. Both are in one
// place, so that they cannot part.
type form[T any] struct {
	schema schema
	// read returns the value. ok is false if the value has mistakes, which read has reported.
	read func(d *reader, at string, n *yaml.Node) (value T, ok bool)
}

// scalar returns the text of a value that is no list and no mapping, and has one of the tags.
func (d *reader) scalar(at string, n *yaml.Node, want string, tags ...string) (string, bool) {
	if n.Kind == yaml.ScalarNode && slices.Contains(tags, n.ShortTag()) {
		return n.Value, true
	}
	d.mistake(at, n, "found %s: want %s", found(n), want)
	return "", false
}

// found describes a value.
func found(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "nothing"
	case n.ShortTag() == "!!int", n.ShortTag() == "!!float":
		return "the number " + n.Value
	case n.ShortTag() == "!!str":
		return quote(n.Value)
	}
	return n.Value
}

// textual is the tags of values that are text without quotes. A time is text to us.
var textual = []string{"!!str", "!!timestamp"}

// text is any text that is not empty.
func text(want string) form[string] {
	return form[string]{schema{"type": "string", "minLength": 1},
		func(d *reader, at string, n *yaml.Node) (string, bool) {
			if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" && !slices.Contains(textual, n.ShortTag()) {
				d.mistake(at, n, "found %s: want %s, which is text: put it in quotes", found(n), want)
				return "", false
			}
			value, ok := d.scalar(at, n, want, textual...)
			if ok && value == "" {
				d.mistake(at, n, "empty: want %s", want)
				return "", false
			}
			return value, ok
		}}
}

// parsed is text that a function reads.
func parsed[T any](want string, sample schema, parse func(string) (T, error)) form[T] {
	return form[T]{sample, func(d *reader, at string, n *yaml.Node) (value T, ok bool) {
		s, ok := d.scalar(at, n, want, textual...)
		if !ok {
			return value, false
		}
		value, err := parse(s)
		if err != nil {
			d.mistake(at, n, "%v", err)
			return value, false
		}
		return value, true
	}}
}

// boolean is true or false.
func boolean() form[bool] {
	return form[bool]{schema{"type": "boolean"}, func(d *reader, at string, n *yaml.Node) (bool, bool) {
		s, ok := d.scalar(at, n, "true or false", "!!bool")
		return strings.EqualFold(s, "true"), ok
	}}
}

// whole is a whole number.
func whole[T ~int | ~int64](least, most T) form[T] {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	return form[T]{schema{"type": "integer", "minimum": least, "maximum": most},
		func(d *reader, at string, n *yaml.Node) (T, bool) {
			s, ok := d.scalar(at, n, want, "!!int")
			if !ok {
				return 0, false
			}
			value, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
			if err != nil || value < int64(least) || value > int64(most) {
				d.mistake(at, n, "found %.40s: want %s", s, want)
				return 0, false
			}
			return T(value), true
		}}
}

// percent is a number from 0 to 100.
func percent() form[float64] {
	const want = "a number from 0 to 100"
	return form[float64]{schema{"type": "number", "minimum": 0, "maximum": 100},
		func(d *reader, at string, n *yaml.Node) (float64, bool) {
			s, ok := d.scalar(at, n, want, "!!int", "!!float")
			if !ok {
				return 0, false
			}
			value, err := strconv.ParseFloat(s, 64)
			if err != nil || !(value >= 0 && value <= 100) { // NaN is neither
				d.mistake(at, n, "found %.40s: want %s", s, want)
				return 0, false
			}
			return value, true
		}}
}

// duration is a length of time as Go writes it.
func duration(least, most time.Duration) form[time.Duration] {
	want := fmt.Sprintf(`a duration from %v to %v, such as "90s", "15m" or "36h"`, least, most)
	return parsed(want, schema{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`},
		func(s string) (time.Duration, error) {
			value, err := time.ParseDuration(s)
			if err != nil || value < least || value > most || value%time.Millisecond != 0 {
				return 0, fmt.Errorf("found %s: want %s, in whole milliseconds", quote(s), want)
			}
			return value, nil
		})
}

// retention is how long something is kept.
func retention(least time.Duration) form[time.Duration] { return duration(least, kit.MaxTTL) }

// instant is a moment with its offset from UTC.
func instant() form[time.Time] {
	const want = `a time of RFC 3339, such as "2026-12-24T18:00:00+01:00"`
	return parsed(want, schema{"type": "string", "format": "date-time"}, func(s string) (time.Time, error) {
		value, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return value, fmt.Errorf("found %s: want %s", quote(s), want)
		}
		return value, nil
	})
}

// pointer is a form whose value may be left out.
func pointer[T any](f form[T]) form[*T] {
	return form[*T]{f.schema, func(d *reader, at string, n *yaml.Node) (*T, bool) {
		value, ok := f.read(d, at, n)
		return &value, ok
	}}
}

// choice is one of several words.
type choice[T any] struct {
	name  string
	value T
}

// oneOf is one of some words.
func oneOf[T any](choices ...choice[T]) form[T] {
	var names []string
	for _, c := range choices {
		names = append(names, c.name)
	}
	want := strings.Join(names, ", ")
	return parsed("one of "+want, schema{"enum": names}, func(s string) (value T, err error) {
		for _, c := range choices {
			if c.name == s {
				return c.value, nil
			}
		}
		return value, fmt.Errorf("%s", unknown("value", s, names))
	})
}

// namePattern is the pattern of names. Keys in Redis have the names of guards in them.
const namePattern = `^[A-Za-z0-9._-]{1,64}$`

// CheckName reports whether a guard, a list or a function can have the name.
func CheckName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// listOf is a list of values; a single value stands for a list of one where lone is set.
func listOf[T any](of form[T], lone bool) form[[]T] {
	s := schema{"type": "array", "items": of.schema, "minItems": 1}
	if lone {
		s = schema{"anyOf": []any{of.schema, s}}
	}
	return form[[]T]{s, func(d *reader, at string, n *yaml.Node) ([]T, bool) {
		if n.Kind != yaml.SequenceNode {
			if lone {
				value, ok := of.read(d, at, n)
				return []T{value}, ok
			}
			d.mistake(at, n, "found %s: want a list", found(n))
			return nil, false
		}
		if len(n.Content) == 0 {
			d.mistake(at, n, "an empty list: add an entry, or leave it out")
			return nil, false
		}
		all := true
		values := make([]T, 0, len(n.Content))
		for i, item := range n.Content {
			value, ok := of.read(d, fmt.Sprintf("%s[%d]", at, i), item)
			all = all && ok
			values = append(values, value)
		}
		return values, all
	}}
}

// atMost is a list that is not read if it is longer.
func atMost[T any](most int, of form[[]T]) form[[]T] {
	return form[[]T]{of.schema, func(d *reader, at string, n *yaml.Node) ([]T, bool) {
		if n.Kind == yaml.SequenceNode && len(n.Content) > most {
			d.mistake(at, n, "a list of %d: use at most %d", len(n.Content), most)
			return nil, false
		}
		return of.read(d, at, n)
	}}
}

// Named is a value under a name.
type Named[T any] struct {
	Name  string
	Value T
	at    string
	node  *yaml.Node // of the name
	ok    bool
}

// Mistake is a mistake in the value, of the file.
func (n Named[T]) Mistake(file, text string) Mistake {
	return Mistake{file, n.node.Line, n.node.Column, n.at, text}
}

// tableOf is a mapping of names to values. It has the values that have mistakes too, so that their names are
// known.
func tableOf[T any](what string, of form[T]) form[[]Named[T]] {
	s := schema{"type": "object", "additionalProperties": of.schema, "minProperties": 1,
		"propertyNames": schema{"pattern": namePattern}}
	return form[[]Named[T]]{s, func(d *reader, at string, n *yaml.Node) ([]Named[T], bool) {
		if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
			d.mistake(at, n, "found %s: want a mapping of names to %s", foundOrEmpty(n), what)
			return nil, false
		}
		if given := len(n.Content) / 2; given > maxEntries {
			d.mistake(at, n, "%d %s: use at most %d", given, what, maxEntries)
			return nil, false
		}
		all := true
		var entries []Named[T]
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			e := Named[T]{Name: key.Value, at: join(at, key.Value), node: key}
			if key.Kind != yaml.ScalarNode || !CheckName(key.Value) {
				d.mistake(at, key, "the name %s: want letters, digits, '.', '_' and '-', at most 64",
					quote(key.Value))
				all = false
			}
			e.Value, e.ok = of.read(d, e.at, n.Content[i+1])
			all = all && e.ok
			entries = append(entries, e)
		}
		return entries, all
	}}
}

func foundOrEmpty(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode {
		return "an empty mapping"
	}
	return found(n)
}

// field is a member of a mapping that becomes a T.
type field[T any] struct {
	name, doc string
	required  bool
	schema    schema
	set       func(d *reader, at string, n *yaml.Node, into *T) bool
}

// in is a field whose value is kept where of points to.
func in[T, V any](name, doc string, f form[V], of func(*T) *V) field[T] {
	return field[T]{name: name, doc: doc, schema: f.schema,
		set: func(d *reader, at string, n *yaml.Node, into *T) bool {
			value, ok := f.read(d, at, n)
			*of(into) = value
			return ok
		}}
}

// must makes a field a required one.
func must[T any](f field[T]) field[T] {
	f.required = true
	return f
}

// described is a schema with a description.
func described(doc string, s schema) schema {
	s = maps.Clone(s)
	s["description"] = doc
	return s
}

// object is a mapping with these fields. It may be left empty (null) where none is required.
func object[T any](fields ...field[T]) form[T] {
	var names, required []string
	properties := schema{}
	for _, f := range fields {
		properties[f.name] = described(f.doc, f.schema)
		names = append(names, f.name)
		if f.required {
			required = append(required, f.name)
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	} else {
		s["type"] = []string{"object", "null"}
	}
	return form[T]{s, func(d *reader, at string, n *yaml.Node) (value T, ok bool) {
		if n.Kind != yaml.MappingNode && (n.ShortTag() != "!!null" || len(required) > 0) {
			d.mistake(at, n, "found %s: want a mapping with %s", found(n), strings.Join(names, ", "))
			return value, false
		}
		ok = true
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			at := join(at, key.Value)
			which := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == key.Value })
			if which < 0 || key.Kind != yaml.ScalarNode {
				d.mistake(at, key, "%s", unknown("field", key.Value, names))
				ok = false
				continue
			}
			ok = fields[which].set(d, at, n.Content[i+1], &value) && ok
		}
		for _, name := range required {
			if child(n, name) == nil {
				d.mistake(at, n, "%s is missing: %s", name, properties[name].(schema)["description"])
				ok = false
			}
		}
		return value, ok
	}}
}

// child returns the value of a member of a mapping, or nil.
func child(n *yaml.Node, name string) *yaml.Node {
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}
