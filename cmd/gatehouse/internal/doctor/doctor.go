// Package doctor is the command doctor: it looks at each server that guards would write to.
package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/connect"
	"github.com/gatehouse-go/gatehouse/lua"
)

// Command is the command doctor.
var Command = cli.Command{Name: "doctor", Args: "[flags]",
	Does: "whether a Redis has what guards need: scripts, commands, settings", Run: examineAll}

// examined is a server with what was found.
type examined struct {
	Address  string    `json:"address"`
	Findings []finding `json:"findings"`
	Row      string    `json:"row"` // for docs/running-on.md
}

func examineAll(ctx context.Context, e *cli.Env) error {
	var f connect.Redis
	f.Register(e.Flags)
	operands, err := e.Operands()
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		return cli.Usagef("%d operands: it takes none", len(operands))
	}
	_, rdb, err := f.Connect(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	servers, err := mastersOf(ctx, rdb, &f)
	if err != nil {
		return fmt.Errorf("cannot use the Redis at %s: %w", f.Address, err)
	}
	var all []examined
	sick := false
	for _, s := range servers {
		s.now = e.Now
		if err := s.examine(ctx); err != nil {
			return fmt.Errorf("cannot use the Redis at %s: %w", s.address, err)
		}
		all = append(all, examined{s.address, s.found, s.row()})
		sick = sick || slices.ContainsFunc(s.found, func(f finding) bool { return f.State == stateProblem })
	}
	err = e.Write(all, func(w *strings.Builder) { writeExamined(w, all) })
	if err == nil && sick {
		err = cli.ErrProblem
	}
	return err
}

func writeExamined(w *strings.Builder, all []examined) {
	for _, s := range all {
		fmt.Fprintln(w, s.Address)
		for _, f := range s.Findings {
			fmt.Fprintf(w, "  %-8s %-12s %s\n", f.State, f.Item, cli.Printable(f.Says))
			if len(f.Guards) > 0 {
				fmt.Fprintf(w, "  %21s concerns %s\n", "", strings.Join(f.Guards, ", "))
			}
		}
		fmt.Fprintln(w, s.Row)
	}
}

// mastersOf returns the servers that guards write to: those of a cluster by address, or the only one.
func mastersOf(ctx context.Context, rdb redis.UniversalClient, f *connect.Redis) (all []*server, err error) {
	add := func(client *redis.Client, address string, cluster *redis.ClusterClient) {
		all = append(all, &server{Client: client, address: address,
			prefix: f.Prefix + ":doctor:" + rand.Text() + ":", timeout: f.Timeout, cluster: cluster,
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
		slices.SortFunc(all, func(a, b *server) int { return cmp.Compare(a.address, b.address) })
	case *redis.Client:
		add(rdb, f.Address, nil)
	}
	return all, err
}

// examine looks at everything. An item that cannot be seen does not end it; a lost connection does.
func (s *server) examine(ctx context.Context) error {
	s.look(ctx)
	s.scripts = len(lua.Names())
	if s.replica {
		s.report(stateProblem, "scripts", "not run: this is a replica; guards read and write on primaries: name it",
			everyGuard)
	} else {
		if err := s.runScripts(ctx); err != nil {
			return err
		}
		if err := s.tryCommands(ctx); err != nil {
			return err
		}
	}
	s.user(ctx)
	s.evicts(ctx)
	s.memory()
	s.clock(ctx)
	s.keeps(ctx)
	s.followers(ctx)
	s.clients(ctx)
	return ctx.Err()
}
