// Command release-check shows that the modules of a checkout can be released: it serves them as a module
// proxy, and in fresh modules outside of the tree it gets, builds and runs the examples and quick starts
// of the documentation.
//
// Usage, in the folder of this command (or "make release-check" at the root):
//
//	go run . [-root dir] [-tags] module...
//	go run . [-root dir] -sbom dir module...
//
// Each argument is the folder of a nested module that is released beside the root, such as
// ops/observe/gatehouseprom. The version is the one that the nested modules require of the root. With
// -tags, the modules are those of the release's tags, as users will get them. With -sbom, nothing is
// checked: a bill of materials of each module is written into the folder.
//
// Modules come from the checkout and from the machine's module cache, which is filled first where it lacks
// some; nothing is written into it under our own names. The users' modules have a cache of their own, which
// is deleted.
//
// It needs redis-server in the path. GO names another go command.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("release-check: ")
	root := flag.String("root", "../..", "the folder of the root module")
	tags := flag.Bool("tags", false, "take the modules from the tags of the release")
	sbom := flag.String("sbom", "", "write bills of materials (CycloneDX) into this folder, and end")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if *sbom != "" {
		err = writeBills(ctx, *root, flag.Args(), *sbom)
	} else {
		err = run(ctx, *root, flag.Args(), *tags)
	}
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// read returns the absolute folder of a checkout, what its go.mod files say, and the modules to release.
func read(root string, nested []string) (string, tree, []released, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", nil, nil, err
	}
	tree, err := readTree(root)
	if err != nil {
		return "", nil, nil, err
	}
	release, err := tree.release(nested)
	return root, tree, release, err
}

func run(ctx context.Context, root string, nested []string, tags bool) (err error) {
	root, _, release, err := read(root, nested)
	if err != nil {
		return err
	}
	least, err := minimums(root)
	if err != nil {
		return err
	}

	work, err := os.MkdirTemp("", "release-check-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	e := &env{command: goCommand(), work: work, root: root, least: least}

	for _, m := range release {
		from := folder(root, m)
		if tags {
			if from, err = tagged(ctx, root, m); err != nil {
				return err
			}
		}
		if err := serveModule(e.proxy(), m, from); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		// Users' builds need what the module itself needs: from here on, nothing comes from elsewhere.
		if _, err := output(ctx, filepath.Join(root, m.dir), nil, e.command, "mod", "download"); err != nil {
			return err
		}
	}
	if err := e.isolate(ctx, release); err != nil {
		return err
	}
	if err := e.weighClient(ctx, release[0]); err != nil {
		return err
	}
	server, err := startRedis(ctx, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()

	for i, c := range consumers(release) {
		begun := time.Now()
		if err := c.check(ctx, e, server.url(i)); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("ok  %-28s %.1fs\n", c.name, time.Since(begun).Seconds())
	}
	return nil
}

// tree is what the go.mod files of a checkout say, by folder; "." is the root.
type tree map[string]*modfile.File

func readTree(root string) (tree, error) {
	all := tree{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || d.Name() != "go.mod":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		all[filepath.ToSlash(dir)], err = modfile.Parse(path, text, nil)
		return err
	})
	if err == nil && all["."] == nil {
		err = fmt.Errorf("%s has no go.mod", root)
	}
	return all, err
}

// released is a module that is released, and its folder in the checkout.
type released struct {
	module.Version
	dir string
}

// release returns the modules to release, the root first. Each module of the tree that requires another
// one of the tree must do so at the same version, and replace it by its folder.
func (t tree) release(nested []string) ([]released, error) {
	folders := map[string]string{} // module path -> folder
	for dir, file := range t {
		folders[file.Module.Mod.Path] = dir
	}
	version := ""
	for dir, file := range t {
		replaced := map[string]string{}
		for _, r := range file.Replace {
			replaced[r.Old.Path] = filepath.ToSlash(filepath.Join(dir, r.New.Path))
		}
		for _, r := range file.Require {
			folder, ours := folders[r.Mod.Path]
			if !ours {
				continue
			}
			version = cmp.Or(version, r.Mod.Version)
			if r.Mod.Version != version {
				return nil, fmt.Errorf("%s requires %s, another module has %s", dir, r.Mod, version)
			}
			if replaced[r.Mod.Path] != folder {
				return nil, fmt.Errorf("%s requires %s and does not replace it by %s", dir, r.Mod.Path, folder)
			}
		}
	}
	if version == "" {
		return nil, fmt.Errorf("no nested module requires %s", t["."].Module.Mod.Path)
	}
	var all []released
	for _, dir := range append([]string{"."}, nested...) {
		if t[dir] == nil {
			return nil, fmt.Errorf("%s has no go.mod", dir)
		}
		all = append(all, released{module.Version{Path: t[dir].Module.Mod.Path, Version: version}, dir})
	}
	return all, nil
}

// env is the world of a user who has nothing but the released modules and the machine's module cache.
type env struct {
	command string   // go
	root    string   // the checkout
	work    string   // a temporary folder
	vars    []string // for the go command in a user's module
	sums    []byte   // go.sum: the checksums that the checkout knows
	least   map[string]minimum
	bare    int64 // the size of a program that has the client of Redis alone, in bytes
}

func (e *env) proxy() string { return filepath.Join(e.work, "proxy") }

// isolate sets the variables of the go command, and collects the checksums of what the modules depend on.
func (e *env) isolate(ctx context.Context, release []released) error {
	cache, err := output(ctx, e.root, nil, e.command, "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	files := func(dir string) string { return (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String() }
	e.vars = []string{
		"GOPROXY=" + files(e.proxy()) + "," + files(filepath.Join(strings.TrimSpace(cache), "cache", "download")),
		"GONOPROXY=none", "GONOSUMDB=" + release[0].Path + "," + release[0].Path + "/*",
		"GOMODCACHE=" + filepath.Join(e.work, "modcache"),
		// Without -trimpath, no build of one check is found in the build cache by the next.
		"GOFLAGS=-mod=mod -modcacherw -trimpath",
		"GOWORK=off",
	}
	for _, m := range release {
		sums, err := os.ReadFile(filepath.Join(e.root, m.dir, "go.sum"))
		if err != nil {
			return err
		}
		e.sums = append(e.sums, sums...)
	}
	return nil
}

// weighClient builds a server that has the client of Redis and nothing of ours. It requires the root all the
// same, for the versions of what the client needs.
func (e *env) weighClient(ctx context.Context, root released) error {
	const program = `package main

import (
	"net/http"

	"github.com/redis/go-redis/v9"
)

func main() {
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{})
	panic(http.ListenAndServe("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		panic(rdb.EvalSha(r.Context(), "", nil).Err())
	})))
}
`
	c := consumer{name: "client"}
	dir := filepath.Join(e.work, "users", c.name)
	if err := c.create(dir, e); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"get", root.Path}, {"build", "-o", "server", "."}} {
		if _, err := output(ctx, dir, e.vars, e.command, args...); err != nil {
			return err
		}
	}
	b, err := billOf(dir, "server")
	e.bare = b.size
	return err
}

func goCommand() string { return cmp.Or(os.Getenv("GO"), "go") }

// output runs a program and returns what it prints; an error has everything that it has said.
func output(ctx context.Context, dir string, vars []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), vars...)
	said := &strings.Builder{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, said)
	}
	return string(out), nil
}
