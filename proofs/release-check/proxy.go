package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// source is where a module is taken from.
type source struct {
	gomod func() ([]byte, error)
	zip   func(w io.Writer) error
	time  time.Time
}

// folder is a module as the checkout has it.
func folder(root string, m released) source {
	dir := filepath.Join(root, m.dir)
	return source{
		gomod: func() ([]byte, error) { return os.ReadFile(filepath.Join(dir, "go.mod")) },
		zip:   func(w io.Writer) error { return zip.CreateFromDir(w, m.Version, dir) },
		time:  time.Now(),
	}
}

// tagged is a module as its tag has it, which must be the commit of the checkout: programs and examples come
// from there.
func tagged(ctx context.Context, root string, m released) (source, error) {
	tag, subdir := path.Join(m.dir, m.Version.Version), m.dir
	if subdir == "." {
		subdir = ""
	}
	git := func(args ...string) (string, error) {
		out, err := output(ctx, root, nil, "git", args...)
		return strings.TrimSpace(out), err
	}
	commit, err := git("rev-parse", "--verify", "refs/tags/"+tag+"^{commit}")
	if err != nil {
		return source{}, fmt.Errorf("make release makes the tag: %w", err)
	}
	if head, err := git("rev-parse", "HEAD"); err != nil || head != commit {
		err = errors.Join(err, fmt.Errorf("%s is %s, the checkout %s: git checkout %[1]s", tag, commit, head))
		return source{}, err
	}
	date, err := git("log", "-1", "--format=%cI", commit)
	if err != nil {
		return source{}, err
	}
	at, err := time.Parse(time.RFC3339, date)
	return source{
		gomod: func() ([]byte, error) {
			out, err := output(ctx, root, nil, "git", "show", commit+":"+path.Join(subdir, "go.mod"))
			return []byte(out), err
		},
		zip:  func(w io.Writer) error { return zip.CreateFromVCS(w, m.Version, root, commit, subdir) },
		time: at,
	}, err
}

// serveModule writes a module into proxy as its only version, in the form that GOPROXY=file://… reads
// (https://go.dev/ref/mod#goproxy-protocol). As in a real release, nested modules are left out.
func serveModule(proxy string, m released, from source) error {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	to := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	gomod, err := from.gomod()
	if err != nil {
		return err
	}
	version := m.Version.Version
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, from.time.UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": info,
		version + ".mod":  gomod,
	} {
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	packed, err := os.Create(filepath.Join(to, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(from.zip(packed), packed.Close())
}
