package docs_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// shell is a block of shell commands in a document, with what is above it.
var shell = regexp.MustCompile("(?ms)((?:^[ \\t]*<!-- not run: [^\\n]* -->\\n)?)^[ \\t]*```(?:sh|bash)\\n(.*?)^[ \\t]*```$")

// TestCommandsOfTheDocumentsAreThere: each command of a shell block, and each go command in a line, names
// what exists: a target of make, a package and its tests, a script. Other commands are in a block of
// TestACloneIsEnough, or under a comment that says why they cannot run. (Blocks of consoles run: see
// docs/examples.)
func TestCommandsOfTheDocumentsAreThere(t *testing.T) {
	found, inline := 0, regexp.MustCompile("`(go (?:run|test|install) \\./[a-z.][^`]*)`")
	for _, document := range documents(t) {
		for _, command := range inline.FindAllStringSubmatch(fence.ReplaceAllString(read(t, document), ""), -1) {
			found++
			if why := missing(t, ".", command[1]); why != "" {
				t.Errorf("%s: %s: %s", document, command[1], why)
			}
		}
		for _, block := range shell.FindAllStringSubmatch(read(t, document), -1) {
			if block[1] != "" || strings.Contains(block[2], "go mod edit -replace") {
				continue
			}
			folder := "."
			for line := range strings.Lines(strings.ReplaceAll(dedent(block[2]), "\\\n", " ")) {
				line, _, _ = strings.Cut(line, " #")
				for command := range strings.SplitSeq(strings.TrimSpace(line), " && ") {
					if into, is := strings.CutPrefix(command, "cd "); is {
						folder = filepath.Join(folder, into)
						continue
					}
					found++
					if why := missing(t, folder, command); why != "" {
						t.Errorf("%s: %s: %s", document, command, why)
					}
					t.Logf("%s: %s", document, command)
				}
			}
		}
	}
	if found < 25 {
		t.Errorf("found only %d commands", found)
	}
}

// missing says what a command names that is not there, "" if all is.
func missing(t *testing.T, folder, command string) string {
	t.Helper()
	words := strings.Fields(command)
	exists := func(places ...string) string {
		for _, place := range places {
			if _, err := os.Stat(place); err == nil {
				return ""
			}
		}
		return "there is no " + places[0]
	}
	switch words[0] {
	case "make":
		if !strings.Contains(read(t, "Makefile"), "\n"+words[1]+": ") {
			return "the Makefile has no such target"
		}
		return ""
	case "go":
		return missingFromModule(t, folder, words)
	case "redis-cli":
		if i := slices.Index(words, "--eval"); i >= 0 { // lua.TestByHand and that of the cookbook run them
			return exists(words[i+1], filepath.Join("lua", words[i+1]), filepath.Join("examples/cookbook", words[i+1]))
		}
		if slices.Contains([]string{"MEMORY", "INFO"}, words[1]) {
			return ""
		}
	case "curl":
		if strings.Contains(read(t, "examples/cookbook/README.md"), words[len(words)-1]) {
			return "" // the cookbook's TestCurlsOfTheREADME runs them
		}
	}
	if strings.HasPrefix(words[0], ".ci/") {
		return exists(words[0])
	}
	return "no test knows this command: put <!-- not run: why --> above the block"
}

// missingFromModule is missing for go test, run and install: the package, and the tests of -run.
func missingFromModule(t *testing.T, folder string, words []string) string {
	t.Helper()
	i := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "./") })
	if !slices.Contains([]string{"test", "run", "install"}, words[1]) || i < 0 {
		return "no test knows this command"
	}
	if words[i] == "./..." {
		return ""
	}
	path := filepath.Join(folder, words[i])
	if files, err := filepath.Glob(filepath.Join(path, "*.go")); err != nil || len(files) == 0 {
		return "there is no package " + path
	}
	if i := slices.Index(words, "-run"); i >= 0 {
		name, _, _ := strings.Cut(strings.Trim(words[i+1], "'"), "/")
		tests := slices.Collect(maps.Keys(functionsOf(t, path)))
		if !slices.ContainsFunc(tests, regexp.MustCompile(name).MatchString) {
			return "there is no such test"
		}
	}
	return ""
}

