package docs_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents returns the paths of all Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	files := filesOf(t, ".", func(path string) bool { return strings.HasSuffix(path, ".md") })
	if len(files) < 20 {
		t.Fatalf("found only %q", files)
	}
	return files
}

// filesOf returns the files of a folder and the folders below it that are wanted. It leaves out what begins
// with a dot, and testdata.
func filesOf(t *testing.T, folder string, wanted func(path string) bool) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(entry.Name(), ".") && path != "."
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || entry.Name() == "testdata"):
			return fs.SkipDir
		case !entry.IsDir() && !hidden && wanted(filepath.ToSlash(path)):
			files = append(files, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// fence is a block of code in Markdown: its indent, its language and its text.
var fence = regexp.MustCompile("(?ms)^([ \\t]*)```(\\w*)[^\\n]*\\n(.*?)^[ \\t]*```[ \\t]*$")

// TestDocumentsShowCodeThatCompiles: each block of Go in a document either stands in a file that go vet
// compiles, whatever its indent, or is a whole file that compiles as it is. Files to quote are those of
// docs/examples and examples, and the files named example_*test.go.
func TestDocumentsShowCodeThatCompiles(t *testing.T) {
	compiled := map[string]string{} // what files have, by their names
	for _, file := range filesOf(t, ".", func(path string) bool {
		quoted := strings.HasPrefix(path, "examples/") || strings.HasPrefix(path, "docs/examples/") ||
			strings.HasPrefix(filepath.Base(path), "example_")
		return strings.HasSuffix(path, ".lua") || quoted && strings.HasSuffix(path, ".go")
	}) {
		compiled[file] = "\n" + dedent(read(t, file)) + "\n"
	}
	programs, blocks := map[string]string{}, 0 // the programs by the place where they stand
	for _, document := range documents(t) {
		for i, block := range fence.FindAllStringSubmatch(read(t, document), -1) {
			language, code := block[2], dedent(block[3])
			if language != "go" && language != "lua" {
				continue
			}
			blocks++
			file := ""
			for name, text := range compiled {
				if document == readmes[1] { // its comments differ
					text, code = withoutComments(text), withoutComments(code)
				}
				if filepath.Ext(name) == "."+language && strings.Contains(text, "\n"+code) {
					file = name
				}
			}
			place := fmt.Sprintf("%s, block %d", document, i+1)
			switch {
			case file != "":
				t.Logf("%s is in %s", place, file)
			case language == "go" && regexp.MustCompile(`(?m)\A(//.*\n)*\n?package \w+$`).MatchString(code):
				t.Logf("%s is a whole file", place)
				programs[place] = block[3]
			default:
				t.Errorf("%s: this is no file of its own, and in no file of docs/examples, examples or lua, and "+
					"in no example_*test.go:\n%s", document, block[3])
			}
		}
	}
	if blocks < 30 {
		t.Errorf("found only %d blocks", blocks)
	}
	vet(t, programs)
}

func dedent(code string) string {
	return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(code, "")
}

// vet compiles whole files, each as a package of this module of its own, without writing into the module.
func vet(t *testing.T, programs map[string]string) {
	t.Helper()
	if len(programs) == 0 {
		return
	}
	folder, err := filepath.Abs("docs")
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	args, places, temporary := []string{"vet", "-overlay", ""}, "", t.TempDir()
	for place, code := range programs {
		name := fmt.Sprintf("shown%d", len(overlay.Replace))
		file := filepath.Join(temporary, name+".go")
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(folder, name, "main.go")] = file
		args = append(args, "./docs/"+name)
		places += fmt.Sprintf("docs/%s is %s\n", name, place)
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	args[2] = filepath.Join(temporary, "overlay.json")
	if err := os.WriteFile(args[2], text, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s%s", err, places, output)
	}
}

// TestDocumentsLinkToWhatIsThere: files and headings that the documents link to exist, and so do those that
// they name by the address of the repository.
func TestDocumentsLinkToWhatIsThere(t *testing.T) {
	const repository = "https://github.com/gatehouse-go/gatehouse"
	known := map[string]map[string]bool{} // the anchors of each page
	for _, document := range documents(t) {
		for _, link := range linksOf(read(t, document)) {
			target, anchor, _ := strings.Cut(link, "#")
			inside := strings.TrimPrefix(target, repository)
			switch {
			case inside == "" && strings.HasPrefix(target, repository):
				target = "README.md"
			case inside != target && regexp.MustCompile(`^/(blob|tree)/main/`).MatchString(inside):
				target = strings.SplitN(inside, "/", 4)[3]
			case regexp.MustCompile(`^[a-z]+:`).MatchString(target):
				continue // another site's
			case target == "":
				target = document
			default:
				target = filepath.ToSlash(filepath.Join(filepath.Dir(document), target))
			}
			if about, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", document, err)
				continue
			} else if about.IsDir() && anchor != "" {
				target += "/README.md" // which the page of a folder shows
			}
			if anchor == "" || !strings.HasSuffix(target, ".md") {
				continue
			}
			if known[target] == nil {
				known[target] = anchors(read(t, target))
			}
			if !known[target][anchor] {
				t.Errorf("%s: %s has no heading for #%s", document, target, anchor)
			}
		}
	}
}

// linksOf returns what a document links to, in all forms of links that Markdown and HTML have. Code has
// brackets of its own.
func linksOf(text string) (links []string) {
	text = fence.ReplaceAllString(text, "")
	text = regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "")
	for _, form := range []string{`\]\(\s*<?([^)\s>]+)`, `(?m)^\s*\[[^\]]+\]:\s*(\S+)`, `(?:href|src|srcset)="([^"]+)"`} {
		for _, link := range regexp.MustCompile(form).FindAllStringSubmatch(text, -1) {
			links = append(links, link[1])
		}
	}
	return links
}

// TestDocumentsNameTargetsOfMake: each `make target` in a document is one of the Makefile.
func TestDocumentsNameTargetsOfMake(t *testing.T) {
	makefile, found := read(t, "Makefile"), 0
	for _, document := range documents(t) {
		text := read(t, document)
		named := regexp.MustCompile("`make ([a-z-]+)").FindAllStringSubmatch(text, -1)
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			named = append(named, regexp.MustCompile(`(?m)^(?:\$ )?make ([a-z-]+)`).FindAllStringSubmatch(block[3], -1)...)
		}
		for _, target := range named {
			found++
			if !strings.Contains(makefile, "\n"+target[1]+": ") {
				t.Errorf("%s: there is no make %s", document, target[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d", found)
	}
}

// anchors are what links into a document can name: its headings in the form that they get on a web page, and
// the IDs that it sets itself.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	text = fence.ReplaceAllString(text, "")
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		shown := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading[1], "$1")
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(shown), "")
		anchor := strings.ReplaceAll(kept, " ", "-")
		if all[anchor] {
			for n := 1; all[anchor]; n++ {
				anchor = fmt.Sprintf("%s-%d", strings.ReplaceAll(kept, " ", "-"), n)
			}
		}
		all[anchor] = true
	}
	for _, id := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(text, -1) {
		all[id[1]] = true
	}
	return all
}
