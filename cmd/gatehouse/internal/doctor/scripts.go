package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/everyscript"
	"github.com/gatehouse-go/gatehouse/lua"
)

// key puts a key of a step below the scratch prefix. On a cluster its hash tag becomes one of this server.
func (s *server) key(ctx context.Context, key string) (string, error) {
	open, shut := strings.IndexByte(key, '{'), strings.IndexByte(key, '}')
	if s.cluster == nil {
		return s.prefix + key, nil
	}
	tag := key[open+1 : shut]
	salt, ok := s.salts[tag]
	for n := 0; !ok; n++ {
		if n > 100_000 {
			return "", errors.New("it has no slots")
		}
		salt = strconv.Itoa(n)
		master, err := s.cluster.MasterForKey(ctx, "{"+salt+tag+"}")
		if err != nil {
			return "", err
		}
		ok = master.Options().Addr == s.Options().Addr
	}
	s.salts[tag] = salt
	return s.prefix + key[:open+1] + salt + key[open+1:], nil
}

// refusal is an error that scripts got, and the guards and scripts that got it.
type refusal struct {
	says, command   string
	guards, scripts map[string]bool
}

// runScripts runs every script below the scratch prefix, as applications do: whole at first, then by its
// SHA-1. All go out in one pipeline whose last commands delete the keys, even if this process dies meanwhile.
func (s *server) runScripts(ctx context.Context) error {
	steps, scratch, sent := everyscript.Steps(), map[string]bool{}, map[string]bool{}
	pipe := s.Pipeline()
	var calls []*redis.Cmd
	for _, step := range steps {
		keys := make([]string, len(step.Keys))
		for i := range keys {
			key, err := s.key(ctx, step.Keys[i])
			if err != nil {
				return err
			}
			keys[i], scratch[key] = key, true
		}
		args := make([]any, len(step.Args))
		for i, arg := range step.Args {
			args[i] = arg
			if everyscript.IsChannel(arg) {
				channel, err := s.key(ctx, arg)
				if err != nil {
					return err
				}
				args[i] = channel
			}
		}
		script := redis.NewScript(lua.Source(step.Script))
		run := script.Eval
		if sent[step.Script] {
			run = script.EvalSha
		}
		calls = append(calls, run(ctx, pipe, keys, args...))
		sent[step.Script] = true
	}
	remain := s.forget(pipe, scratch)
	whole, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if _, err := pipe.Exec(whole); err != nil && !fromServer(err) {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
		defer cancel()
		again := s.Pipeline()
		s.forget(again, scratch)
		_, _ = again.Exec(late) // it is not to be reached; what is left expires
		return err
	}
	s.diagnose(steps, calls)
	if remain() {
		s.report(stateNote, "scripts", fmt.Sprintf("DEL is refused: up to %d keys stay below %s until they expire",
			len(scratch), s.prefix))
	}
	return nil
}

// forget deletes keys at the end of a pipeline. remain reports then whether it was refused.
func (s *server) forget(pipe redis.Pipeliner, keys map[string]bool) (remain func() bool) {
	var all []*redis.IntCmd // key by key, since they are in several slots
	for key := range keys {
		all = append(all, pipe.Del(context.Background(), key))
	}
	return func() bool {
		return slices.ContainsFunc(all, func(c *redis.IntCmd) bool { return c.Err() != nil })
	}
}

// fromServer reports whether an error is a reply.
func fromServer(err error) bool {
	reply := redis.Error(nil)
	return errors.As(err, &reply)
}