// TestACloneIsEnough runs the commands by which a reader makes a module of a clone: until a version is
// published they are the first that a reader types. go mod tidy, which would ask the network for what
// dependencies test with, and go run are replaced: the module gets the requirements of this one, and is
// built.
func TestACloneIsEnough(t *testing.T) {
	redistest.LeftToCI(t)
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "reader") // one for all: what one has compiled, the next needs not
	for _, document := range []string{"README.md", "README.zh-CN.md", "docs/getting-started.md"} {
		t.Run(document, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o750)); err != nil {
				t.Fatal(err)
			}
			text, commands := read(t, document), ""
			for _, block := range shell.FindAllStringSubmatch(text, -1) {
				if strings.Contains(block[2], "go mod edit -replace") {
					commands += block[2]
				}
			}
			if commands == "" {
				t.Fatal("it has no commands")
			}
			program := read(t, "examples/readme/first/main.go")
			tidy := `{ grep -A999 -m1 '^require (' "$ROOT/go.mod"; echo 'require github.com/gatehouse-go/gatehouse v0.0.0'; } ` +
				`>>go.mod && cp "$ROOT/go.sum" go.sum`
			build := "GOFLAGS=-mod=mod go build -o program ."
			commands = "set -eu\ngit() { ln -s \"$ROOT\" gatehouse; }\n" +
				"tidy() { printf %s \"$PROGRAM\" >main.go; " + tidy + "; }\n" + commands
			if !strings.Contains(commands, "go mod tidy && go run .\n") {
				commands += "go mod tidy && go run .\n" // which the page says in words
			}
			commands = strings.ReplaceAll(commands, "go mod tidy && go run .", "tidy && "+build)
			script := exec.CommandContext(t.Context(), "bash", "-c", commands)
			script.Dir = dir
			script.Env = append(os.Environ(), "ROOT="+root, "PROGRAM="+program)
			if output, err := script.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// TestACloneHasTheNestedModules: whoever followed the page for a module of its own, such as that of Prometheus, was
// told that v0.1.0 does not exist.
func TestACloneHasTheNestedModules(t *testing.T) {
	redistest.LeftToCI(t)
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	commands := ""
	for _, block := range shell.FindAllStringSubmatch(read(t, "docs/getting-started.md"), -1) {
		if strings.Contains(block[2], "go mod edit -replace") {
			commands += block[2]
		}
	}
	dir := filepath.Join(t.TempDir(), "reader")
	modules := []string{"adapters/echov5mw", "adapters/fibermw", "ops/observe/gatehouseprom",
		"ops/observe/gatehouseotel"}
	for _, module := range modules {
		t.Run(module, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o750)); err != nil {
				t.Fatal(err)
			}
			path := "github.com/gatehouse-go/gatehouse/" + module
			script := exec.CommandContext(t.Context(), "bash", "-c", `set -eu
git() { ln -s "$ROOT" gatehouse; }
`+commands+`
printf 'package main\nimport _ "%s"\nfunc main() {}\n' "$MODULE" >main.go
sed -n '/^require/,$p' "$NESTED/go.mod" | grep -v '^replace' >>go.mod
echo "require $MODULE v0.0.0" >>go.mod
cp "$NESTED/go.sum" go.sum
GOFLAGS=-mod=mod go build -o program .`)
			script.Dir = dir
			script.Env = append(os.Environ(), "ROOT="+root, "MODULE="+path, "NESTED="+filepath.Join(root, module))
			if output, err := script.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// TestDocumentsDefineTheNamesOfTheirCode: code that says ratelimit.Rule means nothing to a reader who has not
// seen what ratelimit is. A page that uses the name of an import which is not the name of its package, in a
// block or in a line, has the line of the import above.
func TestDocumentsDefineTheNamesOfTheirCode(t *testing.T) {
	renamed := map[string]bool{}
	line := regexp.MustCompile(`(?m)^(?:import)?\s*([a-z]\w*) "github\.com/gatehouse-go/gatehouse[^"]*"$`)
	for _, file := range filesOf(t, ".", func(path string) bool { return strings.HasSuffix(path, ".go") }) {
		for _, found := range line.FindAllStringSubmatch(read(t, file), -1) {
			renamed[found[1]] = true
		}
	}
	if !renamed["ratelimit"] {
		t.Fatalf("found only %v", renamed)
	}
	for _, document := range documents(t) {
		text := read(t, document)
		for name := range renamed {
			used := regexp.MustCompile(`\b` + name + `\.[A-Z]\w*`).FindStringIndex(text)
			if used == nil {
				continue
			}
			seen := strings.Index(text, name+` "github.com/gatehouse-go/gatehouse`)
			if seen < 0 || seen > used[0] {
				t.Errorf("%s: %s is used, and nothing above says what %s is", document, text[used[0]:used[1]], name)
			}
		}
	}
}

// TestDocumentsShowGoAsGo: a block of Go that is marked as text would not be compiled.
func TestDocumentsShowGoAsGo(t *testing.T) {
	code := regexp.MustCompile(`(?m)^\s*(func \w+\(|\w+(, \w+)* := |import |type \w+ (struct|func))`)
	for _, document := range documents(t) {
		for _, block := range fence.FindAllStringSubmatch(read(t, document), -1) {
			if block[2] != "go" && code.MatchString(block[3]) {
				t.Errorf("%s: this looks like Go, and is marked as %q:\n%s", document, block[2], block[3])
			}
		}
	}
}
