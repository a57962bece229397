package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// sbom is a bill of materials in the form of CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/). Nothing of
// it depends on when and where it is written: serial number and time are those of the commit.
type sbom struct {
	BOMFormat    string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type     string     `json:"type"`
	BOMRef   string     `json:"bom-ref"`
	Name     string     `json:"name"`
	Version  string     `json:"version"`
	Scope    string     `json:"scope,omitempty"`
	Hashes   []hash     `json:"hashes,omitempty"`
	Licences []licensed `json:"licenses"`
	PURL     string     `json:"purl"`
}

// hash is that of go.sum, which is the SHA-256 of a list of the files of a module and their SHA-256s.
type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type licensed struct {
	Expression string `json:"expression"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// writeBills writes the bill of each module to release, as modules.version.cdx.json.
func writeBills(ctx context.Context, root string, nested []string, to string) error {
	root, tree, release, err := read(root, nested)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	commit, err := output(ctx, root, nil, "git", "log", "-1", "--format=%H %cI")
	if err != nil {
		return err
	}
	for _, m := range release {
		s, err := materials(ctx, root, tree, m, strings.Fields(commit))
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(s); err != nil {
			return err
		}
		name := path.Base(m.Path) + "_" + strings.TrimPrefix(m.Version.Version, "v") + ".cdx.json"
		if err := os.WriteFile(filepath.Join(to, name), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// materials is the bill of a module: the modules that its go.mod requires. Those that its packages import on
// one of the platforms are required, and the rest, which tests need, excluded.
func materials(ctx context.Context, root string, t tree, m released, commit []string) (*sbom, error) {
	dir := filepath.Join(root, m.dir)
	goes := func(vars []string, args ...string) (string, error) {
		return output(ctx, dir, append(vars, "GOWORK=off"), goCommand(), args...)
	}
	if _, err := goes(nil, "mod", "download"); err != nil {
		return nil, err
	}
	imported := map[string]bool{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		vars := []string{"CGO_ENABLED=0", "GOARCH=amd64", "GOOS=" + system}
		out, err := goes(vars, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Fields(out) {
			imported[name] = true
		}
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return nil, err
	}
	own, err := newComponent(m.Version, "", root) // a nested module has the licence of the root
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(own.PURL + " " + commit[0]))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // a UUID of version 8 (RFC 9562)
	s := &sbom{
		BOMFormat: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{commit[1], own},
		SerialNumber: fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]),
	}
	refs := map[string]string{m.Path: own.BOMRef}
	args := []string{"list", "-m", "-json"}
	for _, required := range t.requires(m.dir) {
		args = append(args, required.Path)
	}
	listed, err := goes(nil, args...)
	if err != nil {
		return nil, err
	}
	for modules := json.NewDecoder(strings.NewReader(listed)); modules.More(); {
		var r struct{ Path, Version, Dir string } // Dir is that of a replacement, where there is one
		if err := modules.Decode(&r); err != nil {
			return nil, err
		}
		c, err := newComponent(module.Version{Path: r.Path, Version: r.Version}, string(sums), r.Dir)
		if err != nil {
			return nil, err
		}
		c.Scope = "excluded"
		if imported[r.Path] {
			c.Scope = "required"
		}
		refs[r.Path] = c.BOMRef
		s.Components = append(s.Components, c)
	}
	slices.SortFunc(s.Components, func(a, b component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	graph, err := goes(nil, "mod", "graph")
	s.Dependencies = edges(graph, m, refs)
	return s, err
}

// newComponent describes a module by its line of go.sum, if it has one, and by the licence in its folder.
func newComponent(m module.Version, sums, dir string) (component, error) {
	names, err := licence(dir)
	if err != nil {
		return component{}, err
	}
	purl := "pkg:golang/" + m.Path + "@" + url.QueryEscape(m.Version)
	c := component{
		Type: "library", BOMRef: purl, Name: m.Path, Version: m.Version, PURL: purl,
		Licences: []licensed{{strings.Join(names, " AND ")}},
	}
	if _, sum, found := strings.Cut("\n"+sums, "\n"+m.Path+" "+m.Version+" h1:"); found {
		sum, _, _ = strings.Cut(sum, "\n")
		data, err := base64.StdEncoding.DecodeString(sum)
		if err != nil {
			return component{}, fmt.Errorf("go.sum: %s: %w", m, err)
		}
		c.Hashes = []hash{{"SHA-256", hex.EncodeToString(data)}}
	}
	return c, nil
}

// edges reads what go mod graph prints: which of the modules with a reference requires which.
func edges(graph string, main released, refs map[string]string) (all []dependency) {
	requires := map[string]map[string]bool{}
	for _, ref := range refs {
		requires[ref] = map[string]bool{}
	}
	for line := range strings.Lines(graph) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, version, _ := strings.Cut(from, "@")
		to, _, _ = strings.Cut(to, "@")
		selected := name == main.Path || refs[name] == "pkg:golang/"+name+"@"+url.QueryEscape(version)
		if selected && refs[name] != "" && refs[to] != "" {
			requires[refs[name]][refs[to]] = true
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(requires)) {
		all = append(all, dependency{ref, slices.AppendSeq([]string{}, maps.Keys(requires[ref]))})
		slices.Sort(all[len(all)-1].DependsOn)
	}
	return all
}
