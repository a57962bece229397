package shared

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// base has the names that Lua and Redis give to every script.
var base = strings.Fields(
	"KEYS ARGV redis string table math ipairs next pairs select tonumber tostring type unpack")

// reads has the commands that change nothing. What else a script calls writes.
var reads = strings.Fields("EXISTS GET HEXISTS HGET HGETALL HKEYS HLEN HMGET HVALS LINDEX LLEN LRANGE PTTL " +
	"SISMEMBER TIME ZCOUNT ZRANGE ZRANGEBYSCORE ZSCORE")

// names are those of a chunk of Lua, a script or a block. What it does, it does outside of its functions.
type names struct {
	uses     []use
	declared map[string]bool // at the level of the chunk
	returns  bool            // it returns
	writes   bool            // it writes to Redis, or into a table that it does not declare
}

// use is a place at which a name is read or assigned. Lines are counted from 1.
type use struct {
	name     string
	line     int
	of       *declaration // nil: nothing declares it
	assigned bool
}

// declaration is the line of a local variable, a parameter or the variable of a loop.
type declaration struct{ line int }

// mistake is one of a line.
type mistake struct {
	line int
	text string
}

func (m mistake) Error() string { return m.text }

// parseNames finds the declaration of each name of a chunk, by the rules of scope of Lua 5.1.
func parseNames(chunk string) (names, error) {
	statements, err := parse.Parse(strings.NewReader(chunk), "")
	var wrong *parse.Error
	if errors.As(err, &wrong) {
		return names{}, mistake{wrong.Pos.Line, fmt.Sprintf("%s near %q", wrong.Message, wrong.Token)}
	} else if err != nil {
		return names{}, err
	}
	r := resolver{names: names{declared: make(map[string]bool)}}
	r.enter()
	r.statements(statements)
	return r.names, nil
}

type resolver struct {
	names
	scopes    []map[string]*declaration
	functions int // how many are around
}

func (r *resolver) enter() { r.scopes = append(r.scopes, make(map[string]*declaration)) }
func (r *resolver) leave() { r.scopes = r.scopes[:len(r.scopes)-1] }

func (r *resolver) declare(line int, all ...string) {
	for _, name := range all {
		r.scopes[len(r.scopes)-1][name] = &declaration{line}
		if len(r.scopes) == 1 {
			r.declared[name] = true
		}
	}
}

// find returns what declares a name.
func (r *resolver) find(name string) *declaration {
	for _, scope := range slices.Backward(r.scopes) {
		if d := scope[name]; d != nil {
			return d
		}
	}
	return nil
}

func (r *resolver) use(ident *ast.IdentExpr, assigned bool) {
	u := use{ident.Value, ident.Line(), r.find(ident.Value), assigned}
	if u.of != nil || assigned || !slices.Contains(base, u.name) {
		r.uses = append(r.uses, u)
	}
}

// assign takes the left side of an assignment: a variable, or a field of a table.
func (r *resolver) assign(left ast.Expr) {
	if ident, ok := left.(*ast.IdentExpr); ok {
		r.use(ident, true)
		return
	}
	r.expressions(left)
	for {
		field, ok := left.(*ast.AttrGetExpr)
		if !ok {
			break
		}
		left = field.Object
	}
	if table, ok := left.(*ast.IdentExpr); ok && r.find(table.Value) == nil {
		r.writes = r.writes || r.functions == 0
	}
}

// inside walks statements in a scope of their own, which has the names from the beginning.
func (r *resolver) inside(line int, own []string, statements []ast.Stmt) {
	r.enter()
	r.declare(line, own...)
	r.statements(statements)
	r.leave()
}

func (r *resolver) statements(all []ast.Stmt) {
	for _, statement := range all {
		switch s := statement.(type) {
		case *ast.AssignStmt:
			r.expressions(s.Rhs...)
			for _, left := range s.Lhs {
				r.assign(left)
			}
		case *ast.LocalAssignStmt:
			r.local(s)
		case *ast.FuncCallStmt:
			r.expressions(s.Expr)
		case *ast.DoBlockStmt:
			r.inside(0, nil, s.Stmts)
		case *ast.WhileStmt:
			r.expressions(s.Condition)
			r.inside(0, nil, s.Stmts)
		case *ast.RepeatStmt: // its condition knows the variables of its body
			r.enter()
			r.statements(s.Stmts)
			r.expressions(s.Condition)
			r.leave()
		case *ast.IfStmt:
			r.expressions(s.Condition)
			r.inside(0, nil, s.Then)
			r.inside(0, nil, s.Else)
		case *ast.NumberForStmt:
			r.expressions(s.Init, s.Limit, s.Step)
			r.inside(s.Line(), []string{s.Name}, s.Stmts)
		case *ast.GenericForStmt:
			r.expressions(s.Exprs...)
			r.inside(s.Line(), s.Names, s.Stmts)
		case *ast.FuncDefStmt:
			r.assign(s.Name.Func)
			r.expressions(s.Func)
		case *ast.ReturnStmt:
			r.returns = r.returns || r.functions == 0
			r.expressions(s.Exprs...)
		}
	}
}

// local declares variables. A function knows its own name, an expression does not.
func (r *resolver) local(s *ast.LocalAssignStmt) {
	if len(s.Exprs) == 1 {
		if _, function := s.Exprs[0].(*ast.FunctionExpr); function {
			r.declare(s.Line(), s.Names...)
			r.expressions(s.Exprs...)
			return
		}
	}
	r.expressions(s.Exprs...)
	r.declare(s.Line(), s.Names...)
}

func (r *resolver) expressions(all ...ast.Expr) {
	for _, expression := range all {
		switch e := expression.(type) {
		case *ast.IdentExpr:
			r.use(e, false)
		case *ast.TableExpr:
			for _, field := range e.Fields {
				r.expressions(field.Key, field.Value)
			}
		case *ast.FuncCallExpr:
			r.writes = r.writes || r.functions == 0 && writes(e)
			r.expressions(e.Func, e.Receiver)
			r.expressions(e.Args...)
		case *ast.FunctionExpr:
			r.functions++
			r.inside(e.Line(), e.ParList.Names, e.Stmts)
			r.functions--
		default:
			r.expressions(operands(e)...)
		}
	}
}

// operands returns what an operator is applied to; nothing for a constant.
func operands(operator ast.Expr) []ast.Expr {
	switch e := operator.(type) {
	case *ast.AttrGetExpr:
		return []ast.Expr{e.Object, e.Key}
	case *ast.LogicalOpExpr:
		return []ast.Expr{e.Lhs, e.Rhs}
	case *ast.RelationalOpExpr:
		return []ast.Expr{e.Lhs, e.Rhs}
	case *ast.StringConcatOpExpr:
		return []ast.Expr{e.Lhs, e.Rhs}
	case *ast.ArithmeticOpExpr:
		return []ast.Expr{e.Lhs, e.Rhs}
	case *ast.UnaryMinusOpExpr:
		return []ast.Expr{e.Expr}
	case *ast.UnaryNotOpExpr:
		return []ast.Expr{e.Expr}
	case *ast.UnaryLenOpExpr:
		return []ast.Expr{e.Expr}
	}
	return nil
}

// writes reports whether a call is redis.call of a command that writes.
func writes(call *ast.FuncCallExpr) bool {
	attribute, ok := call.Func.(*ast.AttrGetExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	name, _ := attribute.Key.(*ast.StringExpr)
	command, _ := call.Args[0].(*ast.StringExpr)
	return name != nil && name.Value == "call" && command != nil && !slices.Contains(reads, command.Value)
}
