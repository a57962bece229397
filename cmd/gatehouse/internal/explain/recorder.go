package explain

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/connect"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// errRecorded is the answer to every command: nothing was sent.
var errRecorded = errors.New("not sent: only its keys are wanted")

// recorder is for a client that sends nothing. It notes the keys of the scripts that are to run.
type recorder struct {
	mu   sync.Mutex
	keys []string
}

// dryBuild makes the rules and guards of a file on an engine that sends nothing, whose keys r notes.
func dryBuild(cfg *config.Config, r *recorder, prefix string, more ...core.Option) (*config.Set, error) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"}) // r answers, no connection is made
	rdb.AddHook(connect.Hook(r.note))
	engine, err := connect.NewEngine(rdb, prefix, time.Minute, more...) // nobody is waited for
	if err != nil {
		return nil, err
	}
	return cfg.Build(engine)
}

// noted returns the keys so far, each once.
func (r *recorder) noted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.keys)
}

// note is a connect.Hook.
func (r *recorder) note(cmd redis.Cmder) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	args := cmd.Args()
	if name := cmd.Name(); (name == "evalsha" || name == "eval") && len(args) > 2 {
		n, _ := strconv.Atoi(fmt.Sprint(args[2]))
		for _, arg := range args[3:min(3+n, len(args))] {
			if key := fmt.Sprint(arg); !slices.Contains(r.keys, key) {
				r.keys = append(r.keys, key)
			}
		}
	}
	cmd.SetErr(errRecorded)
	return errRecorded
}
