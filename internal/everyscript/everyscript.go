// Package everyscript runs every script of the package lua, each with a few calls whose answers are known: by
// hand in the tests of lua, and on a Redis that the command gatehouse doctor looks at. The calls and their
// answers are in calls.txt.
package everyscript

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed calls.txt
var calls string

// Step is one call of a script.
type Step struct {
	Script     string // its name, as in lua.Names
	Keys, Args []string
	// Answer is what the script replies in this place, its elements joined by spaces. X stands for any number.
	Answer string
}

// IsChannel reports whether an argument is the name of a channel, which has the prefix that keys have.
func IsChannel(arg string) bool { return strings.HasSuffix(arg, ":changed") }

// Answered reports whether a text is the step's answer.
func (s Step) Answered(text string) bool {
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(s.Answer), "X", "[0-9]+") + "$"
	return regexp.MustCompile(pattern).MatchString(text)
}

// Text returns a reply as redis-cli prints it, its lines joined by spaces.
func Text(reply any) string {
	switch r := reply.(type) {
	case nil:
		return ""
	case []any:
		texts := make([]string, len(r))
		for i := range r {
			texts[i] = Text(r[i])
		}
		return strings.Join(texts, " ")
	}
	return fmt.Sprint(reply)
}

// Steps returns the steps in their order, all of which belong together: a step finds what earlier ones have
// left. Their keys have no prefix. Moments in them lie in 1970 or in 2100, so a key may stay until then:
// whatever runs the steps deletes the keys.
func Steps() (steps []Step) {
	names := map[string][]string{}
	for line := range strings.Lines(calls) {
		line = strings.TrimSuffix(line, "\n")
		switch call, answer, isCall := strings.Cut(line, " => "); {
		case line == "", strings.HasPrefix(line, "#"):
		case !isCall: // $name = a word, or several
			words := split(line, nil)
			names[words[0]] = words[2:]
		default:
			words := split(call, names)
			s := Step{Script: words[0], Keys: words[1:], Answer: strings.Trim(answer, "'")}
			if comma := slices.Index(words, ","); comma > 0 {
				s.Keys, s.Args = words[1:comma], words[comma+1:]
			}
			steps = append(steps, s)
		}
	}
	return steps
}

var word = regexp.MustCompile(`'[^']*'|\S+`)

// split returns the words of a line; a name stands for several.
func split(line string, names map[string][]string) (words []string) {
	for _, w := range word.FindAllString(line, -1) {
		if several, ok := names[w]; ok {
			words = append(words, several...)
		} else {
			words = append(words, strings.Trim(w, "'"))
		}
	}
	return words
}
