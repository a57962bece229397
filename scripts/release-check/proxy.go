package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// serveModule writes the folder dir into proxy as the only version of a module, in the form that
// GOPROXY=file://… reads (https://go.dev/ref/mod#goproxy-protocol). As in a real release, nested modules
// are left out.
func serveModule(proxy string, m module.Version, dir string) error {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	to := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{m.Version, time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"list":              []byte(m.Version + "\n"),
		m.Version + ".info": info,
		m.Version + ".mod":  gomod,
	} {
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	packed, err := os.Create(filepath.Join(to, m.Version+".zip"))
	if err != nil {
		return err
	}
	err = zip.CreateFromDir(packed, m, dir)
	return errors.Join(err, packed.Close())
}
