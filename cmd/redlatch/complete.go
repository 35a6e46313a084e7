package main

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/kinds"
)

// completeFor is how long a shell waits for names.
const completeFor = 500 * time.Millisecond

func lockKinds() []string { return []string{kinds.Lock, kinds.FairLock, kinds.RWLock} }

// names completes a first argument with the names of the objects in Redis of some kinds, as many as are found in time.
func (a *app) names(kinds []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		return a.completing(func(ctx context.Context, c *redlatch.Client, found func(name string)) {
			pattern := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(begun) + "*"
			for o, err := range c.Objects(ctx, pattern, redlatch.WithKinds(kinds...)) {
				if err != nil {
					break
				}
				found(o.Name)
			}
		})(cmd, args, begun)
	}
}

// completing completes a first argument with the names that look finds in time.
func (a *app) completing(look func(ctx context.Context, c *redlatch.Client, found func(name string))) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) (all []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeFor)
		defer cancel()
		c, err := a.lookQuietly(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		look(ctx, c, func(name string) {
			if strings.HasPrefix(name, begun) && !strings.ContainsFunc(name, unsafe) && !severalWords(name) {
				all = append(all, name)
			}
		})
		slices.Sort(all)
		return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
	}
}

// unsafe reports whether a shell may take a character of a name for something else than itself.
func unsafe(r rune) bool {
	return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(" !\"#$&'()*;<>?[\\]^`|~", r)
}

// severalWords reports whether a shell may expand braces in a name, as in {a,b} and {1..3}.
func severalWords(name string) bool {
	_, inside, braced := strings.Cut(name, "{")
	return braced && (strings.Contains(inside, ",") || strings.Contains(inside, ".."))
}

// complete completes the values of a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag
	}
}
