// Package shared keeps the blocks that several scripts share equal. A script cannot include another one, so
// each script has the text of the block between two comments, at any indent:
//
//	-- shared NAME
//	...
//	-- end NAME
//
// The scripts lie in a folder per guard. The only source of a block is the file shared/NAME.lua in the
// guard's folder, or beside the folders where scripts of several guards have the block: a head, an empty
// line, and the text. The head is a comment that says what the block does, and ends with lines that are
// compared with the text:
//
//	-- needs: now, closes   variables of the script that the text reads or assigns
//	-- gives: ends          what it declares or assigns for what follows
//	-- returns: yes         it may return from the script, or from the function in which it stands
//
// A line that would be empty is left out. Run "go generate ./lua" after a change of a source, or after
// writing the two comments into a script.
package shared

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// marker matches the comments around a block: the indent, "shared" or "end", and the name.
var marker = regexp.MustCompile(`^(\s*)-- (shared|end) (\w+)$`)

// Update returns the scripts with each block replaced by the text of its source, and every mistake, with file
// and line. Scripts and sources are keyed by path, such as votes/vote.lua and votes/shared/vote_rules.lua. A
// script with a mistake is returned unchanged.
func Update(scripts, sources map[string]string) (map[string]string, error) {
	var mistakes []error
	blocks := make(map[string]*block, len(sources))
	for _, file := range slices.Sorted(maps.Keys(sources)) {
		b, err := newBlock(file, sources[file])
		if err != nil {
			mistakes = append(mistakes, err)
		}
		blocks[file] = b
	}
	updated := make(map[string]string, len(scripts))
	for _, file := range slices.Sorted(maps.Keys(scripts)) {
		text, places, err := update(file, scripts[file], blocks)
		for _, b := range places {
			b.users[file] = true
		}
		if err == nil {
			err = checkScript(file, text, places)
		}
		if err != nil {
			mistakes = append(mistakes, err)
			text = scripts[file]
		}
		updated[file] = text
	}
	for _, file := range slices.Sorted(maps.Keys(sources)) {
		if err := blocks[file].unused(); err != nil && len(mistakes) == 0 {
			return updated, err
		}
	}
	return updated, errors.Join(mistakes...)
}

// update returns one script with its blocks replaced by their sources, and where they are. The folder's own
// block of a name comes before the one of all folders.
func update(file, script string, blocks map[string]*block) (string, []place, error) {
	var out strings.Builder
	var places []place
	open, line := "", 0
	wrong := func(text string, args ...any) (string, []place, error) {
		return "", places, fmt.Errorf("%s:%d: block %s", file, line, fmt.Sprintf(text, args...))
	}
	for text := range strings.Lines(script) {
		line++
		m := marker.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
		switch {
		case m == nil && open == "":
			out.WriteString(text)
		case m == nil: // the text that the source replaces
		case m[2] == "end" && m[3] == open:
			open = ""
			places[len(places)-1].ends = strings.Count(out.String(), "\n") + 1
			out.WriteString(text)
		case m[2] == "end":
			return wrong("%s ends without a beginning", m[3])
		case open != "":
			return wrong("%s begins inside block %s", m[3], open)
		default:
			open = m[3]
			source := "shared/" + open + ".lua"
			b, known := blocks[path.Join(path.Dir(file), source)]
			if !known {
				b, known = blocks[source]
			}
			if !known {
				return wrong("%s is unknown: there is no %s, neither in the script's folder nor above it", open, source)
			}
			out.WriteString(text)
			places = append(places, place{block: b, begins: strings.Count(out.String(), "\n")})
			out.WriteString(indent(m[1], b.text))
		}
	}
	if open != "" {
		return wrong("%s does not end", open)
	}
	return out.String(), places, nil
}

// indent puts space before each line of text that is not empty.
func indent(space, text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			out.WriteString(space)
		}
		out.WriteString(line)
	}
	return out.String()
}

// Read returns the scripts in the folders below root, and the sources of their blocks, as Update takes them.
func Read(root string) (scripts, sources map[string]string, err error) {
	scripts, sources = make(map[string]string), make(map[string]string)
	for _, pattern := range []string{"*/*.lua", "*/shared/*.lua"} {
		files, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return nil, nil, err
			}
			if path.Base(path.Dir(file)) != "shared" {
				scripts[file] = string(text)
				continue
			}
			sources[file] = string(text)
		}
	}
	if len(scripts) == 0 {
		return nil, nil, fmt.Errorf("no .lua files in the folders of %s: run this in the folder lua", root)
	}
	return scripts, sources, nil
}
