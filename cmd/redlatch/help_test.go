package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

// document returns docs/cli.md, which is the help of all commands.
func document() string {
	var b strings.Builder
	b.WriteString("# The command redlatch\n\nThis is its help, written by `go test ./cmd/redlatch -run Help -update`. Install it with\n" +
		"`go install github.com/redlatch/redlatch/cmd/redlatch@latest`.\n")
	var write func(cmd *cobra.Command)
	write = func(cmd *cobra.Command) {
		fmt.Fprintf(&b, "\n## %s\n\n```text\n", cmd.CommandPath())
		text := cmd.Long
		if text == "" {
			text = cmd.Short
		}
		fmt.Fprintf(&b, "%s\n\n%s```\n", text, cmd.UsageString())
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" && sub.Name() != "completion" {
				write(sub)
			}
		}
	}
	write((&app{environment: &environment{}}).root())
	return b.String()
}

func TestDocumentIsTheHelp(t *testing.T) {
	const path = "../../docs/cli.md"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(document()), 0o600))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(text), document(), "go test ./cmd/redlatch -run Help -update")
}

func TestEveryCommandHasShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r := rig{}
		code, out, _ := r.run(t.Context(), "completion", shell)
		assert.Zero(t, code)
		assert.NotEmpty(t, out, shell)
	}
}