// diagnose says which scripts were refused, or answer otherwise than everywhere else. After a refusal the
// answers of later steps say nothing.
func (s *server) diagnose(steps []everyscript.Step, calls []*redis.Cmd) {
	refused, wrong, broken := map[string]*refusal{}, map[string]bool{}, map[string]bool{}
	for i, step := range steps {
		reply, err := calls[i].Result()
		guard := guardOf(step.Script)
		follows := err != nil && len(refused) > 0 &&
			(strings.HasPrefix(err.Error(), "NOSCRIPT") || strings.HasPrefix(err.Error(), "GATEHOUSE"))
		switch {
		case err == nil || errors.Is(err, redis.Nil):
			if !step.Answered(everyscript.Text(reply)) {
				wrong[step.Script] = true
			}
		case !follows:
			r := refusalOf(step.Script, err)
			if refused[r.says] == nil {
				refused[r.says] = &r
			}
			refused[r.says].guards[guard], refused[r.says].scripts[step.Script] = true, true
			broken[step.Script] = true
		}
	}
	if len(refused) == 0 {
		broken = wrong
	}
	s.ran = s.scripts - len(broken)
	for _, says := range slices.Sorted(maps.Keys(refused)) {
		r := refused[says]
		if r.command != "" && !slices.Contains(s.missing, r.command) {
			s.missing = append(s.missing, r.command)
		}
		s.report(stateProblem, "scripts", fmt.Sprintf("%d refused: %s", len(r.scripts), says),
			slices.Sorted(maps.Keys(r.guards))...)
	}
	if len(refused) == 0 {
		s.answers(wrong)
	}
}

// answers says which scripts answer otherwise.
func (s *server) answers(wrong map[string]bool) {
	if len(wrong) == 0 {
		s.report(stateOK, "scripts", fmt.Sprintf("%d of %d run, and answer as they should", s.ran, s.scripts))
		return
	}
	guards := map[string]bool{}
	for name := range wrong {
		guards[guardOf(name)] = true
	}
	s.report(stateProblem, "scripts", "other answers than on Redis: "+
		strings.Join(slices.Sorted(maps.Keys(wrong)), ", "), slices.Sorted(maps.Keys(guards))...)
}

// guardOf returns the guard that a script is of: its folder, but for scripts of several guards.
func guardOf(script string) string {
	switch folder, _, _ := strings.Cut(script, "/"); folder {
	case "core":
		return everyGuard
	case "semaphore":
		return "lock and semaphore"
	default:
		return folder
	}
}

var (
	deniedCommand = regexp.MustCompile(`the '([^']+)' command`)
	scriptLine    = regexp.MustCompile(`user_script:\s*(\d+)`)
	redisCall     = regexp.MustCompile(`redis\.call\('(\w+)'`)
)

// remedies are by the first word of an error.
var remedies = map[string]string{
	"READONLY":    "it is a replica: name its primary",
	"MOVED":       "it is a server of a cluster: pass -cluster",
	"CROSSSLOT":   "it is a cluster: pass -cluster",
	"CLUSTERDOWN": "the cluster misses slots or masters",
	"OOM":         "the memory is full: raise maxmemory",
	"MISCONF":     "it cannot write its snapshot",
	"NOREPLICAS":  "it has fewer replicas than min-replicas-to-write",
	"LOADING":     "it still loads its data: try again",
	"NOPERM":      "docs/running-on.md has the lines that allow it",
}

// refusalOf says what a server refused, and what to do. Where the error tells the line of the script, that
// has the command; of a server that refuses all writes it does not matter.
func refusalOf(script string, err error) refusal {
	r := refusal{guards: map[string]bool{}, scripts: map[string]bool{}}
	text, _, _ := strings.Cut(err.Error(), " script: ")
	word, _, _ := strings.Cut(text, " ")
	remedy := remedies[word]
	if m := scriptLine.FindStringSubmatch(err.Error()); m != nil && (word == "NOPERM" || word == "ERR") {
		r.command = commandAt(script, m[1])
		if strings.Contains(text, "nknown") {
			remedy = "the server does not have it, or under another name"
		} else {
			remedy = remedies["NOPERM"]
		}
	} else if m := deniedCommand.FindStringSubmatch(text); m != nil {
		r.command = strings.ToUpper(m[1])
	}
	r.says = text
	if r.command != "" {
		r.says = r.command + ": " + text
	}
	if remedy != "" {
		r.says += " (" + remedy + ")"
	}
	return r
}

