package main

import (
	"reflect"
	"strings"
	"testing"

	"golang.org/x/mod/module"
)

func TestAComponentHasTheSumOfGoSumAndItsLicence(t *testing.T) {
	dir := checkout(t, map[string]string{"License": "Mozilla Public License Version 2.0"})
	sums := "example.com/a v1.0.0+incompatible/go.mod h1:AAA=\nexample.com/a v1.0.0+incompatible h1:" +
		strings.Repeat("A", 43) + "=\n"
	m := module.Version{Path: "example.com/a", Version: "v1.0.0+incompatible"}
	c, err := newComponent(m, sums, dir)
	if err != nil {
		t.Fatal(err)
	}
	purl := "pkg:golang/example.com/a@v1.0.0%2Bincompatible"
	want := component{
		Type: "library", BOMRef: purl, Name: m.Path, Version: m.Version, PURL: purl,
		Hashes: []hash{{"SHA-256", strings.Repeat("0", 64)}}, Licences: []licensed{{"MPL-2.0"}},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
	if c, err := newComponent(m, "", dir); err != nil || c.Hashes != nil {
		t.Errorf("without a line of go.sum: %+v, %v", c, err)
	}
}

func TestEdgesAreThoseOfTheSelectedVersions(t *testing.T) {
	const a, b, gate = "pkg:golang/a@v1.1.0", "pkg:golang/b@v1.0.0", "pkg:golang/gate@v0.1.0"
	main := released{module.Version{Path: "gate", Version: "v0.1.0"}, "."}
	got := edges("gate a@v1.1.0\na@v1.0.0 b@v1.0.0\na@v1.1.0 test@v1.0.0\nb@v1.0.0 a@v1.0.0\n", main,
		map[string]string{"gate": gate, "a": a, "b": b})
	want := []dependency{{a, []string{}}, {b, []string{a}}, {gate, []string{a}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
