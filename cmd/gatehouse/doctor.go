package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/lua"
)

// What a finding says: all is well, something to know, a promise that does not hold, something unseen.
const (
	stateOK      = "ok"
	stateNote    = "note"
	stateProblem = "problem"
	stateUnseen  = "unseen"
)

// finding is what the doctor has found out about one item of a server.
type finding struct {
	Item   string   `json:"item"`
	State  string   `json:"state"`
	Says   string   `json:"says"`
	Guards []string `json:"guards,omitempty"` // those whose promises a problem breaks
}

const everyGuard = "all guards"

// examined is a server with what was found.
type examined struct {
	Address  string    `json:"address"`
	Findings []finding `json:"findings"`
	Row      string    `json:"row"` // for docs/running-on.md
}

// doctor looks at each server that guards would write to.
func doctor(ctx context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error {
	var f redisFlags
	f.register(fs)
	operands, err := parse()
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		return usagef("%d operands: it takes none", len(operands))
	}
	_, rdb, err := f.connect(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	servers, err := mastersOf(ctx, rdb, &f)
	if err != nil {
		return fmt.Errorf("cannot use the Redis at %s: %w", f.address, err)
	}
	var all []examined
	sick := false
	for _, s := range servers {
		s.now = e.now
		if err := s.examine(ctx); err != nil {
			return fmt.Errorf("cannot use the Redis at %s: %w", s.address, err)
		}
		all = append(all, examined{s.address, s.found, s.row()})
		sick = sick || slices.ContainsFunc(s.found, func(f finding) bool { return f.State == stateProblem })
	}
	if err := e.write(all, func(w io.Writer) { writeExamined(w, all) }); err != nil {
		return err
	}
	if sick {
		return errProblem
	}
	return nil
}

func writeExamined(w io.Writer, all []examined) {
	for _, s := range all {
		_, _ = fmt.Fprintln(w, s.Address)
		for _, f := range s.Findings {
			_, _ = fmt.Fprintf(w, "  %-8s %-12s %s\n", f.State, f.Item, printable(f.Says))
			if len(f.Guards) > 0 {
				_, _ = fmt.Fprintf(w, "  %21s concerns %s\n", "", strings.Join(f.Guards, ", "))
			}
		}
		_, _ = fmt.Fprintln(w, s.Row)
	}
}

// patient is one server.
type patient struct {
	*redis.Client
	address, prefix string
	timeout         time.Duration
	now             func() time.Time
	cluster         *redis.ClusterClient // nil: the server is alone
	salts           map[string]string    // by hash tag: what makes its slot one of this server

	found                 []finding
	info                  map[string]string
	unseen                error // why there is no info
	version               string
	replica               bool
	ran, scripts          int
	missing               []string // commands
	eviction, persistence string
	replicas, connections string
}

// mastersOf returns the servers that guards write to: those of a cluster by address, or the only one.
func mastersOf(ctx context.Context, rdb redis.UniversalClient, f *redisFlags) (all []*patient, err error) {
	add := func(client *redis.Client, address string, cluster *redis.ClusterClient) {
		all = append(all, &patient{Client: client, address: address,
			prefix: f.prefix + ":doctor:" + rand.Text() + ":", timeout: f.timeout, cluster: cluster,
			salts: map[string]string{}})
	}
	switch rdb := rdb.(type) {
	case *redis.ClusterClient:
		var one sync.Mutex
		err = rdb.ForEachMaster(ctx, func(_ context.Context, client *redis.Client) error {
			one.Lock()
			defer one.Unlock()
			add(client, client.Options().Addr, rdb)
			return nil
		})
		slices.SortFunc(all, func(a, b *patient) int { return cmp.Compare(a.address, b.address) })
	case *redis.Client:
		add(rdb, f.address, nil)
	}
	return all, err
}

// examine looks at everything. An item that cannot be seen does not end it; a lost connection does.
func (p *patient) examine(ctx context.Context) error {
	p.look(ctx)
	p.scripts = len(lua.Names())
	if p.replica {
		p.note(stateProblem, "scripts", "not run: this is a replica; guards read and write on primaries: name it",
			everyGuard)
	} else {
		if err := p.runScripts(ctx); err != nil {
			return err
		}
		if err := p.tryCommands(ctx); err != nil {
			return err
		}
	}
	p.user(ctx)
	p.evicts(ctx)
	p.memory()
	p.clock(ctx)
	p.keeps(ctx)
	p.followers(ctx)
	p.clients(ctx)
	return ctx.Err()
}

func (p *patient) note(state, item, says string, guards ...string) {
	p.found = append(p.found, finding{item, state, says, guards})
}

// ask sends a command that a service may refuse.
func (p *patient) ask(ctx context.Context, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.Do(ctx, args...).Result()
}

// look finds out what the server is, by INFO and by HELLO, which needs no permission.
func (p *patient) look(ctx context.Context) {
	p.info = map[string]string{}
	text, err := p.ask(ctx, "INFO")
	p.unseen = err
	for line := range strings.Lines(fmt.Sprint(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			p.info[name] = value
		}
	}
	name, version, mode := "Redis", p.info["redis_version"], p.info["redis_mode"]
	role := p.info["role"]
	if version == "" {
		hello, _ := p.ask(ctx, "HELLO")
		words := wordsOfReply(hello)
		version, mode, role = words["version"], words["mode"], words["role"]
		name = upper(cmp.Or(words["server"], "redis"))
	}
	if valkey := p.info["valkey_version"]; valkey != "" {
		name, version = "Valkey", valkey
	}
	p.replica = role == "slave" || role == "replica"
	if version == "" {
		p.version = "an unknown server"
		p.note(stateUnseen, "server", fmt.Sprintf("INFO and HELLO do not tell its version: %v", p.unseen))
		return
	}
	p.version = fmt.Sprintf("%s %s, %s", name, version, cmp.Or(mode, "mode unknown"))
	if tooOld(name, version) {
		p.note(stateProblem, "server", p.version+": older than 6.2, it lacks XADD NOMKSTREAM and ZMSCORE",
			"votes", "seckill")
		return
	}
	p.note(stateOK, "server", p.version)
}

// wordsOfReply returns a reply of pairs, a map in RESP3 and a list in RESP2, as texts.
func wordsOfReply(reply any) map[string]string {
	words := map[string]string{}
	switch r := reply.(type) {
	case map[any]any:
		for name, value := range r {
			words[fmt.Sprint(name)] = fmt.Sprint(value)
		}
	case []any:
		for i := 0; i+1 < len(r); i += 2 {
			words[fmt.Sprint(r[i])] = fmt.Sprint(r[i+1])
		}
	}
	return words
}

// tooOld reports whether a version is below the oldest with all commands.
func tooOld(name, version string) bool {
	words := strings.SplitN(version, ".", 3)
	major, err := strconv.Atoi(words[0])
	if err != nil || name != "Redis" || len(words) < 2 {
		return false
	}
	minor, err := strconv.Atoi(words[1])
	return err == nil && (major < 6 || major == 6 && minor < 2)
}

// setting returns a setting as INFO has it, else CONFIG GET.
func (p *patient) setting(ctx context.Context, inInfo, name string) (string, error) {
	if value, ok := p.info[inInfo]; ok {
		return value, nil
	}
	reply, err := p.ask(ctx, "CONFIG", "GET", name)
	if value, ok := wordsOfReply(reply)[name]; err == nil && ok {
		return value, nil
	}
	return "", cmp.Or(err, errors.New("CONFIG GET does not know it"))
}

func (p *patient) user(ctx context.Context) {
	name, err := p.ask(ctx, "ACL", "WHOAMI")
	if err != nil {
		p.note(stateUnseen, "user", fmt.Sprintf("ACL WHOAMI: %v", err))
		return
	}
	p.note(stateOK, "user", fmt.Sprint(name))
}

func (p *patient) evicts(ctx context.Context) {
	policy, err := p.setting(ctx, "maxmemory_policy", "maxmemory-policy")
	p.eviction = cmp.Or(policy, "unseen")
	switch {
	case err != nil:
		p.note(stateUnseen, "eviction", fmt.Sprintf("maxmemory-policy: %v", err))
	case policy == "noeviction":
		p.note(stateOK, "eviction", policy)
	case p.info["maxmemory"] == "0":
		p.note(stateNote, "eviction", policy+", and no maxmemory that lets it delete anything: set noeviction")
	default:
		p.note(stateProblem, "eviction", policy+" deletes what was counted, sold and locked: set noeviction; "+
			"limits alone may have volatile-lru", everyGuard)
	}
}

func (p *patient) memory() {
	used, errUsed := strconv.ParseInt(p.info["used_memory"], 10, 64)
	most, errMost := strconv.ParseInt(p.info["maxmemory"], 10, 64)
	switch {
	case errUsed != nil || errMost != nil:
		p.note(stateUnseen, "memory", fmt.Sprintf("INFO does not tell it: %v", p.unseen))
	case most == 0:
		p.note(stateNote, "memory", "no maxmemory: if it grows too large, the kernel kills Redis")
	case used >= most && p.eviction == "noeviction":
		p.note(stateProblem, "memory", fmt.Sprintf("all of maxmemory, %d bytes, is used: writes are refused", most),
			everyGuard)
	default:
		p.note(stateOK, "memory", fmt.Sprintf("maxmemory %d bytes, used: %d %%", most, used*100/most))
	}
}

// clock compares the server's clock with that of this process. The reply was made between the two moments.
func (p *patient) clock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	before := p.now()
	server, err := p.Time(ctx).Result()
	after := p.now()
	early, late := before.Sub(server), server.Sub(after)
	switch apart := max(early, late); {
	case err != nil:
		p.note(stateUnseen, "clock", fmt.Sprintf("TIME: %v", err))
	case apart > time.Second:
		p.note(stateProblem, "clock", fmt.Sprintf("at least %v from this process's: sales, polls and periods "+
			"begin and end by the server's clock", apart.Round(time.Second)),
			"votes", "seckill", "quota", "budget", "redpacket", "delay", "waitingroom")
	default:
		p.note(stateOK, "clock", "within a second of this process's")
	}
}

