package docs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestExamplesSetADeadline: an example that runs with the default of 100 ms fails on a busy machine.
func TestExamplesSetADeadline(t *testing.T) {
	found := 0
	for _, path := range filesOf(t, ".", func(path string) bool { return strings.HasSuffix(path, "_test.go") }) {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, example := range doc.Examples(file) {
			if example.Output == "" && !example.EmptyOutput {
				continue // is not run
			}
			ast.Inspect(example.Code, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok || !selects(call.Fun, "New") {
					return true
				}
				found++
				for _, option := range call.Args {
					if o, ok := option.(*ast.CallExpr); ok && selects(o.Fun, "WithDeadline") {
						return true
					}
				}
				t.Errorf("%s: add core.WithDeadline(5*time.Second)", fset.Position(call.Pos()))
				return true
			})
		}
	}
	if found < 20 {
		t.Errorf("found only %d engines in examples", found)
	}
}

// selects reports whether an expression is core.NAME.
func selects(e ast.Expr, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	of, ok := s.X.(*ast.Ident)
	return ok && of.Name == "core"
}
