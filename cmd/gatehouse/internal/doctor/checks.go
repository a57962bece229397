package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// look finds out what the server is, by INFO and by HELLO, which needs no permission.
func (s *server) look(ctx context.Context) {
	s.info = map[string]string{}
	text, err := s.ask(ctx, "INFO")
	s.unseen = err
	for line := range strings.Lines(fmt.Sprint(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			s.info[name] = value
		}
	}
	name, version, mode := "Redis", s.info["redis_version"], s.info["redis_mode"]
	role := s.info["role"]
	if version == "" {
		hello, _ := s.ask(ctx, "HELLO")
		words := wordsOfReply(hello)
		version, mode, role = words["version"], words["mode"], words["role"]
		name = cmp.Or(words["server"], "redis")
		name = strings.ToUpper(name[:1]) + name[1:]
	}
	if valkey := s.info["valkey_version"]; valkey != "" {
		name, version = "Valkey", valkey
	}
	s.replica = role == "slave" || role == "replica"
	if version == "" {
		s.version = "an unknown server"
		s.report(stateUnseen, "server", fmt.Sprintf("INFO and HELLO do not tell its version: %v", s.unseen))
		return
	}
	s.version = fmt.Sprintf("%s %s, %s", name, version, cmp.Or(mode, "mode unknown"))
	if tooOld(name, version) {
		s.report(stateProblem, "server", s.version+": older than 6.2, it lacks XADD NOMKSTREAM and ZMSCORE",
			"votes", "seckill")
		return
	}
	s.report(stateOK, "server", s.version)
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

func (s *server) user(ctx context.Context) {
	name, err := s.ask(ctx, "ACL", "WHOAMI")
	if err != nil {
		s.report(stateUnseen, "user", fmt.Sprintf("ACL WHOAMI: %v", err))
		return
	}
	s.report(stateOK, "user", fmt.Sprint(name))
}

func (s *server) evicts(ctx context.Context) {
	policy, err := s.setting(ctx, "maxmemory_policy", "maxmemory-policy")
	s.eviction = cmp.Or(policy, "unseen")
	switch {
	case err != nil:
		s.report(stateUnseen, "eviction", fmt.Sprintf("maxmemory-policy: %v", err))
	case policy == "noeviction":
		s.report(stateOK, "eviction", policy)
	case s.info["maxmemory"] == "0":
		s.report(stateNote, "eviction", policy+", and no maxmemory that lets it delete anything: set noeviction")
	default:
		s.report(stateProblem, "eviction", policy+" deletes what was counted, sold and locked: set noeviction; "+
			"limits alone may have volatile-lru", everyGuard)
	}
}

func (s *server) memory() {
	used, errUsed := strconv.ParseInt(s.info["used_memory"], 10, 64)
	most, errMost := strconv.ParseInt(s.info["maxmemory"], 10, 64)
	switch {
	case errUsed != nil || errMost != nil:
		s.report(stateUnseen, "memory", fmt.Sprintf("INFO does not tell it: %v", s.unseen))
	case most == 0:
		s.report(stateNote, "memory", "no maxmemory: if it grows too large, the kernel kills Redis")
	case used >= most && s.eviction == "noeviction":
		s.report(stateProblem, "memory",
			fmt.Sprintf("all of maxmemory, %d bytes, is used: writes are refused", most), everyGuard)
	default:
		s.report(stateOK, "memory", fmt.Sprintf("maxmemory %d bytes, used: %d %%", most, used*100/most))
	}
}

// clock compares the server's clock with the clock of this process, which is read before and after the reply.
func (s *server) clock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	before := s.now()
	server, err := s.Time(ctx).Result()
	after := s.now()
	early, late := before.Sub(server), server.Sub(after)
	switch apart := max(early, late); {
	case err != nil:
		s.report(stateUnseen, "clock", fmt.Sprintf("TIME: %v", err))
	case apart > time.Second:
		s.report(stateProblem, "clock", fmt.Sprintf("at least %v from this process's: sales, polls and periods "+
			"begin and end by the server's clock", apart.Round(time.Second)),
			"votes", "seckill", "quota", "budget", "redpacket", "delay", "waitingroom")
	default:
		s.report(stateOK, "clock", "within a second of this process's")
	}
}

func (s *server) keeps(ctx context.Context) {
	s.persistence = "unseen"
	aof, err := s.setting(ctx, "aof_enabled", "appendonly")
	switch {
	case s.info["rdb_last_bgsave_status"] == "err":
		s.persistence = "fails"
		s.report(stateProblem, "persistence", "the last snapshot failed: by default writes are refused (MISCONF)",
			everyGuard)
	case err != nil:
		s.report(stateUnseen, "persistence", fmt.Sprintf("appendonly: %v", err))
	case aof == "1" || aof == "yes":
		s.persistence = "append-only file"
		s.report(stateOK, "persistence", s.persistence)
	default:
		s.persistence = "none or snapshots"
		s.report(stateNote, "persistence", "no append-only file: a restart loses what is newer than the last "+
			"snapshot; limits need none")
	}
}

func (s *server) followers(ctx context.Context) {
	count, ok := s.info["connected_slaves"]
	s.replicas = cmp.Or(count, "unseen")
	if !ok {
		s.report(stateUnseen, "replicas", fmt.Sprintf("INFO does not tell them: %v", s.unseen))
		return
	}
	needed, err := s.setting(ctx, "", "min-replicas-to-write")
	switch {
	case count == "0":
		s.report(stateOK, "replicas", "none")
	case err != nil:
		s.report(stateOK, "replicas", count+"; min-replicas-to-write is unseen")
	case needed == "0":
		s.report(stateNote, "replicas", count+", and min-replicas-to-write 0: a primary that is cut off goes on "+
			"admitting until it knows")
	default:
		s.report(stateOK, "replicas", fmt.Sprintf("%s, min-replicas-to-write %s", count, needed))
	}
}

// clients compares the connections with what the server takes. A process of eight cores has a PoolSize of 80,
// and go-redis up to 11 connections more.
func (s *server) clients(ctx context.Context) {
	most, err := s.setting(ctx, "maxclients", "maxclients")
	used, errUsed := strconv.Atoi(s.info["connected_clients"])
	limit, errMost := strconv.Atoi(most)
	s.connections = cmp.Or(most, "unseen")
	const each = 80 + 11
	switch {
	case err != nil || errUsed != nil || errMost != nil:
		s.report(stateUnseen, "connections", fmt.Sprintf("maxclients or those in use: %v",
			cmp.Or(err, s.unseen, errUsed, errMost)))
	case used*10 >= limit*9:
		s.report(stateProblem, "connections",
			fmt.Sprintf("maxclients %d, in use: %d: soon others are refused", limit, used), everyGuard)
	default:
		s.report(stateOK, "connections", fmt.Sprintf("maxclients %d, in use: %d; room for %d processes with "+
			"PoolSize 80", limit, used, (limit-used)/each))
	}
}
