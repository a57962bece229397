// Package shared keeps the blocks that several scripts share equal. A script cannot include another one, so
// each script has the text of the block between two comments, at any indent:
//
//	-- shared NAME
//	...
//	-- end NAME
//
// The scripts lie in a folder per guard. The only source of a block is the file shared/NAME.lua in the
// guard's folder, or beside the folders where scripts of several guards have the block: a comment that says
// what the block needs and gives, an empty line, and the text. Run "go generate ./lua" after a change of a
// source, or after writing the two comments into a script.
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

// Update returns the scripts with each block replaced by the text of its source, and every mistake: an
// unknown block, one that does not end, an end without a beginning, and a source that fewer than two scripts
// use. Scripts are keyed by path, such as votes/vote.lua, and sources by the path of their block, such as
// votes/shared/rules or shared/clock. A script with a mistake is returned unchanged.
func Update(scripts, sources map[string]string) (map[string]string, error) {
	var mistakes []error
	updated := make(map[string]string, len(scripts))
	users := make(map[string]int, len(sources))
	for _, file := range slices.Sorted(maps.Keys(scripts)) {
		text, blocks, err := update(path.Dir(file), scripts[file], sources)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", file, err))
			text = scripts[file]
		}
		updated[file] = text
		for block := range blocks {
			users[block]++
		}
	}
	for _, block := range slices.Sorted(maps.Keys(sources)) {
		switch {
		case strings.TrimSpace(sources[block]) == "":
			mistakes = append(mistakes,
				fmt.Errorf("block %s has no text: it follows the first empty line of its file", block))
		case users[block] < 2:
			mistakes = append(mistakes,
				fmt.Errorf("block %s is used by %d scripts: a shared block needs two or more",
					block, users[block]))
		}
	}
	return updated, errors.Join(mistakes...)
}

// update returns one script with its blocks replaced by their sources, and the paths of the blocks. The
// folder's own block of a name comes before the one of all folders.
func update(folder, script string, sources map[string]string) (string, map[string]bool, error) {
	var out strings.Builder
	blocks, open := make(map[string]bool), ""
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
			return "", blocks, fmt.Errorf("block %s ends without a beginning", m[3])
		case open != "":
			return "", blocks, fmt.Errorf("block %s begins inside block %s", m[3], open)
		default:
			open = m[3]
			block := path.Join(folder, "shared", open)
			if _, own := sources[block]; !own {
				block = path.Join("shared", open)
			}
			source, known := sources[block]
			if !known {
				return "", blocks, fmt.Errorf("block %s is unknown: there is no shared/%s.lua, neither in the "+
					"script's folder nor above it", open, open)
			}
			blocks[block] = true
			out.WriteString(line)
			out.WriteString(indent(m[1], source))
		}
	}
	if open != "" {
		return "", blocks, fmt.Errorf("block %s does not end", open)
	}
	return out.String(), blocks, nil
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
			_, block, _ := strings.Cut(string(text), "\n\n") // the comment before it describes the block
			sources[strings.TrimSuffix(file, ".lua")] = block
		}
	}
	if len(scripts) == 0 {
		return nil, nil, fmt.Errorf("no .lua files in the folders of %s: run this in the folder lua", root)
	}
	return scripts, sources, nil
}
