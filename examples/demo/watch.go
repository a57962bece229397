package main

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

// watch is an observer of an engine: it knows the breaker, and tells traces who decided.
type watch struct {
	mu     sync.Mutex
	closes breakerState // as it was closed the last time
}

// breakerState is what the page shows of the breaker.
type breakerState struct {
	Open    bool  `json:"open"`
	OpenMS  int64 `json:"open_ms"`  // how long it is, or the last time was, open
	NotSent int64 `json:"not_sent"` // calls that were not sent while it is, or the last time was, open
	Opened  int64 `json:"opened"`   // how often it has opened
}

// Observe implements core.Observer.
func (w *watch) Observe(ctx context.Context, e core.Event) {
	if t, ok := ctx.Value(traceKey{}).(*trace); ok && e.Decided() {
		t.mu.Lock()
		t.source = e.Source()
		t.mu.Unlock()
	}
	if e.Breaker == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Breaker.Open {
		w.closes.Opened++
		return
	}
	w.closes.OpenMS, w.closes.NotSent = e.Took.Milliseconds(), e.Breaker.NotSent
}

// breaker is how the breaker stands. While it is open the engine knows how many calls were not sent.
func (in *instance) breaker() breakerState {
	in.watch.mu.Lock()
	state := in.watch.closes
	in.watch.mu.Unlock()
	for _, b := range in.gate.OpenBreakers() { // one at most: there is one server
		state.Open, state.OpenMS, state.NotSent = true, b.For.Milliseconds(), b.NotSent
	}
	return state
}

// trace collects what the guards did for a request whose context has it.
type trace struct {
	mu     sync.Mutex
	source string
	calls  []scriptCall
}

type traceKey struct{}

// scriptCall is a script as it was sent to Redis.
type scriptCall struct {
	Command string   `json:"command"` // EVALSHA or EVAL
	Script  string   `json:"script"`  // its file in the folder lua
	Source  string   `json:"source"`
	Keys    []string `json:"keys"`
	Args    []string `json:"args"`
	Reply   string   `json:"reply"`
}

func withTrace(ctx context.Context) (context.Context, *trace) {
	t := &trace{}
	return context.WithValue(ctx, traceKey{}, t), t
}

// tracer is a hook of the client: it hands the scripts that are sent to the trace of their context.
type tracer struct{}

// DialHook implements redis.Hook.
func (tracer) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (tracer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		add(ctx, cmd)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (tracer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		add(ctx, cmds...)
		return err
	}
}

// add hands commands to the trace of a context, if it has one.
func add(ctx context.Context, cmds ...redis.Cmder) {
	if t, ok := ctx.Value(traceKey{}).(*trace); ok {
		for _, cmd := range cmds {
			t.add(cmd)
		}
	}
}

// sources are the scripts that a limit of one window may run, by hash.
var sources = func() map[string]scriptCall {
	all := map[string]scriptCall{}
	for _, name := range []string{
		"limit/sliding_window", "limit/sliding_windows", "limit/sliding_parts", "limit/sliding_log",
	} {
		source := lua.Source(name)
		sha := script.New(path.Base(name), source, script.AtMostOnce).SHA()
		all[sha] = scriptCall{Script: "lua/" + name + ".lua", Source: source}
	}
	return all
}()

// add keeps a command that runs a script. One that the server did not know is sent again, with its source.
func (t *trace) add(cmd redis.Cmder) {
	args := cmd.Args()
	name := cmd.Name()
	if name != "evalsha" && name != "eval" || len(args) < 3 || redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return
	}
	text := fmt.Sprint(args[1])
	if name == "eval" {
		text = script.New("sent", text, script.AtMostOnce).SHA()
	}
	call := sources[text]
	call.Command, call.Keys, call.Args = strings.ToUpper(name), []string{}, []string{}
	keys, _ := args[2].(int)
	for i, arg := range args[3:] {
		if i < keys {
			call.Keys = append(call.Keys, fmt.Sprint(arg))
		} else {
			call.Args = append(call.Args, fmt.Sprint(arg))
		}
	}
	call.Reply = "no reply"
	if c, ok := cmd.(interface{ Val() any }); ok && cmd.Err() == nil {
		call.Reply = fmt.Sprint(c.Val())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, call)
}
