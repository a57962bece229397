// Package shared keeps the blocks that several scripts share equal. A script cannot include another one, so
// each script has the text of the block between two comments, at any indent:
//
//	-- shared NAME
//	...
//	-- end NAME
//
// The only source of a block is the file shared/NAME.lua beside the scripts: a comment that says what the
// block needs and gives, an empty line, and the text. Run "go generate ./lua" after a change of a source, or
// after writing the two comments into a script.
package shared

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// marker matches the comments around a block: the indent, "shared" or "end", and the name.
var marker = regexp.MustCompile(`^(\s*)-- (shared|end) (\w+)$`)

// Update returns the scripts with each block replaced by the text of its source, and every mistake: an
// unknown block, one that does not end, an end without a beginning, and a source that fewer than two scripts
// use. Scripts are keyed by file name, sources by block name. A script with a mistake is returned unchanged.
func Update(scripts, sources map[string]string) (map[string]string, error) {
	var mistakes []error
	updated := make(map[string]string, len(scripts))
	users := make(map[string]int, len(sources))
	for _, file := range slices.Sorted(maps.Keys(scripts)) {
		text, names, err := update(scripts[file], sources)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", file, err))
			text = scripts[file]
		}
		updated[file] = text
		for name := range names {
			users[name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		switch {
		case strings.TrimSpace(sources[name]) == "":
			mistakes = append(mistakes,
				fmt.Errorf("block %s has no text: it follows the first empty line of its file", name))
		case users[name] < 2:
			mistakes = append(mistakes,
				fmt.Errorf("block %s is used by %d scripts: a shared block needs two or more", name,
					users[name]))
		}
	}
	return updated, errors.Join(mistakes...)
}

// update returns one script with its blocks replaced by their sources, and the names of the blocks.
func update(script string, sources map[string]string) (string, map[string]bool, error) {
	var out strings.Builder
	names, open := make(map[string]bool), ""
	for line := range strings.Lines(script) {
		m := marker.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		switch {
		case m == nil && open == "":
			out.WriteString(line)
		case m == nil: // the text that the source replaces
		case m[2] == "end" && m[3] == open:
			open = ""
			out.WriteString(line)
		case m[2] == "end":
			return "", names, fmt.Errorf("block %s ends without a beginning", m[3])
		case open != "":
			return "", names, fmt.Errorf("block %s begins inside block %s", m[3], open)
		default:
			source, known := sources[m[3]]
			if !known {
				return "", names, fmt.Errorf("block %s is unknown: there is no shared/%s.lua", m[3], m[3])
			}
			open = m[3]
			names[open] = true
			out.WriteString(line)
			out.WriteString(indent(m[1], source))
		}
	}
	if open != "" {
		return "", names, fmt.Errorf("block %s does not end", open)
	}
	return out.String(), names, nil
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

// Read returns the scripts in a folder by file name, and the sources in its subfolder shared by block name.
func Read(folder string) (scripts, sources map[string]string, err error) {
	scripts, err = read(folder)
	files, sharedErr := read(filepath.Join(folder, "shared"))
	if err := cmp.Or(err, sharedErr); err != nil {
		return nil, nil, err
	}
	sources = make(map[string]string, len(files))
	for file, text := range files {
		_, block, _ := strings.Cut(text, "\n\n") // the comment before it describes the block
		sources[strings.TrimSuffix(file, ".lua")] = block
	}
	return scripts, sources, nil
}

func read(folder string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.lua"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no .lua files in %s: %w", folder, cmp.Or(err, os.ErrNotExist))
	}
	texts := make(map[string]string, len(paths))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts[filepath.Base(path)] = string(text)
	}
	return texts, nil
}
