package inspect_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/inspect"
)

// shownAs returns a payload as the command prints it.
func shownAs(t *testing.T, c codec.Codec, v any) string {
	t.Helper()
	raw, err := c.Encode(v)
	require.NoError(t, err)
	text, err := json.Marshal(inspect.Decoded(raw))
	require.NoError(t, err)
	return string(text)
}

// 49 is the byte "1".
func TestNumberOfTheDefaultCodecIsShownAsItIs(t *testing.T) {
	for n, want := range map[int]string{47: "47", 48: "48", 49: "49", 57: "57", 58: "58"} {
		assert.Equal(t, want, shownAs(t, codec.MsgPack{}, n))
	}
}

// It is what is saved before a purge.
func TestLargeNumberOfAMessageIsShownAsItIs(t *testing.T) {
	order := map[string]int64{"order": 9007199254740993}
	assert.Equal(t, `{"order":9007199254740993}`, shownAs(t, codec.MsgPack{}, order))
	assert.Equal(t, `{"order":9007199254740993}`, shownAs(t, codec.JSON{}, order))
}
