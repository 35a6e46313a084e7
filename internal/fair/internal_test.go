package fair

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQueuesThatShareAPlaceKeepTheirKeys(t *testing.T) {
	q := newKeyCache()
	for range 2 {
		for i := range 4 * len(q.recent) { // more than there are places
			name := "a" + strconv.Itoa(i)
			require.Equal(t, queueKeys{
				lock:     name,
				queue:    "redisson_lock_queue:{" + name + "}",
				timeouts: "redisson_lock_timeout:{" + name + "}",
				channel:  "redisson_lock__channel:{" + name + "}",
			}, *q.of(name))
		}
	}
}
