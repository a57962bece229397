package exported

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write api/*.txt")

const root = "../../.."

// modules are the released modules, by their file in api.
var modules = map[string]string{
	"gatehouse": ".", "echov5mw": "adapters/echov5mw", "fibermw": "adapters/fibermw",
	"gatehouseotel": "ops/observe/gatehouseotel", "gatehouseprom": "ops/observe/gatehouseprom",
}

// TestExportedNames: whoever changes what users can write says so in the changelog.
func TestExportedNames(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		file := filepath.Join("api", name+".txt")
		want := strings.Join(namesOf(t, modules[name]), "\n") + "\n"
		has, err := os.ReadFile(file)
		switch {
		case string(has) == want:
		case *update:
			if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("exported names have changed (%v):\n%s\nSay it in CHANGELOG.md if users see it, and run "+
				"go test ./internal/testkit/exported -update", err, difference(string(has), want))
		}
	}
}

// difference returns the lines that only one of two sorted texts has.
func difference(has, want string) string {
	old, now := strings.Split(has, "\n"), strings.Split(want, "\n")
	var lines []string
	for _, line := range old {
		if _, both := slices.BinarySearch(now, line); !both && line != "" {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range now {
		if _, both := slices.BinarySearch(old, line); !both && line != "" {
			lines = append(lines, "+ "+line)
		}
	}
	return strings.Join(lines, "\n")
}

// namesOf returns a sorted line for each exported name of the packages that users of a module import.
func namesOf(t *testing.T, module string) []string {
	t.Helper()
	top := filepath.Join(root, module)
	var all []string
	err := filepath.WalkDir(top, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != top {
			_, nested := os.Stat(filepath.Join(dir, "go.mod"))
			hidden := strings.HasPrefix(d.Name(), ".")
			private := slices.Contains([]string{"internal", "testdata", "examples", "docs"}, d.Name())
			if nested == nil || hidden || private {
				return filepath.SkipDir
			}
		}
		p, err := build.ImportDir(dir, 0)
		if err != nil || p.Name == "main" {
			return nil //nolint:nilerr // a folder without a package that can be imported
		}
		path, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		names, err := namesOfPackage(filepath.ToSlash(path), dir, p.GoFiles)
		all = append(all, names...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func namesOfPackage(path, dir string, files []string) (names []string, err error) {
	set := token.NewFileSet()
	add := func(words ...any) {
		var line bytes.Buffer
		line.WriteString(path + ":")
		for _, word := range words {
			line.WriteByte(' ')
			if node, ok := word.(ast.Node); ok {
				err = printer.Fprint(&line, set, node)
			} else {
				fmt.Fprint(&line, word)
			}
		}
		names = append(names, strings.Join(strings.Fields(line.String()), " "))
	}
	for _, name := range files {
		file, wrong := parser.ParseFile(set, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if wrong != nil {
			return nil, wrong
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || exportedType(d.Recv.List[0].Type)) {
					d.Body = nil
					add(d)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					addSpec(d.Tok, s, add)
				}
			}
		}
	}
	return names, err
}

// addSpec adds what a declaration of constants, variables or a type exports.
func addSpec(tok token.Token, s ast.Spec, add func(words ...any)) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for i, name := range s.Names {
			words := []any{tok.String(), name}
			if s.Type != nil {
				words = append(words, s.Type)
			}
			if tok == token.CONST && i < len(s.Values) {
				words = append(words, "=", s.Values[i])
			}
			if name.IsExported() {
				add(words...)
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		parameters := s.TypeParams
		of := s.Name.Name + "."
		switch u := s.Type.(type) {
		case *ast.StructType:
			add("type", s.Name, typeParameters{parameters}, "struct")
			addFields("field", of, u.Fields, add)
		case *ast.InterfaceType:
			add("type", s.Name, typeParameters{parameters}, "interface")
			addFields("method", of, u.Methods, add)
		default:
			assign := ""
			if s.Assign.IsValid() {
				assign = "="
			}
			add("type", s.Name, typeParameters{parameters}, assign, s.Type)
		}
	}
}

// typeParameters prints the parameters of a type, if it has any.
type typeParameters struct{ list *ast.FieldList }

func (p typeParameters) String() string {
	if p.list == nil {
		return ""
	}
	var names []string
	for _, f := range p.list.List {
		for _, name := range f.Names {
			names = append(names, name.Name)
		}
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// addFields adds the exported fields of a struct, or the methods of an interface; what is embedded too.
func addFields(kind, of string, fields *ast.FieldList, add func(words ...any)) {
	for _, f := range fields.List {
		if len(f.Names) == 0 {
			add(kind, of+"(embedded)", f.Type)
		}
		for _, name := range f.Names {
			if name.IsExported() {
				add(kind, of+name.Name, f.Type)
			}
		}
	}
}

// exportedType reports whether the type of a receiver is exported.
func exportedType(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return exportedType(e.X)
	case *ast.IndexExpr:
		return exportedType(e.X)
	case *ast.IndexListExpr:
		return exportedType(e.X)
	case *ast.Ident:
		return e.IsExported()
	}
	return false
}
