package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/script"
)

func (a *app) cache() *cobra.Command {
	verbs := []*cobra.Command{a.cacheStats(), a.cacheGet(), a.cacheInvalidate()}
	for _, verb := range verbs {
		verb.ValidArgsFunction = a.completing(func(ctx context.Context, c *redlatch.Client, found func(name string)) {
			said := inspect.CensusOf(ctx, c, askMost)
			for _, one := range said.Caches(nil) {
				found(one.Name)
			}
		})
	}
	return a.group("cache", "Look at a cache, and have it forget", nil, verbs...)
}

// checking is looking for a command whose arguments are checked before it connects.
func (a *app) checking(check func(args []string) error, do func(ctx context.Context, c *redlatch.Client, args []string) error) func(*cobra.Command, []string) error {
	look := a.looking(do)
	return func(cmd *cobra.Command, args []string) error {
		if err := check(args); err != nil {
			return err
		}
		return look(cmd, args)
	}
}

// namesKeys refuses what is no name of a cache, or none of its keys.
func (a *app) namesKeys(args []string) error {
	err := core.CheckUserName(args[0], a.prefix+args[0])
	for _, key := range args[1:] {
		err = cmp.Or(err, core.CheckKey(key))
	}
	return err
}

// cacheState is a cache as it is printed.
type cacheState struct {
	inspect.Cache
	Length *int64 // of a map in Redis; nil if that was not asked for, or is not known
}

func (a *app) cacheStats() *cobra.Command {
	var last time.Duration
	cmd := &cobra.Command{
		Use: "stats [NAME]", Aliases: []string{"info"}, Short: "How caches and near maps do, as their clients say", Args: checked(cobra.MaximumNArgs(1)),
		Long: `How caches do, and maps with rmap.WithNear, as their clients say; the first 100 are asked. Without a name it lists all of
them; with one it also says what each client does. Clients count from when they were made. --for counts what happens
during that time, from now on.

"near hits" were answered by the client itself, and "hits" by a value in Redis. Of these, "stale" were old, so that the
value was refreshed (rcache.WithRefresh). "misses" of a cache had to load, or to wait for a load; those of a near map
asked Redis. "hit rate" is the part of all reads that were hits of either kind. "length" is that of the map in Redis;
the values of a cache are keys of their own, and are not counted.

NEAR is how many values the client keeps itself. CONNECTED says whether it hears of changes, and SINCE for how long that
is so: while it does not, it returns none of them and asks Redis. HEARD is when it last heard of a change, CHANGES of
how many, and AT MOST how old a near value may be if a message is lost. A client says so after 3 s of use, and for half
a minute after its last read, unless it has redlatch.WithoutPresence.`,
		Example: "  redlatch cache stats\n  redlatch cache stats users --for 10s",
		RunE: a.checking(func([]string) error {
			if last < 0 {
				return &exit{exitUsage, errors.New("--for must be 0 or more")}
			}
			return nil
		}, func(ctx context.Context, c *redlatch.Client, args []string) error {
			all, err := cachesOf(ctx, c, args, last)
			if err != nil {
				return err
			}
			err = a.print(all, func(w io.Writer) error {
				if len(args) == 0 {
					return writeCaches(w, all)
				}
				return writeEach(w, all)
			})
			if err == nil && len(args) > 0 && len(all) == 0 {
				err = &exit{exitFailed, fmt.Errorf("no client that answers has read a cache or a near map %q (%s)", args[0], whenListens)}
			}
			return err
		}),
	}
	cmd.Flags().DurationVar(&last, "for", 0, "count during this time only; 0 for all that the clients have counted")
	return cmd
}

