package main

import (
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/inspect"
)

// keys presses keys.
func keys(s *screen, all ...string) {
	for _, key := range all {
		msg := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(key)}
		switch key {
		case "enter":
			msg = tea.KeyMsg{Type: tea.KeyEnter}
		case "esc":
			msg = tea.KeyMsg{Type: tea.KeyEsc}
		case "down":
			msg = tea.KeyMsg{Type: tea.KeyDown}
		}
		s.Update(msg)
	}
}

func TestScreenShowsSortsFiltersAndDrillsDown(t *testing.T) {
	r := newRig(t)
	hold, err := r.c.GetLock("alpha").Lock(t.Context())
	require.NoError(t, err)
	_, err = r.c.GetSemaphore("beta").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	s := &screen{ctx: t.Context(), c: r.c, every: time.Second, by: byName}
	look := func() {
		t.Helper()
		s.Update(s.look()())
		require.NoError(t, s.err)
	}
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	look()
	assert.Regexp(t, `(?s)> +rlock +alpha .*held by worker.*counter +beta`, s.View())
	keys(s, "down")
	assert.Regexp(t, `> +counter +beta`, s.View())
	keys(s, "/", "a", "l", "enter")
	assert.NotContains(t, s.View(), "beta")
	keys(s, "enter")
	look()
	assert.Regexp(t, `held by +`+hold.Owner(), s.View())
	keys(s, "esc", "/", "esc")
	assert.Contains(t, s.View(), "beta")

	s.Update(looked{err: assert.AnError})
	assert.Contains(t, s.View(), assert.AnError.Error())
	assert.Contains(t, s.View(), "beta", "what was seen last")
	_, end := s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("x")})
	assert.Equal(t, tea.QuitMsg{}, end())
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestOrderIsByWhatWasAskedFor(t *testing.T) {
	few := inspect.Summary{Name: "a", Waiting: 1, Left: 3 * time.Second, Messages: 2}
	many := inspect.Summary{Name: "b", Waiting: 2, Left: time.Second, Messages: 1}
	assert.Negative(t, byWaiting.compare(many, few))
	assert.Negative(t, byLeft.compare(few, many))
	assert.Negative(t, byLength.compare(few, many))
	assert.Negative(t, byName.compare(few, many))
}

func TestTopNeedsATerminal(t *testing.T) {
	code, _, text := newRig(t).run(t.Context(), "top")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, text, "terminal")
}
