package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// maxSize is the size of the largest file, in bytes.
	maxSize = 1 << 20
	// maxDepth is how many levels a file has at most.
	maxDepth = 40
	// maxValues is how many values a file has at most, and maxEntries how many guards, key functions, lists and
	// lists of rules, each. maxRules bounds the rules of all lists.
	maxValues  = 100_000
	maxEntries = 1000
	maxRules   = 5000
)

// ReadFile reads a file, but no more than the largest one has.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

// CheckEnd finds that the end of a file is missing: YAML cut behind a line is often YAML, with fewer rules.
// Its end mark, a line "..." with nothing but comments behind it, is the proof that nothing is. JSON ends
// with its brace.
func CheckEnd(file string, data []byte) *Mistake {
	if isJSON(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(data), " \t\r\n"), "\n")
	for i := len(lines) - 1; i > 0; i-- {
		line := strings.TrimSpace(lines[i])
		if lines[i] == line && line == "..." || lines[i] == "...\r" {
			return nil
		}
		if line != "" && line[0] != '#' {
			break
		}
	}
	const text = `the file does not end with a line "...", as one that is followed does: it may have been cut`
	return &Mistake{File: file, Line: len(lines), Text: text}
}

// document returns the root of a file, or nil if the file has mistakes that leave nothing to look at.
func (d *reader) document(data []byte) *yaml.Node {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !d.checkBytes(data) {
		return nil
	}
	root := d.parse(data)
	if before := len(d.mistakes); root == nil || !d.checkNodes("", root, 1) || len(d.mistakes) > before {
		return nil
	}
	return root
}

// parse returns the only value of a file, or nil.
func (d *reader) parse(data []byte) *yaml.Node {
	if isJSON(data) {
		return jsonDocument(data)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	root, err := next(decoder)
	switch {
	case errors.Is(err, io.EOF):
		d.mistakeAt(1, 1, "the file is empty: it needs guards and rules")
		return nil
	case err != nil:
		d.syntax(err)
		return nil
	}
	second, err := next(decoder)
	switch {
	case err == nil:
		d.mistakeAt(second.Line, second.Column, "a second document begins here: a file has one document")
	case !errors.Is(err, io.EOF):
		d.syntax(err)
	}
	if len(root.Content) != 1 {
		d.mistakeAt(1, 1, "the file is empty: it needs guards and rules")
		return nil
	}
	return root.Content[0]
}

// next parses the next document. The parser must not take the process down, whatever it is given.
func next(decoder *yaml.Decoder) (root *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, fmt.Errorf("yaml: the parser cannot read this: %v", p)
		}
	}()
	root = new(yaml.Node)
	return root, decoder.Decode(root)
}

// checkBytes finds what no text file has.
func (d *reader) checkBytes(data []byte) bool {
	if len(data) > maxSize {
		d.mistakeAt(0, 0, fmt.Sprintf("the file is larger than %d bytes", maxSize))
		return false
	}
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			d.mistakeAt(line, column, fmt.Sprintf("byte %#02x is not UTF-8: save the file as UTF-8", data[i]))
			return false
		case r == 0:
			d.mistakeAt(line, column, "a NUL byte: save the file as UTF-8 text")
			return false
		case r == '\n':
			line, column = line+1, 0
		}
		i += size
		column++
	}
	return true
}

var syntaxLine = regexp.MustCompile(`^line (\d+): `)

// syntax reports an error of the parser, which knows the line only.
func (d *reader) syntax(err error) {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if at := syntaxLine.FindStringSubmatch(text); at != nil {
		line, _ = strconv.Atoi(at[1]) // digits
		text = text[len(at[0]):]
	}
	d.mistakeAt(max(line, 1), 0, "not YAML or JSON: "+text)
}

// checkNodes finds what a file of rules must not have anywhere. Aliases can make a small file huge, and of a
// name that comes twice only one would count. It returns false when looking on makes no sense.
func (d *reader) checkNodes(at string, n *yaml.Node, depth int) bool {
	switch d.values++; {
	case d.values > maxValues:
		d.mistake(at, n, "more than %d values", maxValues)
		return false
	case depth > maxDepth:
		d.mistake(at, n, "nested deeper than %d levels", maxDepth)
		return false
	case n.Kind == yaml.AliasNode:
		d.mistake(at, n, "an alias (*): write the value out, or name a key function under keys and a list under "+
			"lists")
		return true
	case n.Anchor != "":
		d.mistake(at, n, "an anchor (&%s): leave it out, aliases are not supported", n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		d.mistake(at, n, "a tag (%s): leave it out", n.Tag)
	}
	seen := map[string]int{}
	for i, child := range n.Content {
		path := at
		if n.Kind == yaml.SequenceNode {
			path = fmt.Sprintf("%s[%d]", at, i)
		}
		if n.Kind == yaml.MappingNode {
			key := n.Content[i&^1]
			path = join(at, key.Value)
			if i%2 == 0 {
				if first, twice := seen[key.Value]; twice && key.Kind == yaml.ScalarNode {
					d.mistake(path, key, "%s comes twice: the first one is in line %d", quote(key.Value), first)
				}
				seen[key.Value] = key.Line
			}
		}
		if !d.checkNodes(path, child, depth+1) {
			return false
		}
	}
	return true
}

// join makes the path of a value inside another one.
func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
