package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// importRule holds a file's imports against the tables.
func importRule(f file) (complaints []string) {
	say := func(format string, args ...any) {
		complaints = append(complaints, f.name+": "+fmt.Sprintf(format, args...))
	}
	allowed, known := edges[f.pkg]
	if !known {
		say("package %q is not in the table of packages", f.pkg)
	}
	for _, path := range f.imports() {
		if why, bad := banned[path]; bad {
			say("imports %s: %s", path, why)
		}
		switch ours, is := strings.CutPrefix(path, module+"/"); {
		case is && !f.test:
			if !mayImport(f.pkg, allowed, ours) {
				say("%s does not import %s; if that is wrong, edit the table", f.pkg, ours)
			}
		case is || !strings.Contains(path, "."):
			// Tests may import what they like of ours; the standard library has no dots.
		default:
			if m, ok := moduleRule(f, path); !ok {
				say("imports %s, which %s", path, m)
			}
		}
	}
	return complaints
}

func mayImport(pkg string, allowed []string, ours string) bool {
	if slices.Contains(testSupport, ours) {
		return slices.Contains(testSupport, pkg)
	}
	if ours == "internal/invariants" {
		return pkg != "record"
	}
	return slices.Contains(allowed, anything) || slices.Contains(allowed, ours)
}

// moduleRule says why a file may not import a foreign package.
func moduleRule(f file, path string) (why string, ok bool) {
	within := func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }
	for m, users := range modules {
		if within(m) && (f.test || slices.Contains(users, f.pkg)) {
			return "", true
		}
		if within(m) {
			return fmt.Sprintf("only %s may", strings.Join(users, ", ")), false
		}
	}
	if slices.ContainsFunc(testModules, within) {
		return "only tests may", f.test || slices.Contains(testSupport, f.pkg)
	}
	return "is not in the list of modules", false
}

// osRule keeps package os out of the library, but for its flags.
func osRule(f file) (complaints []string) {
	if f.test || !library(f.pkg) || slices.Contains(osUsers, f.pkg) || !slices.Contains(f.imports(), "os") {
		return nil
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && isName(sel.X, "os") && !strings.HasPrefix(sel.Sel.Name, "O_") {
			complaints = append(complaints, fmt.Sprintf("%s: uses os.%s: use internal/vfs", f.at(sel), sel.Sel.Name))
		}
		return true
	})
	return append(complaints, renamed(f, "os")...)
}

// clockRule keeps the wall clock out of the library: time.Now may be named, as the default of an option, not called.
func clockRule(f file) (complaints []string) {
	if f.test || !library(f.pkg) {
		return nil
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && isName(sel.X, "time") && slices.Contains([]string{"Now", "Since", "Until"}, sel.Sel.Name) {
			complaints = append(complaints, fmt.Sprintf("%s: calls time.%s: the time is an argument", f.at(call), sel.Sel.Name))
		}
		return true
	})
	return append(complaints, renamed(f, "time")...)
}

func isName(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

// renamed finds imports under another name, which would hide their uses from the other rules.
func renamed(f file, pkg string) (complaints []string) {
	for _, spec := range f.syntax.Imports {
		if spec.Path.Value == `"`+pkg+`"` && spec.Name != nil {
			complaints = append(complaints, fmt.Sprintf("%s: imports %s under another name", f.at(spec), pkg))
		}
	}
	return complaints
}

// lengthRule keeps files readable.
func lengthRule(f file) []string {
	limit := maxSourceLines
	if f.test {
		limit = maxTestLines
	}
	if f.lines <= limit || ast.IsGenerated(f.syntax) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d lines, at most %d", f.name, f.lines, limit)}
}

// docRule wants a comment on every exported name of a public package, beginning with the name where it belongs to a
// function or a type.
func docRule(f file) (complaints []string) {
	if f.test || !public(f.pkg) {
		return nil
	}
	say := func(n ast.Node, name, what string) {
		complaints = append(complaints, fmt.Sprintf("%s: %s %s", f.at(n), name, what))
	}
	named := func(n ast.Node, name string, doc *ast.CommentGroup) {
		switch {
		case doc == nil:
			say(n, name, "has no comment")
		case !beginsWith(doc.Text(), name):
			say(n, name, "has a comment that does not begin with its name")
		}
	}
	for _, decl := range f.syntax.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && exportedReceiver(d) {
				named(d, d.Name.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					doc := s.Doc
					if doc == nil && !d.Lparen.IsValid() {
						doc = d.Doc
					}
					if s.Name.IsExported() {
						named(s, s.Name.Name, doc)
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
							say(s, name.Name, "has no comment, and its group has none")
						}
					}
				}
			}
		}
	}
	return complaints
}

// exportedReceiver reports whether users can see a method, or that d is no method.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}

// beginsWith reports whether a comment begins with the name, an article in front of it allowed.
func beginsWith(text, name string) bool {
	for _, article := range []string{"A ", "An ", "The "} {
		text = strings.TrimPrefix(text, article)
	}
	rest, ok := strings.CutPrefix(text, name)
	return ok && (rest == "" || !isWord(rest[0]))
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
