package queue

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// MaxPriority is the highest priority of a message.
const MaxPriority = 9

// Group is what a message of a group has to say of it.
type Group struct {
	Key   string
	Limit int  // how many messages of the group may be in flight
	Skip  bool // a message that waits for its retry lets others pass
}

// text returns the terms as group.lua reads them.
func (g *Group) text() string {
	skip := ""
	if g.Skip {
		skip = "s"
	}
	return strconv.Itoa(g.Limit) + skip + ":" + url.QueryEscape(g.Key)
}

// groupOf reads such terms; nil if they were tampered with.
func groupOf(text string) *Group {
	terms, key, _ := strings.Cut(text, ":")
	digits, skip := strings.CutSuffix(terms, "s")
	limit, err := strconv.Atoi(digits)
	key, failed := url.QueryUnescape(key)
	if err != nil || failed != nil {
		return nil
	}
	return &Group{key, limit, skip}
}

// marker returns bytes 15 and 16 of the member of a message, see lanes.lua; of a task byte 15, a colon and the task; nothing for a plain one.
func (o Own) marker() string {
	priority := 0
	if o.Priority != nil {
		priority = *o.Priority
	}
	letter := rune('a' + priority)
	if o.Group != nil {
		letter = rune('A' + priority)
	}
	switch {
	case o.Task != "":
		return string(letter) + ":" + url.QueryEscape(o.Task) // offer.lua has its number
	case o.Group != nil || priority > 0:
		return string(letter) + "0"
	}
	return ""
}

// letter returns byte 15 of a member; a digit for one that was tampered with.
func letter(member string) byte {
	if len(member) < sequenceLength {
		return '0'
	}
	return member[sequenceLength-2]
}

// isGrouped reports whether a message has a group.
func isGrouped(member string) bool { return letter(member) >= 'A' && letter(member) < 'a' }

// priorityOf returns the priority of a message; nil for a plain one.
func priorityOf(member string) *int {
	c := letter(member)
	if c < 'A' {
		return nil
	}
	p := int(c&31) - 1
	return &p
}

// sequence returns the first bytes of the member of a successor with these terms, of a message with a member.
func (o Own) sequence(member string) string {
	base, digits := 10, member[:sequenceLength]
	if letter(member) >= 'A' {
		base, digits = 16, digits[:sequenceLength-2]
	}
	n, err := strconv.ParseInt(digits, base, 64)
	if err != nil { // one that was tampered with
		n = 0
	}
	if marker := o.marker(); marker != "" {
		return fmt.Sprintf("%014x", n) + marker
	}
	return fmt.Sprintf("%016d", n)
}

const (
	laneWidth = 1 << 42         // ms
	laneEpoch = 946_684_800_000 // the year 2000, ms since 1970
)

// dueOf returns the time of a score, see lanes.lua.
func dueOf(score int64) time.Time {
	if score >= 0 {
		return time.UnixMicro(score)
	}
	return time.UnixMilli(score&(laneWidth-1) + laneEpoch)
}
