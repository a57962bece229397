package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
)

// build is what the binary says of itself.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

// version writes which version this is: go install and the releases' binaries take it from the tag, a build
// in a checkout from the commit.
func version(_ context.Context, e *env, _ *flag.FlagSet, parse func() ([]string, error)) error {
	operands, err := parse()
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		return usagef("operand %q: there is nothing to name", operands[0])
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
	return e.write(b, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "gatehouse %s, %s", b.Version, b.Go)
		if b.Commit != "" {
			_, _ = fmt.Fprintf(w, ", commit %s", b.Commit)
		}
		_, _ = fmt.Fprintln(w)
	})
}
