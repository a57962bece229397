package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/lua"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// askLimit sends a request through a limit. Event: "done", with the answer, what it means, who decided, and
// the scripts that ran: none where the process decided.
func askLimit(ctx context.Context, in *instance, t *tape) error {
	guarded := ratelimit.HTTP(ratelimit.Rule{Guard: in.explained, Who: keyfuncs.IP()})
	ctx, trace := withTrace(ctx)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/limited", nil)
	r.RemoteAddr = "127.0.0.1:40000"
	w := httptest.NewRecorder()
	guarded(http.HandlerFunc(in.hello)).ServeHTTP(w, r)
	trace.mu.Lock()
	defer trace.mu.Unlock()
	t.send("done", object{"status": w.Code, "text": http.StatusText(w.Code), "fields": explain(w.Header()),
		"body": strings.TrimSpace(w.Body.String()), "source": trace.source, "calls": trace.calls})
	return nil
}

// meanings are those of the header fields and of their parameters. # stands for the value.
var meanings = map[string]string{
	"RateLimit-Policy": "the name of the limit, which is its guard's",
	"q":                "at most # requests",
	"w":                "in any window of # seconds",
	"RateLimit":        "the limit that these figures belong to",
	"r":                "# requests are left",
	"t":                "in # seconds there is at least one more",
	"Retry-After":      "wait # seconds: before that, no request can pass",
}

// field is a header field, and what its parts mean.
type field struct {
	Name  string      `json:"name"`
	Value string      `json:"value"`
	Parts [][2]string `json:"parts"`
}

// explain returns the fields that are about the limit.
func explain(h http.Header) (fields []field) {
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		if h.Get(name) == "" {
			continue
		}
		f := field{Name: name, Value: h.Get(name)}
		for part := range strings.SplitSeq(f.Value, ";") { // no name of a guard here has a semicolon
			key, value, found := strings.Cut(part, "=")
			if !found {
				key, value = name, part
			}
			meaning := strings.ReplaceAll(meanings[key], "#", value)
			f.Parts = append(f.Parts, [2]string{part, strings.Replace(meaning, " 1 seconds", " 1 second", 1)})
		}
		fields = append(fields, f)
	}
	return fields
}

// trace collects what the guards did for a request whose context has it: who decided, and the scripts that
// were sent to Redis.
type trace struct {
	mu     sync.Mutex
	source string
	calls  []scriptCall
}

type traceKey struct{}

// scriptCall is a script as it was sent.
type scriptCall struct {
	Command string   `json:"command"` // EVALSHA or EVAL
	Script  string   `json:"script"`  // its file
	Source  string   `json:"source"`
	Keys    []string `json:"keys"`
	Args    []string `json:"args"`
	Reply   string   `json:"reply"`
}

func withTrace(ctx context.Context) (context.Context, *trace) {
	t := &trace{calls: []scriptCall{}}
	return context.WithValue(ctx, traceKey{}, t), t
}

func (t *trace) decidedBy() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.source
}

// tracer is a hook of the client: it hands the scripts that are sent to the trace of their context.
type tracer struct{}

// DialHook implements redis.Hook.
func (tracer) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (tracer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer traceCalls(ctx, cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (tracer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer traceCalls(ctx, cmds...)
		return next(ctx, cmds)
	}
}

// scripts are the files of the scripts, by hash.
var scripts = func() map[string]scriptCall {
	all := map[string]scriptCall{}
	for _, name := range lua.Names() {
		source := lua.Source(name)
		sha := script.New(path.Base(name), source, script.AtMostOnce).SHA()
		all[sha] = scriptCall{Script: "lua/" + name + ".lua", Source: source}
	}
	return all
}()

// traceCalls hands scripts to the trace of a context, if it has one. A script that the server did not know is
// sent again, with its source.
func traceCalls(ctx context.Context, cmds ...redis.Cmder) {
	t, ok := ctx.Value(traceKey{}).(*trace)
	if !ok {
		return
	}
	for _, cmd := range cmds {
		args := cmd.Args()
		evaluates := cmd.Name() == "evalsha" || cmd.Name() == "eval"
		if !evaluates || len(args) < 3 || redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			continue
		}
		sha := fmt.Sprint(args[1])
		if cmd.Name() == "eval" {
			sha = script.New("sent", sha, script.AtMostOnce).SHA()
		}
		call := scripts[sha]
		call.Command, call.Reply = strings.ToUpper(cmd.Name()), "no reply"
		call.Keys, call.Args = []string{}, []string{}
		keys, _ := args[2].(int)
		for i, arg := range args[3:] {
			if i < keys {
				call.Keys = append(call.Keys, fmt.Sprint(arg))
			} else {
				call.Args = append(call.Args, fmt.Sprint(arg))
			}
		}
		if c, ok := cmd.(interface{ Val() any }); ok && cmd.Err() == nil {
			call.Reply = fmt.Sprint(c.Val())
		}
		t.mu.Lock()
		t.calls = append(t.calls, call)
		t.mu.Unlock()
	}
}
