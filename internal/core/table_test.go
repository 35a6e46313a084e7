package core_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/core"
)

func TestTableKeepsWhatItIsGiven(t *testing.T) {
	table := core.NewTable[int]()
	for i := range 1000 {
		name := strconv.Itoa(i)
		p := table.Shard(name)
		p.Lock()
		p.Of[name] = i
		p.Unlock()
	}
	assert.Equal(t, 1000, table.Len())
	sum := 0
	table.Each(func(i int) { sum += i })
	assert.Equal(t, 999*1000/2, sum)
	for i := range 1000 {
		p := table.Shard(strconv.Itoa(i))
		p.Lock()
		assert.Equal(t, i, p.Of[strconv.Itoa(i)])
		delete(p.Of, strconv.Itoa(i))
		p.Unlock()
	}
	assert.Zero(t, table.Len())
}
