// Leaderboard keeps the scores of a game that runs in three processes.
//
//	go run ./examples/leaderboard
//
// Watch that points which three processes add at once are all counted; that the best lap of a player is kept whatever order
// the laps arrive in; and that a player's rank and neighbours come in one round trip each, however many players there are.
// The program ends with an error if a point is missing or a worse lap replaced a better one.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rsortedset"
)

const (
	players = 1000
	games   = 3000 // in each process
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal("leaderboard: ", err) //nolint:gocritic // the context ends with the process
	}
}

// board is the leaderboard as one process sees it.
type board struct {
	points *rsortedset.SortedSet[string] // the sum of each player's points
	laps   *rsortedset.SortedSet[string] // the best lap of each player, in seconds
}

func run(ctx context.Context) error {
	redis, err := embedded.Start() // in production: the Redis that all processes have
	if err != nil {
		return err
	}
	defer redis.Close()
	var boards []board
	for range 3 { // as if they were processes: each has a client of its own
		client, err := redlatch.Open(ctx, redis.URL())
		if err != nil {
			return err
		}
		defer client.Close()
		boards = append(boards, board{rsortedset.New[string](client, "points"), rsortedset.New[string](client, "laps")})
	}

	start := time.Now()
	best, err := play(ctx, boards)
	if err != nil {
		return err
	}
	fmt.Printf("%d games in three processes took %v\n", len(boards)*games, time.Since(start).Round(time.Millisecond))
	return look(ctx, boards[0], best)
}

// play plays all games, and returns the best lap of all.
func play(ctx context.Context, boards []board) (best float64, err error) {
	var mu sync.Mutex // guards best and err
	best = 1000
	var all sync.WaitGroup
	for _, b := range boards {
		for range 8 { // games at a time
			all.Go(func() {
				for range games / 8 {
					player, lap := fmt.Sprintf("player-%03d", rand.IntN(players)), 60+rand.Float64()*60
					_, err1 := b.points.AddScore(ctx, player, 1)
					_, err2 := b.laps.Add(ctx, player, lap, rsortedset.IfLess())
					mu.Lock()
					best, err = min(best, lap), errors.Join(err, err1, err2)
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	return best, err
}

// look prints the board and checks it.
func look(ctx context.Context, b board, best float64) error {
	top, err := b.points.RangeDesc(ctx, 0, 2)
	if err != nil {
		return err
	}
	for place, e := range top {
		fmt.Printf("%d. %s  %g points\n", place+1, e.Value, e.Score)
	}
	me := top[2].Value
	start := time.Now()
	rank, _, err := b.points.RankDesc(ctx, me)
	if err != nil {
		return err
	}
	around, err := b.points.RangeDesc(ctx, max(0, rank-1), rank+1)
	if err != nil {
		return err
	}
	fmt.Printf("around %s, at place %d: %v, found in %v\n", me, rank+1, around, time.Since(start).Round(time.Microsecond))

	fastest, err := b.laps.Range(ctx, 0, 0)
	if err != nil {
		return err
	}
	fmt.Printf("best lap: %s in %.3f s\n", fastest[0].Value, fastest[0].Score)
	if fastest[0].Score != best {
		return fmt.Errorf("the best lap took %v s", best)
	}
	sum := 0.0
	for e, err := range b.points.All(ctx) {
		if err != nil {
			return err
		}
		sum += e.Score
	}
	if played := float64(3 * (games / 8) * 8); sum != played { // nobody plays now, so All has each player once
		return fmt.Errorf("%v points were given, and there are %v", played, sum)
	}
	fmt.Printf("all %v points are there\n", sum)
	return nil
}