func (p *patient) keeps(ctx context.Context) {
	p.persistence = "unseen"
	aof, err := p.setting(ctx, "aof_enabled", "appendonly")
	switch {
	case p.info["rdb_last_bgsave_status"] == "err":
		p.persistence = "fails"
		p.note(stateProblem, "persistence", "the last snapshot failed: by default writes are refused (MISCONF)",
			everyGuard)
	case err != nil:
		p.note(stateUnseen, "persistence", fmt.Sprintf("appendonly: %v", err))
	case aof == "1" || aof == "yes":
		p.persistence = "append-only file"
		p.note(stateOK, "persistence", p.persistence)
	default:
		p.persistence = "none or snapshots"
		p.note(stateNote, "persistence", "no append-only file: a restart loses what is newer than the last "+
			"snapshot; limits need none")
	}
}

func (p *patient) followers(ctx context.Context) {
	count, ok := p.info["connected_slaves"]
	p.replicas = cmp.Or(count, "unseen")
	if !ok {
		p.note(stateUnseen, "replicas", fmt.Sprintf("INFO does not tell them: %v", p.unseen))
		return
	}
	needed, err := p.setting(ctx, "", "min-replicas-to-write")
	switch {
	case count == "0":
		p.note(stateOK, "replicas", "none")
	case err != nil:
		p.note(stateOK, "replicas", count+"; min-replicas-to-write is unseen")
	case needed == "0":
		p.note(stateNote, "replicas", count+", and min-replicas-to-write 0: a primary that is cut off goes on "+
			"admitting until it knows")
	default:
		p.note(stateOK, "replicas", fmt.Sprintf("%s, min-replicas-to-write %s", count, needed))
	}
}

