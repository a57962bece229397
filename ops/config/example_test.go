package config_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/operator"
)

// serve is the part of a program that mounts the rules of a file.
func serve(ctx context.Context, gate *core.Engine, mux *http.ServeMux, order http.HandlerFunc) http.Handler {
	live, err := config.Watch(ctx, gate, "rules.yaml")
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("POST /sales/{sku}/orders", ratelimit.Follow(live.Source("checkout"))(order))
	return ratelimit.Follow(live.Source("site"))(mux)
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

// An operator's handler that is made for each request shows the guards of the present file.
func ExampleLive_Set() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "rules.yaml")
	write := func(guard string) {
		file := "guards:\n  " + guard + ": {sliding_window: {limits: 100/min}}\n" +
			"rules:\n  all: [{guard: " + guard + ", who: ip}]\n...\n"
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	write("site")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	quiet := core.WithLogger(slog.New(slog.DiscardHandler))
	live, err := config.Watch(ctx, core.NewMemory(quiet), path)
	if err != nil {
		log.Fatal(err)
	}
	var mux http.ServeMux
	login := func(next http.Handler) http.Handler { return next } // the application's
	staff := func(*keyfuncs.Request, operator.Action) (string, error) { return "sam", nil }

	ops := func(w http.ResponseWriter, r *http.Request) {
		options, set := operator.Options{Authorize: staff}, live.Set()
		for _, name := range set.Config().Lists() {
			options.Lists = append(options.Lists, operator.List{Name: name, Rules: set.Rules(name)})
		}
		operator.New(options).ServeHTTP(w, r)
	}
	mux.Handle("/ops/", login(http.HandlerFunc(ops)))

	show := func() {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ops/", nil))
		fmt.Println(strings.Contains(w.Body.String(), `"site"`), strings.Contains(w.Body.String(), `"api"`))
	}
	show()
	write("api")
	if err := live.Reload(); err != nil {
		log.Fatal(err)
	}
	show()
	// Output:
	// true false
	// false true
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
