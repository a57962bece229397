// Package lua holds the scripts that decide, one plain file each, in a folder per guard; locks run those of
// semaphores. The header of a file states its purpose, KEYS, ARGV and replies. A file runs unchanged with
// redis-cli --eval, and step by step with --ldb. The scripts use base Lua and redis.call only, touch no key
// but those in KEYS, and read the server's clock unless the caller passes a moment. Blocks that several
// scripts share stand in each of them between "-- shared NAME" and "-- end NAME"; their source is
// shared/NAME.lua in the guard's folder, or in this one where several guards have it, and go generate writes
// them into the scripts. docs/scripts.md describes the conventions that all scripts follow.
//
// Most programs use the guards in the packages below core, which run these scripts.
package lua

//go:generate go run ./internal/shared/generate

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed */*.lua
var files embed.FS

// Source returns a script by its guard and name, such as "seckill/reserve". It panics if there is none:
// packages call it when they are initialised.
func Source(name string) string {
	source, err := files.ReadFile(name + ".lua")
	if err != nil || strings.HasPrefix(name, "shared/") {
		panic(fmt.Sprintf("lua: there is no script %q: write the file lua/%s.lua, or correct the name, "+
			"which is GUARD/SCRIPT without .lua", name, name))
	}
	return string(source)
}

// Names returns the names of all scripts, sorted.
func Names() (names []string) {
	paths, _ := fs.Glob(files, "*/*.lua") // fails for a bad pattern only
	for _, path := range paths {
		if !strings.HasPrefix(path, "shared/") {
			names = append(names, strings.TrimSuffix(path, ".lua"))
		}
	}
	return names
}