// clients compares the connections with what the server takes. A process of eight cores has a PoolSize of 80,
// and go-redis up to 11 connections more.
func (p *patient) clients(ctx context.Context) {
	most, err := p.setting(ctx, "maxclients", "maxclients")
	used, errUsed := strconv.Atoi(p.info["connected_clients"])
	limit, errMost := strconv.Atoi(most)
	p.connections = cmp.Or(most, "unseen")
	const each = 80 + 11
	switch {
	case err != nil || errUsed != nil || errMost != nil:
		p.note(stateUnseen, "connections", fmt.Sprintf("maxclients or those in use: %v",
			cmp.Or(err, p.unseen, errUsed, errMost)))
	case used*10 >= limit*9:
		p.note(stateProblem, "connections", fmt.Sprintf("maxclients %d, in use: %d: soon others are refused", limit,
			used), everyGuard)
	default:
		p.note(stateOK, "connections", fmt.Sprintf("maxclients %d, in use: %d; room for %d processes with "+
			"PoolSize 80", limit, used, (limit-used)/each))
	}
}

// row is the server's row of the table in docs/running-on.md.
func (p *patient) row() string {
	missing := "none"
	if len(p.missing) > 0 {
		missing = "`" + strings.Join(p.missing, "`, `") + "`"
	}
	return fmt.Sprintf("| %s | %d of %d | %s | %s | %s | %s | %s |", p.version, p.ran, p.scripts, missing,
		p.eviction, p.persistence, p.replicas, p.connections)
}
