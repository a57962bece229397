package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
)

// version writes which version this is. Of go install and of releases it is the tag, of a build in a checkout
// the commit.
var version = cli.Command{Name: "version", Args: "[flags]", Does: "which version this is", Run: writeVersion}

// build is what the binary says of itself.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

func writeVersion(_ context.Context, e *cli.Env) error {
	operands, err := e.Operands()
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		return cli.Usagef("operand %q: there is nothing to name", operands[0])
	}
	b := build{Version: "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version, b.Go = info.Main.Version, info.GoVersion
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				b.Commit = setting.Value
			}
		}
	}
	return e.Write(b, func(w *strings.Builder) {
		fmt.Fprintf(w, "gatehouse %s, %s", b.Version, b.Go)
		if b.Commit != "" {
			fmt.Fprintf(w, ", commit %s", b.Commit)
		}
		fmt.Fprintln(w)
	})
}
