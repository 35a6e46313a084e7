// Thumbnails has pictures scaled by workers, and waits for the results.
//
//	go run ./examples/thumbnails
//	go run ./examples/thumbnails -redis redis://localhost:6379
//
// A site submits pictures to an executor, and a worker with a client of its own scales them, four at a time. One picture is submitted
// twice, and is scaled once. One cannot be read at first, and is tried again. One is no picture, and fails for good. One takes too long:
// the site cancels it, which ends the context of its handler. It takes about a second; the program ends with an error if a thumbnail is
// not as it should be.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rexecutor"
)

// picture are the arguments of the task: which picture is wanted, and how wide.
type picture struct {
	Name  string
	Width int
}

// thumbnail is its result.
type thumbnail struct {
	PNG           []byte
	Width, Height int
}

// attempts is after how many attempts a task has failed for good.
const attempts = 3

// scale is the task. The site and its workers import it from one package.
var scale = rexecutor.NewTask[picture, thumbnail]("scale", //nolint:gochecknoglobals // both sides have the same
	rexecutor.WithMaxAttempts(attempts), rexecutor.WithBackoff(func(int) time.Duration { return 200 * time.Millisecond }))

func main() {
	url := flag.String("redis", os.Getenv("REDIS_URL"), "`URL` of a Redis; default $REDIS_URL, and without that a server of its own")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx, *url); err != nil {
		log.Fatal("thumbnails: ", err)
	}
}

func run(ctx context.Context, url string) error {
	if url == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		url = server.URL()
	}
	name := "thumbnails-" + uuid.NewString()[:8]
	a := &archive{start: time.Now(), reads: map[string]int{}, begun: make(chan bool, attempts), ended: make(chan error, attempts)}

	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- work(working, url, name, a) }()

	client, err := redlatch.Open(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	err = site(ctx, rexecutor.New(client, name, rexecutor.WithResultTTL(time.Minute)), a)
	stop()
	return errors.Join(err, <-ended)
}

