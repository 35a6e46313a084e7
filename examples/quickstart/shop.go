package main

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// order is one that nobody pays for; its time to pay is over in the given round.
type order struct{ id, items, round int }

func allOrders() []order {
	return []order{
		{1, 2, 0},
		{2, 1, 0},
		{3, 4, 0},
		{4, 1, 0},
		{5, 3, 1},
		{6, 1, 1},
		{7, 2, 1},
		{8, 5, 1},
		{9, 1, 2},
		{10, 2, 2},
		{11, 3, 3},
		{12, 1, 3},
	}
}

// badOrder is the id of the order that crashes the worker that is the first to touch it.
const badOrder = 6

// shop is the orders and the stock of one run, in plain keys of Redis.
type shop struct {
	rdb    *redis.Client
	prefix string // of its keys
}

func (s *shop) key(name string) string { return s.prefix + name }

// open takes all orders; the first round begins at the time given.
func (s *shop) open(ctx context.Context, first time.Time) error {
	for _, o := range allOrders() {
		due := first.Add(time.Duration(o.round) * time.Second).UnixMilli()
		if err := s.rdb.ZAdd(ctx, s.key("unpaid"), redis.Z{Score: float64(due), Member: o.id}).Err(); err != nil {
			return err
		}
	}
	return nil
}

// unpaid returns the orders whose time to pay is over.
func (s *shop) unpaid(ctx context.Context) ([]order, error) {
	ids, err := s.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: s.key("unpaid"), Start: "-inf", Stop: time.Now().UnixMilli(), ByScore: true,
	}).Result()
	if err != nil {
		return nil, err
	}
	var due []order
	for _, o := range allOrders() {
		for _, id := range ids {
			if id == strconv.Itoa(o.id) {
				due = append(due, o)
			}
		}
	}
	return due, nil
}

// crashes reports whether the order crashes its worker. It does so once.
func (s *shop) crashes(ctx context.Context, o order) bool {
	return o.id == badOrder && s.rdb.SetNX(ctx, s.key("crashed"), 1, time.Minute).Val()
}

// close closes an order and puts its stock back. It trusts its caller that the order is still open.
func (s *shop) close(ctx context.Context, o order) error {
	_, err := s.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRem(ctx, s.key("unpaid"), o.id)
		p.HIncrBy(ctx, s.key("closed"), strconv.Itoa(o.id), 1)
		p.IncrBy(ctx, s.key("stock"), int64(o.items))
		return nil
	})
	return err
}

// done reports whether every order was closed.
func (s *shop) done(ctx context.Context) (bool, error) {
	left, err := s.rdb.ZCard(ctx, s.key("unpaid")).Result()
	return left == 0, err
}

// closed returns how often an order was closed.
func (s *shop) closed(ctx context.Context, o order) int {
	n, _ := s.rdb.HGet(ctx, s.key("closed"), strconv.Itoa(o.id)).Int() // an order that was never closed is not there
	return n
}

func (s *shop) clear(ctx context.Context) {
	s.rdb.Del(ctx, s.key("unpaid"), s.key("closed"), s.key("stock"), s.key("crashed"))
}
