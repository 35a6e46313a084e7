package near

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/highway"
)

// Messages as Redisson writes them. The ids are made up.
var (
	javaID    = strings.Repeat("\xca\xfe", 8)
	requestID = "0123456789abcdef0123456789abcdef"
	jack      = highway.Sum([]byte("Jack_001"))
)

func sized(s string) string { return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s }

func hashesOf(hashes ...hash) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(hashes)))
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	return string(b)
}

func TestMessagesOfRedissonAreRead(t *testing.T) {
	java := writer{[8]byte([]byte(javaID)), 0xcafecafecafecafe}
	ms := "\x00\x00\x00\x00\x00\x00\x13\x88"
	for name, c := range map[string]struct {
		payload string
		want    message
	}{
		"clear":            {"\x00" + javaID + requestID[:16] + "\x00", message{kind: clearAll, writer: java, request: requestID[:16]}},
		"clear that waits": {"\x00" + javaID + requestID[:16] + "\x01", message{kind: clearAll, writer: java, request: requestID[:16], waits: true}},
		"invalidate":       {"\x01" + javaID + hashesOf(jack, hash{1}), message{kind: invalidate, writer: java, hashes: []hash{jack, {1}}}},
		"update":           {"\x02" + javaID + sized("Jack_001") + sized("value"), message{kind: update, writer: java, hashes: []hash{jack}}},
		"disable":          {"\x03\x20" + requestID + ms + "\x00" + hashesOf(jack), message{kind: disable, request: requestID, timeout: 5 * time.Second, hashes: []hash{jack}}},
		"disable all":      {"\x03\x20" + requestID + ms + "\x01" + hashesOf(), message{kind: disable, request: requestID, timeout: 5 * time.Second, all: true, hashes: []hash{}}},
		"disable of 3.x":   {"\x03\x20" + requestID + ms + hashesOf(jack), message{kind: disable, request: requestID, timeout: 5 * time.Second, hashes: []hash{jack}}},
		"disabled":         {acknowledgement, message{kind: disabled}},
		"enable":           {"\x05\x20" + requestID + "\x00" + hashesOf(jack), message{kind: enable, request: requestID, hashes: []hash{jack}}},
		"enable of 3.x":    {"\x05\x20" + requestID + hashesOf(jack), message{kind: enable, request: requestID, hashes: []hash{jack}}},
	} {
		m, ok := parse(c.payload)
		assert.True(t, ok, name)
		assert.Equal(t, c.want, m, name)
		for i := range c.payload {
			if m, ok := parse(c.payload[:i]); ok { // as one without keys
				assert.Empty(t, m.hashes, "%s, cut after %d bytes", name, i)
			}
		}
	}
}

// Messages of Redisson's RLocalCachedMap with StringCodec as they came, of 4.7.0 unless the name says another version.
var captured = map[string]struct {
	payload string
	want    message
}{
	"invalidate":        {"01930e6b67acefce9a9857ccad802793d800000001ee93680dd8b3572db163bf7631a16ffb", message{kind: invalidate, hashes: []hash{jack}}},
	"invalidate two":    {"01930e6b67acefce9a9857ccad802793d800000002ee93680dd8b3572db163bf7631a16ffbfb1f29329370c688618a1a4bf76d1d16", message{kind: invalidate, hashes: []hash{jack, gruen}}},
	"update":            {"0299e6a5b2f990ee26ba3ed256f2429b37000000084a61636b5f3030310000000477657274", message{kind: update, hashes: []hash{jack}}},
	"clear":             {"00930e6b67acefce9a9857ccad802793d8b5151185a3d0cf1240c2c7c50bc1114a00", message{kind: clearAll, request: unhex("b5151185a3d0cf1240c2c7c50bc1114a")}},
	"disable":           {"032035316232326334303734623431356335396265656135653439653661633765360000000000000bb80000000001ee93680dd8b3572db163bf7631a16ffb", message{kind: disable, request: "51b22c4074b415c59beea5e49e6ac7e6", timeout: 3 * time.Second, hashes: []hash{jack}}},
	"disabled":          {"04", message{kind: disabled}},
	"enable":            {"052035316232326334303734623431356335396265656135653439653661633765360000000001ee93680dd8b3572db163bf7631a16ffb", message{kind: enable, request: "51b22c4074b415c59beea5e49e6ac7e6", hashes: []hash{jack}}},
	"clear of 3.52.0":   {"0083bd5c086971c082b91826b342313097d97527eaff75acc426ddb04a2c73d67800", message{kind: clearAll, request: unhex("d97527eaff75acc426ddb04a2c73d678")}},
	"disable of 3.52.0": {"032066646234376636363265336564363731313437656434613738353936383266630000000000000bb800000001ee93680dd8b3572db163bf7631a16ffb", message{kind: disable, request: "fdb47f662e3ed671147ed4a7859682fc", timeout: 3 * time.Second, hashes: []hash{jack}}},
	"enable of 3.52.0":  {"0520666462343766363632653365643637313134376564346137383539363832666300000001ee93680dd8b3572db163bf7631a16ffb", message{kind: enable, request: "fdb47f662e3ed671147ed4a7859682fc", hashes: []hash{jack}}},
}

var gruen = highway.Sum([]byte("grün"))

func unhex(s string) string {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestCapturedMessagesOfRedissonAreRead(t *testing.T) {
	for name, c := range captured {
		payload := unhex(c.payload)
		if c.want.kind <= update {
			copy(c.want.writer.client[:], payload[1:])
			c.want.writer.number = binary.BigEndian.Uint64([]byte(payload[9:]))
		}
		m, ok := parse(payload)
		assert.True(t, ok, name)
		assert.Equal(t, c.want, m, name)
	}
}

func TestWrittenMessageIsRedissons(t *testing.T) {
	m := message{kind: invalidate, writer: writer{[8]byte{1, 2, 3, 4, 5, 6, 7, 8}, 9}, hashes: []hash{jack}}
	assert.Equal(t, "01"+"0102030405060708"+"0000000000000009"+"00000001"+hex.EncodeToString(jack[:]), hex.EncodeToString(m.encode()))
	m = message{kind: clearAll, writer: m.writer}
	assert.Equal(t, "00"+"0102030405060708"+"0000000000000009"+strings.Repeat("00", 17), hex.EncodeToString(m.encode()))
}

// No message panics, or has more keys than bytes; what was written is read.
func FuzzParse(f *testing.F) {
	for _, payload := range []string{
		"", "\x00" + javaID + javaID + "\x01", "\x01" + javaID + hashesOf(jack), "\x01" + javaID + "\xff\xff\xff\xff",
		"\x02" + javaID + sized("a") + sized("b"), "\x03\x20" + requestID + strings.Repeat("\xff", 8) + "\x00" + hashesOf(jack), "\x04",
		"\x05\x20" + requestID + hashesOf(jack), "\x06",
	} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		m, ok := parse(payload)
		require.LessOrEqual(t, len(m.hashes), len(payload)/8)
		require.LessOrEqual(t, m.timeout, maxTimeout)
		if !ok || m.kind != invalidate {
			return
		}
		require.Equal(t, payload, string(m.encode()))
	})
}