// commandAt returns the command that a script calls in a line, or in the line in which the call begins.
func commandAt(script, line string) string {
	lines := strings.Split(lua.Source(script), "\n")
	n, err := strconv.Atoi(line)
	for ; err == nil && n > 0 && n <= len(lines); n-- {
		if m := redisCall.FindStringSubmatch(lines[n-1]); m != nil {
			return m[1]
		}
	}
	return ""
}

// tryCommands sends the commands that guards and clients send besides scripts.
func (s *server) tryCommands(ctx context.Context) error {
	key, err := s.key(ctx, "{commands}")
	if err != nil {
		return err
	}
	kept, all := []string{"seckill", "votes"}, []string{everyGuard}
	const slower = "waiting for permits and locks takes up to half a second longer"
	tries := []struct {
		args    []any
		without string
		state   string
		guards  []string
	}{
		{[]any{"PING"}, "subscriptions end after three quiet seconds", stateNote, nil},
		{[]any{"SCRIPT", "LOAD", "return 1"}, "Engine.Preload fails; calls send scripts", stateNote, nil},
		{[]any{"PUBLISH", key, ""}, slower, stateNote, nil},
		{[]any{"SUBSCRIBE", key}, slower, stateNote, nil},
		{[]any{"WAIT", "1", "1"}, "sales with seckill.Acked are unconfirmed", stateNote, nil},
		{[]any{"XRANGE", key, "-", "+"}, "Events, Audit and Void fail", stateProblem, kept},
		{[]any{"XREVRANGE", key, "+", "-"}, "Events, Audit and Void fail", stateProblem, kept},
		{[]any{"HSCAN", key, "0"}, "Verify and Repair fail", stateProblem, kept},
		{[]any{"HMGET", key, "f"}, "Verify and Repair fail", stateProblem, kept},
		{[]any{"ZCARD", key}, "Verify and Repair fail", stateProblem, kept},
		{[]any{"ZMSCORE", key, "m"}, "Verify and Repair fail", stateProblem, kept},
		{[]any{"CLUSTER", "SLOTS"}, "a *redis.ClusterClient finds no servers", stateProblem, all},
		{[]any{"COMMAND"}, "a *redis.ClusterClient logs an error per call", stateNote, nil},
		{[]any{"ASKING"}, "calls fail on moved keys while their slot moves", stateProblem, all},
	}
	if s.cluster == nil {
		tries = tries[:len(tries)-3]
	}
	for _, t := range tries {
		name := fmt.Sprint(t.args[0])
		if name == "SCRIPT" || name == "CLUSTER" {
			name += " " + fmt.Sprint(t.args[1])
		}
		var err error
		if name == "SUBSCRIBE" {
			err = s.subscribe(ctx, key)
		} else {
			_, err = s.ask(ctx, t.args...)
		}
		if err != nil && !errors.Is(err, redis.Nil) { // a proxy may also end the connection
			says, _, _ := strings.Cut(err.Error(), ", with args")
			s.report(t.state, "commands", fmt.Sprintf("%s: %s: %s", name, says, t.without), t.guards...)
			if !slices.Contains(s.missing, name) {
				s.missing = append(s.missing, name)
			}
		}
	}
	if !slices.ContainsFunc(s.found, func(f finding) bool { return f.Item == "commands" }) {
		s.report(stateOK, "commands", fmt.Sprintf("%d that guards and clients send besides scripts", len(tries)))
	}
	return nil
}

func (s *server) subscribe(ctx context.Context, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	subscription := s.Subscribe(ctx, channel)
	defer func() { _ = subscription.Close() }()
	_, err := subscription.Receive(ctx)
	return err
}
