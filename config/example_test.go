package config_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/gatehouse-go/gatehouse/config"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// serve is the part of a program that mounts the rules of a file.
func serve(ctx context.Context, gate *core.Engine, mux *http.ServeMux, order http.HandlerFunc) http.Handler {
	live, err := config.Watch(ctx, gate, "rules.yaml")
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("POST /sales/{sku}/orders", nethttpmw.Follow(live.Source("checkout"))(order))
	return nethttpmw.Follow(live.Source("site"))(mux)
}

// A program adds functions of its own to what files can name.
func ExampleWithKey() {
	tenant := func(r *keyfuncs.Request) (string, error) {
		name, _, found := strings.Cut(r.Host, ".")
		if !found {
			return "", keyfuncs.ErrMissing
		}
		return name, nil
	}
	_, err := config.Parse("rules.yaml", []byte(`
guards:
  api: {sliding_window: {limits: "100/min"}}
rules:
  api: [{guard: api, who: tenant}]
`), config.WithKey("tenant", tenant))
	fmt.Println(err)
	// Output: <nil>
}

// Everything that is wrong with a file is reported at once.
func ExampleLoad() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "rules.yaml")
	file := "guards:\n  api: {sliding_window: {limit: 100/min}}\nrules:\n  api: [{guard: apy, who: ip}]\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		log.Fatal(err)
	}
	_, err = config.Load(path)
	if wrong := (*config.Error)(nil); errors.As(err, &wrong) {
		for _, m := range wrong.Mistakes {
			fmt.Printf("line %d, column %d: %s\n", m.Line, m.Column, m.Text)
		}
	}
	// Output:
	// line 2, column 26: unknown field "limit": did you mean "limits"?; allowed here: limits, tiers
	// line 4, column 17: unknown guard "apy": did you mean "api"?; allowed here: api
}
