package inspect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/inspect"
)

func TestExecutorsAreToldFromQueues(t *testing.T) {
	for queue, want := range map[string]string{
		"{media}:tasks": "media", "a{b}c:tasks": "a{b}c", "{a}{b}:tasks": "{a}{b}", "mails": "", "mails:tasks": "", "{media}:ticks": "",
	} {
		name, ok := inspect.Executor(queue)
		assert.Equal(t, want, name, queue)
		assert.Equal(t, want != "", ok, queue)
	}
}
