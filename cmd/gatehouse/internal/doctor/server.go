package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// What a finding says: all is well, something to know, a promise that does not hold, something unseen.
const (
	stateOK      = "ok"
	stateNote    = "note"
	stateProblem = "problem"
	stateUnseen  = "unseen"
)

// finding is what the doctor has found out about one item of a server or a proxy.
type finding struct {
	Item   string   `json:"item"`
	State  string   `json:"state"`
	Says   string   `json:"says"`
	Guards []string `json:"guards,omitempty"` // those whose promises a problem breaks
	Remedy string   `json:"remedy,omitempty"`
}

const everyGuard = "all guards"

// server is one server.
type server struct {
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

func (s *server) report(state, item, says string, guards ...string) {
	s.found = append(s.found, finding{Item: item, State: state, Says: says, Guards: guards})
}

// ask sends a command that a service may refuse.
func (s *server) ask(ctx context.Context, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.Do(ctx, args...).Result()
}

// setting returns a setting as INFO has it, else CONFIG GET.
func (s *server) setting(ctx context.Context, inInfo, name string) (string, error) {
	if value, ok := s.info[inInfo]; ok {
		return value, nil
	}
	reply, err := s.ask(ctx, "CONFIG", "GET", name)
	if value, ok := wordsOfReply(reply)[name]; err == nil && ok {
		return value, nil
	}
	return "", cmp.Or(err, errors.New("CONFIG GET does not know it"))
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

// row is the server's row of the table in docs/running-on.md.
func (s *server) row() string {
	missing := "none"
	if len(s.missing) > 0 {
		missing = "`" + strings.Join(s.missing, "`, `") + "`"
	}
	return fmt.Sprintf("| %s | %d of %d | %s | %s | %s | %s | %s |", s.version, s.ran, s.scripts, missing,
		s.eviction, s.persistence, s.replicas, s.connections)
}
