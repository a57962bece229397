package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// minimum is the least version of a module without the advisories.
type minimum struct{ version, advisories string }

// minimums reads .ci/minimum-versions.
func minimums(root string) (map[string]minimum, error) {
	file := filepath.Join(root, ".ci", "minimum-versions")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := map[string]minimum{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if len(words) < 3 || !semver.IsValid(words[1]) || all[words[0]] != (minimum{}) {
			return nil, fmt.Errorf("%s: %q: want a module once, a version, advisories", file, line)
		}
		all[words[0]] = minimum{words[1], strings.Join(words[2:], ", ")}
	}
	return all, nil
}

// tooOld returns an error for each module that has an older version than the least one.
func tooOld(least map[string]minimum, modules []module.Version) (err error) {
	for _, m := range modules {
		if want, ok := least[m.Path]; ok && semver.Compare(m.Version, want.version) < 0 {
			err = errors.Join(err, fmt.Errorf("%s: want %s or newer for %s", m, want.version, want.advisories))
		}
	}
	return err
}

// requires are the modules that go.mod files require, directly or not.
func (t tree) requires(dir string) (modules []module.Version) {
	for _, r := range t[dir].Require {
		modules = append(modules, r.Mod)
	}
	return modules
}

// bill is what a program is made of.
type bill struct {
	modules []module.Version // without the program's own
	size    int64            // of the binary, in bytes
	sums    int              // lines of go.sum
}

// billOf reads the bill of a program from its binary and its go.sum.
func billOf(dir, binary string) (b bill, err error) {
	binary = filepath.Join(dir, binary)
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return b, err
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.modules = append(b.modules, module.Version{Path: m.Path, Version: m.Version})
	}
	file, err := os.Stat(binary)
	if err != nil {
		return b, err
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	b.size, b.sums = file.Size(), strings.Count(string(sums), "\n")
	return b, err
}

// licences are the licences that are known, by their SPDX identifiers, each with words that its text has.
var licences = map[string][]string{
	"Apache-2.0":   {"Apache License Version 2.0", "Licensed under the Apache License, Version 2.0"},
	"BSD-2-Clause": {"Redistribution and use in source and binary forms, with or without modification,"},
	"BSD-3-Clause": {"used to endorse or promote products derived from this software without"},
	"MIT":          {"Permission is hereby granted, free of charge, to any person obtaining a copy of"},
	"MPL-2.0":      {"Mozilla Public License Version 2.0", "Mozilla Public License, version 2.0"},
}

// inBinaries are the licences that may be in a user's binary. Tests use others.
var inBinaries = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT"}

// licence returns the licences of a module by the files in its folder, all of which apply.
func licence(dir string) ([]string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, file := range files {
		upper := strings.ToUpper(file.Name())
		if file.IsDir() || !strings.HasPrefix(upper, "LICENSE") && !strings.HasPrefix(upper, "LICENCE") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		text := strings.Join(strings.Fields(string(data)), " ")
		for name, words := range licences {
			if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) }) {
				found[name] = true
			}
		}
		if found["BSD-3-Clause"] { // whose text begins with that of the other
			delete(found, "BSD-2-Clause")
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no licence of %v", dir, slices.Sorted(maps.Keys(licences)))
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// mayBeInBinaries returns an error for a module whose licence users may not want in their programs.
func mayBeInBinaries(dir string) error {
	names, err := licence(dir)
	for _, name := range names {
		if !slices.Contains(inBinaries, name) {
			err = errors.Join(err, fmt.Errorf("%s has the licence %s, want one of %v", dir, name, inBinaries))
		}
	}
	return err
}

// check looks at what a program is made of: no module has an advisory that is known or a licence that is not
// allowed, and no number is greater than the one that is expected.
func (b bill) check(e *env, want expected) error {
	err := tooOld(e.least, b.modules)
	for _, m := range b.modules {
		path, wrong := module.EscapePath(m.Path)
		if wrong == nil {
			wrong = mayBeInBinaries(filepath.Join(e.work, "modcache", path+"@"+m.Version))
		}
		err = errors.Join(err, wrong)
	}
	if len(b.modules) > want.modules || b.sums > want.sums || b.size-e.bare > want.size {
		err = errors.Join(err, fmt.Errorf("%d modules, %d lines of go.sum, and %d bytes more than the client "+
			"alone: want %d, %d and %d at most. A new dependency has a reason, and these numbers with it",
			len(b.modules), b.sums, b.size-e.bare, want.modules, want.sums, want.size))
	}
	return err
}

// expected is how much a program is made of at most. The bytes are those beyond a program that has the client
// of Redis and nothing else.
type expected struct {
	modules, sums int
	size          int64
}
