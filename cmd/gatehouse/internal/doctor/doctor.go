// Package doctor is the command doctor: it looks at each server that guards would write to, and asks through
// a proxy whether the promises of the gateway hold.
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
	Does: "whether a Redis has what guards need, and a proxy what the gateway needs", Run: examineAll}

// examined is a server or a proxy with what was found.
type examined struct {
	Address  string    `json:"address"`
	Findings []finding `json:"findings"`
	Row      string    `json:"row,omitempty"` // of a server, for docs/running-on.md
}

func examineAll(ctx context.Context, e *cli.Env) error {
	var f connect.Redis
	var behind proxyFlags
	f.Register(e.Flags)
	behind.register(e.Flags)
	operands, err := e.Operands()
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		return cli.Usagef("%d operands: it takes none", len(operands))
	}
	var all []examined
	if behind.url == "" || f.URL != "" {
		all, err = examineServers(ctx, e, &f)
	}
	if err == nil && behind.url != "" {
		var p examined
		p, err = examineProxy(ctx, &behind)
		all = append(all, p)
	}
	if err != nil {
		return err
	}
	err = e.Write(all, func(w *strings.Builder) { writeExamined(w, all) })
	if err == nil && slices.ContainsFunc(all, examined.sick) {
		err = cli.ErrProblem
	}
	return err
}

// sick reports whether a promise does not hold.
func (x examined) sick() bool {
	return slices.ContainsFunc(x.Findings, func(f finding) bool { return f.State == stateProblem })
}

func examineServers(ctx context.Context, e *cli.Env, f *connect.Redis) (all []examined, err error) {
	_, rdb, err := f.Connect(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rdb.Close() }()
	servers, err := mastersOf(ctx, rdb, f)
	if err != nil {
		return nil, fmt.Errorf("cannot use the Redis at %s: %w", f.Address, err)
	}
	for _, s := range servers {
		s.now = e.Now
		if err := s.examine(ctx); err != nil {
			return nil, fmt.Errorf("cannot use the Redis at %s: %w", s.address, err)
		}
		all = append(all, examined{s.address, s.found, s.row()})
	}
	return all, nil
}

func examineProxy(ctx context.Context, f *proxyFlags) (examined, error) {
	p, err := f.proxy()
	if err != nil {
		return examined{}, err
	}
	if err := p.examine(ctx); err != nil {
		return examined{}, fmt.Errorf("cannot ask %s: %w", p.url, err)
	}
	return examined{Address: p.url.String(), Findings: p.found}, nil
}

func writeExamined(w *strings.Builder, all []examined) {
	for _, s := range all {
		fmt.Fprintln(w, s.Address)
		for _, f := range s.Findings {
			fmt.Fprintf(w, "  %-8s %-12s %s\n", f.State, f.Item, cli.Printable(f.Says))
			if len(f.Guards) > 0 {
				fmt.Fprintf(w, "  %21s concerns %s\n", "", strings.Join(f.Guards, ", "))
			}
			if f.Remedy != "" {
				fmt.Fprintf(w, "  %21s %s\n", "", f.Remedy)
			}
		}
		if s.Row != "" {
			fmt.Fprintln(w, s.Row)
		}
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
		if err := s.tracks(ctx); err != nil {
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
