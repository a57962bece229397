package explain

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/rules"
)

// recorder is for a client that sends nothing. It notes the keys of the scripts that are to run.
type recorder struct {
	mu   sync.Mutex
	keys []string
}

// noted returns the keys so far, each once.
func (r *recorder) noted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.keys)
}

// note is a connect.Hook that sends nothing.
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
	cmd.SetErr(rules.ErrNotSent)
	return rules.ErrNotSent
}