// cachesOf asks clients for their caches, or those of a name. If last is not 0 it asks again after that time, and counts from the first
// answer on.
func cachesOf(ctx context.Context, c *redlatch.Client, name []string, last time.Duration) ([]cacheState, error) {
	said, err := census(ctx, c)
	if err != nil {
		return nil, err
	}
	var before *inspect.Census
	if last > 0 {
		first := said
		before = &first
		select {
		case <-time.After(last):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if said, err = census(ctx, c); err != nil {
			return nil, err
		}
	}
	all := []cacheState{} // none is a list too, in JSON
	for _, one := range said.Caches(before) {
		if len(name) > 0 && one.Name != name[0] {
			continue
		}
		s := cacheState{Cache: one}
		if len(name) > 0 && s.Kind == kinds.Map {
			of := core.Of(c)
			if n, err := of.Redis.HLen(ctx, of.Prefix+s.Name).Result(); err == nil {
				s.Length = &n
			}
		}
		all = append(all, s)
	}
	return all, nil
}

func writeCaches(w io.Writer, all []cacheState) error {
	err := row(w, "NAME", "KIND", "HIT RATE", "NEAR HITS", "HITS", "STALE", "MISSES", "LOADS", "FAILED", "CLIENTS", "NEAR", "NOT CONNECTED")
	for _, s := range all {
		err = errors.Join(err, row(w, s.Name, s.Kind, s.Rate(), s.NearHits, s.Hits, s.Stale, s.Misses, s.Loads, s.Failures, len(s.Clients), s.Entries, s.Lost))
	}
	return err
}

// writeEach writes all there is to say of caches, one below the other.
func writeEach(w io.Writer, all []cacheState) (err error) {
	for i, s := range all {
		if i > 0 {
			err = errors.Join(err, row(w))
		}
		err = errors.Join(err, s.write(w))
	}
	return err
}

func (s *cacheState) write(w io.Writer) error {
	err := errors.Join(row(w, kinds.Words(s.Kind), s.Name), row(w, "hit rate", s.Rate()), row(w, "near hits", s.NearHits))
	if s.Kind == kinds.Cache {
		err = errors.Join(err, row(w, "hits", s.Hits), row(w, "stale", s.Stale))
	}
	err = errors.Join(err, row(w, "misses", s.Misses))
	if s.Kind == kinds.Cache {
		err = errors.Join(err, row(w, "loads", s.Loads), row(w, "failed", s.Failures))
	}
	if s.Length != nil {
		err = errors.Join(err, row(w, "length", *s.Length))
	}
	err = errors.Join(err, row(w), readerHeads(w, "CLIENT"))
	for _, c := range s.Clients {
		err = errors.Join(err, writeReader(w, c, c.Client))
	}
	return err
}

// readerHeads writes the heads of a table of what clients say of caches, some before the others.
func readerHeads(w io.Writer, first ...any) error {
	return row(w, append(first, "HIT RATE", "NEAR HITS", "HITS", "MISSES", "LOADS", "FAILED", "NEAR", "CONNECTED", "SINCE", "HEARD", "CHANGES", "AT MOST")...)
}

func writeReader(w io.Writer, c inspect.Reader, first ...any) error {
	cells := append(first, c.Rate(), c.NearHits, c.Hits, c.Misses, c.Loads, c.Failures)
	if n := c.Near; n != nil {
		cells = append(cells, n.Entries, yesOrNo(n.Connected), age(n.Since), ago(n.Heard), n.Invalidations, mostStale(n))
	}
	return row(w, cells...)
}

// writeClientCaches writes what a client says of its caches, if it has any.
func writeClientCaches(w io.Writer, r redlatch.ClientReport) error {
	if len(r.Caches) == 0 {
		return nil
	}
	err := errors.Join(row(w), readerHeads(w, "CACHES", "NAME"))
	for _, one := range inspect.CachesOf(r) {
		err = errors.Join(err, writeReader(w, one.Clients[0], kinds.Words(one.Kind), one.Name))
	}
	return err
}

func yesOrNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// mostStale says how old a near value may be; nothing if all caches that had some are gone.
func mostStale(n *redlatch.NearInfo) string {
	if n.MaxStale == 0 {
		return ""
	}
	return n.MaxStale.String()
}

// ago says how long ago something was.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return age(t) + " ago"
}

// cached is what Redis has of a key of a cache.
type cached struct {
	Name, Key string
	RedisKey  string
	Kept      string        // value, or none if the loader found nothing, or error; empty for nothing
	Bytes     int           // of the value
	Left      time.Duration // for how long it is kept
	Fresh     time.Duration // until it is refreshed; 0 if it is old
	LoadedBy  string        // owner id of the load under way; empty for none
	LoadLeft  time.Duration // of its claim, unless that is renewed
	Discarded bool          // that load's result will not be kept
	Error     string        // a failure that is kept
	Value     any           // nil if it is not to be shown
}

//go:embed cache.lua
var cacheSource string

// rawCache is a cache whose keys and values are not decoded. It says to near caches what it changes.
type rawCache = rcache.Cache[string, []byte]

func cacheOf(c *redlatch.Client, name string) *rawCache {
	return rcache.New[string, []byte](c, name, nil, rcache.WithNear(0), rcache.WithCodec(codec.Bytes{}))
}

// keptFor looks at a key of a cache.
func keptFor(ctx context.Context, c *redlatch.Client, name, key string, value bool) (cached, error) {
	cache := cacheOf(c, name)
	s := cached{Name: name, Key: key, RedisKey: cache.Key(key)}
	look := script.Embedded("redlatch.cache", &cacheSource)
	call, err := core.Of(c).Read(ctx, func() *script.Call { return look.Call(1, s.RedisKey, script.Flag(value)) })
	if err != nil {
		return s, fmt.Errorf("look at %q of %q: %w", key, name, err)
	}
	r := call.Row()
	ms := func() time.Duration { return time.Duration(r.Int()) * time.Millisecond }
	s.Kept, s.Bytes, s.Left, s.Fresh = r.Text(), int(r.Int()), ms(), ms()
	s.LoadedBy, s.LoadLeft = r.Text(), ms()
	s.Discarded = r.Int() == 0 && s.LoadedBy != ""
	data := r.Text()
	switch {
	case !value || s.Kept == "":
	case s.Kept == "error":
		s.Error = data
	case s.Kept == "value":
		s.Value = inspect.Decoded([]byte(data))
	}
	return s, r.Err()
}

