package main

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
)

// checkout writes a tree of files, by name, into a temporary folder.
func checkout(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	rootMod           = "module example.com/gate\n\ngo 1.25.0\n"
	requireAndReplace = "\ngo 1.25.0\n\nrequire example.com/gate v0.1.0\n\nreplace example.com/gate => ../\n"
)

func TestProxyHasARootWithoutItsNestedModules(t *testing.T) {
	root := checkout(t, map[string]string{
		"go.mod": rootMod, "core/core.go": "package core\n",
		"extra/go.mod": "module example.com/gate/extra\n", "extra/extra.go": "package extra\n",
	})
	proxy := t.TempDir()
	m := released{module.Version{Path: "example.com/gate", Version: "v0.1.0"}, "."}
	if err := serveModule(proxy, m, folder(root, m)); err != nil {
		t.Fatal(err)
	}
	served := filepath.Join(proxy, "example.com", "gate", "@v")
	for name, want := range map[string]string{"list": "v0.1.0\n", "v0.1.0.mod": rootMod} {
		if text, err := os.ReadFile(filepath.Join(served, name)); err != nil || string(text) != want {
			t.Errorf("%s is %q (%v), want %q", name, text, err, want)
		}
	}
	info, err := os.ReadFile(filepath.Join(served, "v0.1.0.info"))
	if err != nil || !strings.HasPrefix(string(info), `{"Version":"v0.1.0","Time":"`) {
		t.Errorf("info is %s (%v)", info, err)
	}
	r, err := zip.OpenReader(filepath.Join(served, "v0.1.0.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var names []string
	for _, f := range r.File {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	want := []string{"example.com/gate@v0.1.0/core/core.go", "example.com/gate@v0.1.0/go.mod"}
	if !slices.Equal(names, want) {
		t.Errorf("the zip has\n%q, want\n%q", names, want)
	}
	content, err := r.Open(want[0])
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if text, err := io.ReadAll(content); err != nil || string(text) != "package core\n" {
		t.Errorf("core.go is %q (%v)", text, err)
	}
}

func TestReleaseIsTheVersionThatNestedModulesRequire(t *testing.T) {
	all, err := readTree(checkout(t, map[string]string{
		"go.mod": rootMod, "extra/go.mod": "module example.com/gate/extra\n" + requireAndReplace,
		"tools/go.mod": "module example.com/gate/tools\n", "extra/testdata/go.mod": "not a module",
	}))
	if err != nil {
		t.Fatal(err)
	}
	release, err := all.release([]string{"extra"})
	if err != nil {
		t.Fatal(err)
	}
	want := []released{
		{module.Version{Path: "example.com/gate", Version: "v0.1.0"}, "."},
		{module.Version{Path: "example.com/gate/extra", Version: "v0.1.0"}, "extra"},
	}
	if !slices.Equal(release, want) {
		t.Errorf("release is %v, want %v", release, want)
	}
}

func TestReleaseIsRefused(t *testing.T) {
	extra := "module example.com/gate/extra\n"
	for name, c := range map[string]struct {
		extra, other string
		nested       []string
		want         string
	}{
		"no requirement": {extra, "", nil, "no nested module requires example.com/gate"},
		"no replacement": {extra + "require example.com/gate v0.1.0\n", "", nil, "does not replace it by ."},
		"another replacement": {extra + strings.Replace(requireAndReplace, "../", "../../", 1), "", nil,
			"does not replace it by ."},
		"two versions": {extra + requireAndReplace,
			"module example.com/gate/other\n" + strings.ReplaceAll(requireAndReplace, "v0.1.0", "v0.2.0"), nil,
			"another module has v0."},
		"no such module": {extra + requireAndReplace, "", []string{"extra", "nowhere"}, "nowhere has no go.mod"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"go.mod": rootMod, "extra/go.mod": c.extra}
			if c.other != "" {
				files["other/go.mod"] = c.other
			}
			all, err := readTree(checkout(t, files))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := all.release(c.nested); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestUsersGetTheReleaseAndNoMore(t *testing.T) {
	root := released{module.Version{Path: "example.com/gate", Version: "v0.1.0"}, "."}
	extra := released{module.Version{Path: "example.com/gate/extra", Version: "v0.1.0"}, "extra"}
	const gets = "example.com/user example.com/gate@v0.1.0\n"
	for name, c := range map[string]struct {
		owners []released
		graph  string
		want   string
	}{
		"the root": {[]released{root}, gets, ""},
		"another version": {[]released{root}, "example.com/user example.com/gate@v0.0.9\n",
			"example.com/gate@v0.1.0 is not in the build"},
		"not the nested one": {[]released{root, extra}, gets, "example.com/gate/extra@v0.1.0 is not in the build"},
		"Prometheus as well": {[]released{root}, gets + "x github.com/prometheus/common@v1.0.0\n",
			"brings github.com/prometheus/ along"},
		"Prometheus by extra": {[]released{root, extra}, gets +
			"example.com/user example.com/gate/extra@v0.1.0\nx github.com/prometheus/common@v1.0.0\n", ""},
	} {
		err := consumer{owners: c.owners}.owned(c.graph)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestNoGoModHasAVersionWithAnAdvisory compares each go.mod of the tree with .ci/minimum-versions.
func TestNoGoModHasAVersionWithAnAdvisory(t *testing.T) {
	least, err := minimums("../..")
	if err != nil || len(least) == 0 {
		t.Fatalf("%d minimums, %v", len(least), err)
	}
	tree, err := readTree("../..")
	if err != nil {
		t.Fatal(err)
	}
	for dir := range tree {
		if err := tooOld(least, tree.requires(dir)); err != nil {
			t.Errorf("%s/go.mod: %v", dir, err)
		}
	}
}

func TestAnOldVersionIsFound(t *testing.T) {
	least := map[string]minimum{"example.com/a": {"v1.10.0", "CVE-1"}}
	for version, want := range map[string]bool{
		"v1.9.9": true, "v1.10.0-rc.1": true, "v1.10.0": false, "v1.11.0": false,
	} {
		err := tooOld(least, []module.Version{
			{Path: "example.com/b", Version: "v0.0.1"}, {Path: "example.com/a", Version: version},
		})
		if (err != nil) != want || want && !strings.Contains(err.Error(), "want v1.10.0 or newer for CVE-1") {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestMinimumsThatAreWrongAreRefused(t *testing.T) {
	for _, text := range []string{"example.com/a v1.0.0\n", "example.com/a 1.0.0 CVE-1\n",
		"example.com/a v1.0.0 CVE-1\nexample.com/a v1.0.1 CVE-2\n"} {
		root := checkout(t, map[string]string{".ci/minimum-versions": text})
		if _, err := minimums(root); err == nil || !strings.Contains(err.Error(), "example.com/a") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLicencesAreKnownByTheirText(t *testing.T) {
	const bsd = "Redistribution and use in source and binary forms, with or\nwithout modification, are permitted"
	for text, want := range map[string]string{
		"Permission is hereby granted,\nfree of charge, to any person obtaining a copy of this software": "MIT",
		bsd: "BSD-2-Clause",
		bsd + "\nused to endorse or promote products derived from\nthis software without": "BSD-3-Clause",
		"      Apache License\n  Version 2.0, January 2004":                               "Apache-2.0",
		"Mozilla Public License Version 2.0":                                              "MPL-2.0",
		"All rights reserved":                                                             "",
	} {
		dir := checkout(t, map[string]string{"LICENSE.txt": text})
		names, err := licence(dir)
		if name := strings.Join(names, " AND "); name != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, name, err, want)
		}
		if err := mayBeInBinaries(dir); (err == nil) != (want != "" && want != "MPL-2.0") {
			t.Errorf("%q may be in users' programs: %v", text, err)
		}
	}
	if _, err := licence(t.TempDir()); err == nil {
		t.Error("a module without a licence is allowed")
	}
}

func TestAProgramThatBecomesLargerIsRefused(t *testing.T) {
	one := bill{modules: []module.Version{}, size: 12, sums: 3}
	e := &env{bare: 2}
	for want, fits := range map[expected]bool{
		{0, 3, 10}: true, {0, 3, 9}: false, {0, 2, 10}: false, {1, 4, 11}: true,
	} {
		if err := one.check(e, want); (err == nil) != fits {
			t.Errorf("%+v: %v", want, err)
		}
	}
}
