package rules

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/connect"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// Checked is what was found in a file.
type Checked struct {
	File     string
	Config   *config.Config // nil if the file cannot be read as one
	Mistakes []config.Mistake
}

// Check returns all mistakes of a file. Some only show when its guards and rules are made, so they are made,
// on an engine that sends nothing.
func Check(file string, options []config.Option) (Checked, error) {
	found := Checked{File: file, Mistakes: []config.Mistake{}}
	cfg, err := config.Load(file, options...)
	if err == nil {
		found.Config = cfg
		_, err = DryBuild(cfg, notSent, "gatehouse")
	}
	if mistakes := (*config.Error)(nil); errors.As(err, &mistakes) {
		found.Mistakes, err = mistakes.Mistakes, nil
	}
	return found, err
}

// Write writes the mistakes, or that the file is ok.
func (c Checked) Write(w *strings.Builder, ok func() string) {
	for _, mistake := range c.Mistakes {
		fmt.Fprintln(w, mistake)
	}
	if len(c.Mistakes) == 0 {
		fmt.Fprintf(w, "%s: ok, with %s\n", c.File, ok())
	}
}

// ErrNotSent is the answer to every command of an engine that sends nothing.
var ErrNotSent = errors.New("not sent: nothing but the file is looked at")

func notSent(cmd redis.Cmder) error {
	cmd.SetErr(ErrNotSent)
	return ErrNotSent
}

// DryBuild makes the rules and guards of a file on an engine whose commands end at a hook.
func DryBuild(
	cfg *config.Config, end connect.Hook, prefix string, more ...core.Option,
) (*config.Set, error) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"}) // no connection is made
	rdb.AddHook(end)
	engine, err := connect.NewEngine(rdb, prefix, time.Minute, more...) // nobody is waited for
	if err != nil {
		return nil, err
	}
	return cfg.Build(engine)
}
