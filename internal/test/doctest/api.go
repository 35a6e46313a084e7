package doctest

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const module = "github.com/redlatch/redlatch"

// Exported is a name that users can write: a function, type, field, method, constant or variable.
type Exported struct {
	Name  string       // as in "rlock.Hold.Unlock"
	Text  string       // its declaration in one line
	Types []types.Type // what that consists of
}

// API returns what the packages of the module in dir export to users, in the order of packages and names; the fields
// and methods of a type, also those of embedded types, follow it. It runs the go command and reads what that compiled.
func API(dir string) ([]Exported, error) {
	public, err := goList(dir, "{{if ne .Name \"main\"}}{{.ImportPath}}{{end}}", "./...")
	if err != nil {
		return nil, err
	}
	public = slices.DeleteFunc(public, func(path string) bool { return path == "" || strings.Contains(path, "/internal/") })
	compiled, err := goList(dir, "{{.ImportPath}} {{.Export}}", append([]string{"-deps", "-export"}, public...)...)
	if err != nil {
		return nil, err
	}
	files := map[string]string{} // by path
	for _, line := range compiled {
		path, file, _ := strings.Cut(line, " ")
		files[path] = file
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	var all []Exported
	for _, path := range public {
		p, err := imports.Import(path)
		if err != nil {
			return nil, err
		}
		for _, name := range p.Scope().Names() {
			if token.IsExported(name) {
				all = append(all, declared(p.Scope().Lookup(name))...)
			}
		}
	}
	return all, nil
}

// List is the text of docs/api.txt.
func List(api []Exported) string {
	var text strings.Builder
	for _, e := range api {
		text.WriteString(e.Text + "\n")
	}
	return text.String()
}

// goList runs go list and returns its lines.
func goList(dir, format string, args ...string) ([]string, error) {
	cmd := exec.Command("go", append([]string{"list", "-f", format}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	return strings.Split(strings.TrimSpace(string(out)), "\n"), err
}

// declared returns an object and, if it is a type, its fields and methods.
func declared(o types.Object) []Exported {
	qualifier := qualifierIn(o.Pkg())
	if _, ok := o.(*types.TypeName); !ok {
		return []Exported{exported(o, "", types.ObjectString(o, qualifier), o.Type())}
	}
	all := []Exported{typeOf(o)}
	if t, ok := o.Type().Underlying().(*types.Struct); ok {
		for f := range t.Fields() {
			if f.Exported() {
				all = append(all, exported(o, f.Name(), o.Name()+"."+f.Name()+" "+types.TypeString(f.Type(), qualifier), f.Type()))
			}
		}
	}
	receiver := o.Type()
	if !types.IsInterface(receiver) {
		receiver = types.NewPointer(receiver)
	}
	for m := range types.NewMethodSet(receiver).Methods() {
		if name := m.Obj().Name(); m.Obj().Exported() {
			signature := strings.TrimPrefix(types.TypeString(m.Type(), qualifier), "func")
			all = append(all, exported(o, name, "func ("+o.Name()+") "+name+signature, m.Type()))
		}
	}
	return all
}

// exported returns an object, or what belongs to it and has a name of its own.
func exported(o types.Object, member, text string, consists ...types.Type) Exported {
	name := o.Pkg().Name() + "." + o.Name()
	if member != "" {
		name += "." + member
	}
	return Exported{name, o.Pkg().Name() + ": " + text, consists}
}

// typeOf returns a type without its fields and methods.
func typeOf(o types.Object) Exported {
	qualifier := qualifierIn(o.Pkg())
	short := "type " + types.TypeString(o.Type(), qualifier)
	if alias, ok := o.Type().(*types.Alias); ok {
		return exported(o, "", short+" = "+types.TypeString(alias.Rhs(), qualifier))
	}
	switch t := o.Type().Underlying().(type) {
	case *types.Struct:
		return exported(o, "", short+" struct")
	case *types.Interface:
		return exported(o, "", short+" interface")
	default:
		return exported(o, "", short+" "+types.TypeString(t, qualifier), t)
	}
}

// qualifierIn shows the names of a package as that package writes them, and those of internal packages with their path.
func qualifierIn(in *types.Package) types.Qualifier {
	return func(p *types.Package) string {
		switch path, ours := strings.CutPrefix(p.Path(), module+"/"); {
		case p == in:
			return ""
		case ours && strings.HasPrefix(path, "internal/"):
			return path
		}
		return p.Name()
	}
}
