// Package embedded gives a program a Redis inside its own process, so that it runs with nothing beside it:
//
//	gate := core.New(embedded.Unless(os.Getenv("REDIS_URL")))
//
// With REDIS_URL set, the same program runs on that Redis. All guards work on the one inside. It is for first
// steps, demonstrations and tests: what it holds belongs to one process, and is lost when that ends. It is a
// miniredis, which only programs that import this package compile.
package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Unless returns a client of the Redis at url, such as redis://user:password@127.0.0.1:6379/0. If url is
// empty, it starts a Redis inside the process, says so in one line of the log, and returns a client of that.
//
// Unless is for the beginning of a program: like the functions that make guards it panics where that cannot
// work, and the panic says what to do. It sends nothing to the Redis at url: a program starts while Redis is
// down. See [Connect] for a program that handles the error or stops the Redis.
func Unless(url string) *redis.Client {
	client, inside, err := Connect(url)
	if err != nil {
		panic(err.Error())
	}
	if inside != nil {
		slog.Info("gatehouse: no URL of a Redis was given, so one runs inside this process: no other process " +
			"shares its counts, and they are lost when this one ends")
	}
	return client
}

// Connect is [Unless] for a program that handles the error, and that says itself what it runs on: inside is
// the Redis inside the process, which runs until its Close, or nil if url names another one.
//
// An error does not contain the URL, which may have a password.
func Connect(url string) (client *redis.Client, inside *miniredis.Miniredis, err error) {
	if url != "" {
		options, err := parse(url)
		if err != nil {
			return nil, nil, err
		}
		return redis.NewClient(options), nil, nil
	}
	// It has a port of 127.0.0.1. A net.Pipe buffers nothing, so it blocks when a pipeline is longer than what
	// the server reads before it replies.
	inside = miniredis.NewMiniRedis()
	if err := inside.Start(); err != nil {
		return nil, nil, fmt.Errorf("embedded: no Redis can be started inside this process (%w): "+
			"give the URL of another one", err)
	}
	inside.ClockTTL(true) // keys expire with time, as in Redis
	return redis.NewClient(tuned(&redis.Options{Addr: inside.Addr(), MaxRetries: 1})), inside, nil
}

// tuned sets what guards want of a client: calls keep their deadline without a goroutine each, and a port
// that refuses connections is not dialled again and again, so that a call fails at once and says why.
func tuned(options *redis.Options) *redis.Options {
	options.ContextTimeoutEnabled = true
	options.DialerRetries = 1
	return options
}

// parse reads a URL. go-redis and net/url quote parts of a bad one in their errors, such as what follows a
// colon, which may be part of a password: so the errors here are fixed texts.
func parse(url string) (*redis.Options, error) {
	const write = ": write it as redis://user:password@127.0.0.1:6379/0, or leave it out for a Redis " +
		"inside this process"
	scheme, _, found := strings.Cut(url, "://")
	if !found || scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return nil, errors.New("embedded: the URL of Redis does not begin with redis://, rediss:// or unix://" +
			write)
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("embedded: the URL of Redis cannot be read" + write +
			"; in a password, a character such as # or / is written as its percent code")
	}
	return tuned(options), nil
}
