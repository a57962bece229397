package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	own "github.com/gatehouse-go/gatehouse/core/embedded"
)

// store is the demo's Redis: one inside the process, or that of REDIS_URL.
type store struct {
	client *redis.Client
	prefix string // of all keys

	mu       sync.Mutex
	embedded *miniredis.Miniredis // nil: REDIS_URL's
	away     bool
}

// connect makes a client for the Redis at redisURL, or for one inside this process when redisURL is empty.
// It sends nothing.
func connect(redisURL string) (*store, error) {
	client, inside, err := own.Connect(redisURL)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	return &store{client: client, prefix: prefix, embedded: inside}, nil
}

func (s *store) close() {
	_ = s.client.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.embedded != nil {
		s.embedded.Close()
	}
}

// switchable reports whether the Redis can be taken away: only one inside the process can.
func (s *store) switchable() bool { return s.embedded != nil }

// isAway reports whether the switch has taken Redis away.
func (s *store) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// takeAway closes the port of the Redis inside the process, with all connections. Its data stay.
func (s *store) takeAway() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.embedded == nil {
		return errNotOurs
	}
	if !s.away {
		s.embedded.Close()
		s.away = true
	}
	return nil
}

// giveBack opens the port again, with the data from before.
func (s *store) giveBack() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.embedded == nil || !s.away {
		return nil
	}
	if err := s.embedded.Restart(); err != nil {
		return fmt.Errorf("start the Redis inside the process again: %w", err)
	}
	s.away = false
	return nil
}

// clear deletes the keys of the demo whose names match a pattern.
func (s *store) clear(ctx context.Context, pattern string) error {
	scan := s.client.Scan(ctx, 0, s.prefix+":"+pattern, 500).Iterator()
	for scan.Next(ctx) {
		if err := s.client.Unlink(ctx, scan.Val()).Err(); err != nil {
			return err
		}
	}
	return scan.Err()
}

// worker is a process of its own as far as Redis can tell: it has its own connections and its own engine.
type worker struct {
	client *redis.Client
	gate   *core.Engine
}

// hire starts a worker. Its errors are part of the show, and not logged.
func (s *store) hire() *worker {
	options := *s.client.Options()
	client := redis.NewClient(&options)
	return &worker{client, core.New(client, core.WithPrefix(s.prefix), core.WithDeadline(deadline),
		core.WithObserver(&watch{}), core.WithLogger(slog.New(slog.DiscardHandler)))}
}

// kill cuts the worker's connections for good: from then on Redis hears nothing of it, as of a process that
// has died. It may be called twice.
func (w *worker) kill() { _ = w.client.Close() }

// deadline is the engines': hundreds of shoppers and the Redis share one machine, and the default of 100 ms
// would be too short for that.
const deadline = 5 * time.Second