func (s *cached) write(w io.Writer) error {
	err := errors.Join(row(w, "cache", s.Name), row(w, "key", s.Key), row(w, "redis key", s.RedisKey))
	switch s.Kept {
	case "":
		err = errors.Join(err, row(w, "kept", "nothing"))
	case "value":
		err = errors.Join(err, row(w, "kept", "a value of "+inspect.N(s.Bytes, "byte", "bytes")))
	case "none":
		err = errors.Join(err, row(w, "kept", "that the loader found nothing"))
	default:
		err = errors.Join(err, row(w, "kept", "that the load failed"))
	}
	if s.Kept != "" {
		err = errors.Join(err, row(w, "for", s.Left))
		switch {
		case s.Fresh == 0:
			err = errors.Join(err, row(w, "fresh for", "0s: it is old, and the next read has it refreshed"))
		case s.Fresh < s.Left:
			err = errors.Join(err, row(w, "fresh for", s.Fresh))
		}
	}
	if s.LoadedBy != "" {
		err = errors.Join(err, row(w, "loaded by", s.LoadedBy), row(w, "  claim left", s.LoadLeft))
		if s.Discarded {
			err = errors.Join(err, row(w, "", "its result will not be kept: Invalidate or Set came meanwhile"))
		}
	}
	if s.Error != "" {
		err = errors.Join(err, row(w, "error", s.Error))
	}
	if s.Value != nil {
		text, failed := json.Marshal(s.Value)
		err = errors.Join(err, failed, row(w, "value", string(text)))
	}
	return err
}

func (a *app) cacheGet() *cobra.Command {
	value := false
	cmd := &cobra.Command{
		Use: "get NAME KEY", Short: "What Redis keeps for a key of a cache, for how long, and who loads it", Args: exactly(2),
		Long: `What Redis keeps for a key of a cache, for how long and how long it is fresh, and which client loads it now. KEY is as it is
encoded: a text or a number is itself, unless the cache has rcache.WithKeyCodec. Clients may have other values near, see
stats. If Redis has nothing, the exit code is 1.

With --value it prints the value, or the failure that is kept: MessagePack and JSON are printed as JSON, other text as
it is, and other bytes in base64.`,
		Example: "  redlatch cache get users 42\n  redlatch cache get users 42 --value --json",
		RunE: a.checking(a.namesKeys, func(ctx context.Context, c *redlatch.Client, args []string) error {
			s, err := keptFor(ctx, c, args[0], args[1], value)
			if err != nil {
				return err
			}
			err = a.print(s, s.write)
			if err == nil && s.Kept == "" && s.LoadedBy == "" {
				err = &exit{exitFailed, fmt.Errorf("nothing is kept for the key %q of %q: it was not read, is over, or was invalidated; are they right?", args[1], args[0])}
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&value, "value", false, "print the value, which may be private")
	return cmd
}

// forgotten is what invalidate has done.
type forgotten struct {
	Keys int // that were invalidated
	Had  int // of which Redis had something
}

func (a *app) cacheInvalidate() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: "invalidate NAME KEY...", Short: "Have a cache forget keys, in Redis and near its clients", Args: checked(cobra.MinimumNArgs(2)),
		Long: `Have a cache forget keys, as rcache's Invalidate does: it deletes what Redis keeps, ends the near values of all clients,
and has the result of a load that is under way not be kept. The next read of each key loads. A cache without a loader
loses the values. KEY is as for get. It says for how many keys Redis had something; if for none, look at the name.

It is for caches (rcache). After a change of a near map (rmap) by redis-cli, clients return the old entry for as long as
rmap.WithMaxStale says, 30 s by default; a program that sets the entry ends it at once.`,
		Example: "  redlatch cache invalidate users 42 43 --yes",
		RunE: a.checking(a.namesKeys, func(ctx context.Context, c *redlatch.Client, args []string) error {
			name, keys := args[0], slices.Compact(slices.Sorted(slices.Values(args[1:])))
			done := forgotten{Keys: len(keys)}
			for _, key := range keys {
				s, err := keptFor(ctx, c, name, key, false)
				if err != nil {
					return err
				}
				if s.Kept != "" || s.LoadedBy != "" {
					done.Had++
				}
			}
			text := fmt.Sprintf("%s, Redis has something for %d", inspect.N(len(keys), "key", "keys"), done.Had)
			if err := a.confirm(ctx, yes, fmt.Sprintf("have %q forget %s?", name, text)); err != nil {
				return err
			}
			if err := cacheOf(c, name).Invalidate(ctx, keys...); err != nil {
				return err
			}
			return a.print(done, func(w io.Writer) error {
				return errors.Join(row(w, "cache", name), row(w, "invalidated", inspect.N(done.Keys, "key", "keys")), row(w, "redis had", done.Had))
			})
		}),
	}
	yesFlag(cmd, &yes)
	return cmd
}
