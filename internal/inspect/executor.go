package inspect

import "strings"

// Executor returns the executor whose tasks a queue has, and false for another queue.
func Executor(queue string) (name string, ok bool) {
	if name, ok = strings.CutSuffix(queue, ":tasks"); !ok {
		return "", false
	}
	if inner, braced := strings.CutPrefix(name, "{"); braced && strings.IndexByte(inner, '}') == len(inner)-1 {
		return inner[:len(inner)-1], true
	}
	if !strings.Contains(name, "{") {
		return "", false
	}
	return name, true
}
