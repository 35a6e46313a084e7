package find

import "strings"

// matchGlob reports whether a pattern matches a name as in Redis, which goes by bytes.
func matchGlob(glob, name string) bool {
	starred, after, from := false, "", "" // what follows the last star, and what is left of the name for it
	for name != "" {
		if rest, ok := strings.CutPrefix(glob, "*"); ok {
			starred, after, from = true, rest, name
			glob = rest
			continue
		}
		rest, ok := matchByte(glob, name[0])
		switch {
		case ok:
			glob, name = rest, name[1:]
		case starred:
			from = from[1:]
			glob, name = after, from
		default:
			return false
		}
	}
	return strings.Trim(glob, "*") == ""
}

// matchByte reports whether what a pattern begins with, which is no star, matches a byte, and returns the rest of the pattern.
func matchByte(glob string, b byte) (rest string, ok bool) {
	switch {
	case glob == "":
		return "", false
	case glob[0] == '?':
		return glob[1:], true
	case glob[0] == '[':
		return matchClass(glob[1:], b)
	case glob[0] == '\\' && len(glob) > 1:
		glob = glob[1:]
	}
	return glob[1:], glob[0] == b
}

// matchClass is matchByte after an opening bracket. One that is not closed goes to the end of the pattern.
func matchClass(glob string, b byte) (rest string, ok bool) {
	glob, not := strings.CutPrefix(glob, "^")
	for glob != "" && glob[0] != ']' {
		if glob[0] == '\\' && len(glob) > 1 {
			ok = ok || glob[1] == b
			glob = glob[2:]
			continue
		}
		low, high := glob[0], glob[0]
		if len(glob) > 2 && glob[1] == '-' {
			high = glob[2]
			glob = glob[2:]
		}
		ok = ok || min(low, high) <= b && b <= max(low, high)
		glob = glob[1:]
	}
	return strings.TrimPrefix(glob, "]"), ok != not
}
