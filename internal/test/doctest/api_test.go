package doctest_test

import (
	"go/types"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/doctest"
)

// api reads the packages once for all tests.
var api = sync.OnceValues(func() ([]doctest.Exported, error) { return doctest.API("../../..") })

func TestExportedNamesAreListed(t *testing.T) {
	all, err := api()
	require.NoError(t, err)
	assert.True(t, doctest.List(all) == read(t, "docs/api.txt"), "docs/api.txt differs from the code: run make readme")
}

func TestUsersCanUseWhatIsExported(t *testing.T) {
	exceptions := map[string]string{ // reason -> names or types
		"every constructor takes one, and a *redlatch.Client is one": "core.Client",
	}
	used := map[string]bool{}
	for _, names := range exceptions {
		for _, name := range strings.Fields(names) {
			used[name] = false
		}
	}
	all, err := api()
	require.NoError(t, err)
	for _, e := range all {
		if strings.HasPrefix(e.Name, "pubsub.") { // it is there to be read
			continue
		}
		for _, hidden := range hiddenTypes(e) {
			excepted := false
			for _, name := range []string{e.Name, hidden} {
				if _, ok := used[name]; ok {
					used[name], excepted = true, true
				}
			}
			assert.True(t, excepted, "users have no %s: %s", hidden, e.Text)
		}
	}
	for name, needed := range used {
		assert.True(t, needed, "%s needs no exception any more", name)
	}
}

// hiddenTypes returns the types in the declaration that users can neither name nor reach by another name: those of
// internal packages and those that are not exported.
func hiddenTypes(e doctest.Exported) (hidden []string) {
	check := func(o *types.TypeName) {
		ours := o.Pkg() != nil && strings.HasPrefix(o.Pkg().Path()+"/", module+"/")
		if ours && (!o.Exported() || strings.Contains(o.Pkg().Path(), "/internal/")) {
			hidden = append(hidden, o.Pkg().Name()+"."+o.Name())
		}
	}
	var look func(t types.Type)
	look = func(t types.Type) {
		switch t := t.(type) {
		case *types.Alias:
			check(t.Obj())
		case *types.Named:
			check(t.Obj())
			for arg := range t.TypeArgs().Types() {
				look(arg)
			}
		case *types.Map:
			look(t.Key())
			look(t.Elem())
		case interface{ Elem() types.Type }: // a pointer, slice, array or channel
			look(t.Elem())
		case *types.Signature:
			for _, list := range []*types.Tuple{t.Params(), t.Results()} {
				for v := range list.Variables() {
					look(v.Type())
				}
			}
		}
	}
	for _, t := range e.Types {
		look(t)
	}
	return hidden
}
