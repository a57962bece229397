package config

import (
	"fmt"
	"strings"

	"github.com/gatehouse-go/gatehouse/ops/config/internal/rulefile"
)

// Error lists everything that is wrong with a file, in the order of its lines. It has at least one Mistake.
type Error struct {
	Mistakes []Mistake
}

// Error returns one line per mistake.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// Mistake is one thing that is wrong with a file.
type Mistake struct {
	// File is the name of the file, as it was given.
	File string `json:"file"`
	// Line and Column are its place, counted from 1, columns in characters. Column is 0 where only the line is
	// known, and Line is 0 where the file could not be read at all.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path names the value, such as guards.api.sliding_window.limits. It is empty for a mistake of the whole
	// file.
	Path string `json:"path,omitempty"`
	// Text names the found and the allowed values.
	Text string `json:"text"`
}

// String returns the mistake as compilers print theirs: file:line:column: path: text.
func (m Mistake) String() string {
	var b strings.Builder
	b.WriteString(m.File)
	if m.Line > 0 {
		fmt.Fprintf(&b, ":%d", m.Line)
	}
	if m.Column > 0 {
		fmt.Fprintf(&b, ":%d", m.Column)
	}
	b.WriteString(": ")
	if m.Path != "" {
		b.WriteString(m.Path + ": ")
	}
	b.WriteString(m.Text)
	return b.String()
}

// errorOf returns mistakes as an error.
func errorOf(mistakes ...rulefile.Mistake) *Error {
	all := make([]Mistake, len(mistakes))
	for i, m := range mistakes {
		all[i] = Mistake(m)
	}
	return &Error{all}
}
