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

const head = `# The command redlatch

<!-- Written by: go test ./cmd/redlatch -run Help -update -->

Install it from a checkout of the repository, which needs Go:

` + "```sh" + `
go install ./cmd/redlatch
` + "```" + `

Name the server in ` + "`REDIS_URL`" + `, or with ` + "`-u`" + `. If your clients have ` + "`redlatch.WithNamePrefix(\"app:\")`" + `, give
` + "`--prefix app:`" + ` too: names are then those of the program.

` + "```sh" + `
export REDIS_URL=redis://user:password@localhost:6379
redlatch doctor
redlatch ls
redlatch lock info orders
` + "```" + `

## Completion

The shell completes commands, flags, and the names of what is in Redis. Names with characters that mean something to a
shell are left out.

` + "```sh" + `
source <(redlatch completion bash)                                     # needs bash-completion; put it into ~/.bashrc
source <(redlatch completion zsh)                                      # after compinit; put it into ~/.zshrc
redlatch completion fish > ~/.config/fish/completions/redlatch.fish
` + "```" + `

` + "`redlatch completion powershell --help`" + ` says how to load it there.
`

// document returns docs/cli.md, which is the help of all commands.
func document() string {
	var b strings.Builder
	b.WriteString(head)
	var write func(cmd *cobra.Command)
	write = func(cmd *cobra.Command) {
		cmd.InitDefaultVersionFlag()
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
	write((&app{environment: &environment{getenv: func(string) string { return "" }}}).root())
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

func TestShellThatIsNotKnownIsAWrongArgument(t *testing.T) {
	for _, args := range [][]string{{"completion", "foo"}, {"completion", "bash", "x"}} {
		r := rig{}
		code, out, text := r.run(t.Context(), args...)
		assert.Equal(t, exitUsage, code, "%v: %s", args, text)
		assert.Empty(t, out)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		if !cmd.HasSubCommands() {
			assert.Contains(t, cmd.Example, "  "+cmd.CommandPath(), cmd.CommandPath())
		}
	}
	check((&app{environment: &environment{getenv: func(string) string { return "" }}}).root())
}