// work scales pictures until ctx ends. It could be another process.
func work(ctx context.Context, url, name string, a *archive) error {
	client, err := redlatch.Open(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	ex := rexecutor.New(client, name, rexecutor.WithResultTTL(time.Minute))
	if err := scale.Handle(ex, a.scale); err != nil {
		return err
	}
	return ex.Work(ctx, rexecutor.WithConcurrency(4))
}

// site submits pictures, and shows what comes back.
func site(ctx context.Context, ex *rexecutor.Executor, a *archive) error {
	names := []string{"cat.png", "cat.png", "dog.png", "fish.png", "faded.png"}
	futures := make([]*rexecutor.Future[thumbnail], len(names))
	for i, name := range names {
		f, err := scale.Submit(ctx, ex, picture{name, 40}, rexecutor.WithID(name)) // the same id is the same task
		if err != nil {
			return err
		}
		futures[i] = f
	}
	a.say("%d pictures are submitted", len(names))
	for i, f := range futures {
		t, err := f.Get(ctx) // waits for the result
		if err != nil {
			return err
		}
		made, err := png.Decode(bytes.NewReader(t.PNG))
		if err != nil {
			return err
		}
		if size := made.Bounds().Size(); size != image.Pt(40, 30) {
			return fmt.Errorf("the thumbnail of %s has %v", names[i], size)
		}
		a.say("%s: %d x %d, %d bytes", names[i], t.Width, t.Height, len(t.PNG))
	}
	for name, reads := range map[string]int{"cat.png": 1, "faded.png": 2} {
		if a.readsOf(name) != reads {
			return fmt.Errorf("%s was read %d times", name, a.readsOf(name))
		}
	}
	return errors.Join(fails(ctx, ex, a), cancels(ctx, ex, a))
}

// fails submits what is no picture.
func fails(ctx context.Context, ex *rexecutor.Executor, a *archive) error {
	f, err := scale.Submit(ctx, ex, picture{"notes.txt", 40})
	if err != nil {
		return err
	}
	_, err = f.Get(ctx)
	var failed *rexecutor.TaskError
	if !errors.As(err, &failed) || failed.Attempts != 1 {
		return errors.Join(errors.New("notes.txt did not fail at once"), err)
	}
	a.say("notes.txt: %s", failed.Text)
	if n, err := ex.Queue().Purge(ctx, rexecutor.Dead); n != 1 || err != nil { // until then it is kept, to be looked at and redriven
		return errors.Join(errors.New("the task that has failed was not removed"), err)
	}
	return nil
}

// cancels submits a picture that takes too long.
func cancels(ctx context.Context, ex *rexecutor.Executor, a *archive) error {
	f, err := scale.Submit(ctx, ex, picture{"panorama.png", 40})
	if err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err = f.Get(patience); !errors.Is(err, context.DeadlineExceeded) {
		return errors.Join(errors.New("panorama.png did not take long"), err)
	}
	select {
	case <-a.begun:
	case <-ctx.Done():
		return fmt.Errorf("nobody works on panorama.png: %w", ctx.Err())
	}
	status, err := f.Status(ctx)
	if err != nil {
		return err
	}
	a.say("panorama.png: %s after 300 ms, so it is cancelled", status.State)
	if ok, err := f.Cancel(ctx); !ok || err != nil {
		return errors.Join(errors.New("panorama.png could not be cancelled"), err)
	}
	if _, err := f.Get(ctx); !errors.Is(err, rexecutor.ErrCancelled) {
		return errors.Join(errors.New("panorama.png is not cancelled"), err)
	}
	select {
	case cause := <-a.ended:
		if !errors.Is(cause, rexecutor.ErrCancelled) {
			return fmt.Errorf("the handler of panorama.png ended for another reason: %w", cause)
		}
		a.say("panorama.png: its handler has ended")
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the handler of panorama.png goes on: %w", ctx.Err())
	}
}

// archive is where the worker finds the pictures.
type archive struct {
	start time.Time
	begun chan bool  // that somebody works on panorama.png
	ended chan error // why that ended

	mu    sync.Mutex
	reads map[string]int
}

func (a *archive) say(format string, args ...any) {
	fmt.Printf("%5d ms  %s\n", time.Since(a.start).Milliseconds(), fmt.Sprintf(format, args...))
}

func (a *archive) readsOf(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reads[name]
}

// read returns a picture, which takes a while, and of panorama.png too long.
func (a *archive) read(ctx context.Context, name string) ([]byte, error) {
	a.mu.Lock()
	a.reads[name]++
	first := a.reads[name] == 1
	a.mu.Unlock()
	takes := 100 * time.Millisecond
	if name == "panorama.png" {
		takes = time.Hour
		a.begun <- true
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		a.ended <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	}
	switch {
	case name == "notes.txt":
		return []byte("buy milk"), nil
	case name == "faded.png" && first:
		return nil, errors.New("the archive does not answer")
	}
	return paint(400, 300)
}

// paint returns a picture of red and green.
func paint(width, height int) ([]byte, error) {
	canvas := image.NewRGBA(image.Rect(0, 0, width, height))
	for x := range width {
		for y := range height {
			canvas.Set(x, y, color.RGBA{R: uint8(x * 255 / width), G: uint8(y * 255 / height), A: 255})
		}
	}
	var data bytes.Buffer
	err := png.Encode(&data, canvas)
	return data.Bytes(), err
}

// scale is the handler of the task.
func (a *archive) scale(ctx context.Context, c rexecutor.Call[picture]) (thumbnail, error) {
	data, err := a.read(ctx, c.Args.Name)
	if err != nil {
		if ctx.Err() == nil {
			a.say("%s: attempt %d: %v", c.Args.Name, c.Attempt, err)
		}
		return thumbnail{}, err // it is tried again, unless it was cancelled
	}
	original, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return thumbnail{}, rexecutor.Reject(fmt.Errorf("not a picture: %w", err)) // no attempt would help
	}
	size := original.Bounds().Size()
	width, height := c.Args.Width, c.Args.Width*size.Y/size.X
	small := image.NewRGBA(image.Rect(0, 0, width, height))
	for x := range width {
		for y := range height {
			small.Set(x, y, original.At(x*size.X/width, y*size.Y/height))
		}
	}
	var made bytes.Buffer
	if err := png.Encode(&made, small); err != nil {
		return thumbnail{}, err
	}
	return thumbnail{made.Bytes(), width, height}, nil
}
