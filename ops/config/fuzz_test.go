package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/ops/config"
)

// FuzzParse: whatever a file has in it, there is a Config or an Error with places inside the file, and the
// Config is the same a second time.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		everyGuard, rules(site, byIP), rules(`{votes: {polls: {a: {per_day: 1, day: {every: 6h}}}}}`, byIP),
		`{"guards": {"g": {"lock": null}}, "rules": {"r": [{"guard": "g", "who": {"json": {"member": "a", "max_bytes": 9}}}]}}`,
		"keys: {a: {hash: b}, b: {join: [ip, a]}}\nrules: 1\n", "a: &a [*a]", "? [a]: b", "{[a]: b}", "- - -",
		`"\ud83d"`, `{"a":1e999,"b":["\ud83d\ude00\/"]}`, "rules: {? {a: b} : c}", "rules: !!binary aGk=",
		"%YAML 1.1\n---\na",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse("f", data)
		if err == nil {
			again, err := config.Parse("f", data)
			if err != nil || strings.Join(again.Lists(), ",") != strings.Join(c.Lists(), ",") {
				t.Errorf("the second time: %v", err)
			}
			return
		}
		of := (*config.Error)(nil)
		if !errors.As(err, &of) || len(of.Mistakes) == 0 {
			t.Fatalf("the error has no mistakes: %v", err)
		}
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 2
		for _, m := range of.Mistakes {
			if m.Text == "" || m.Line < 0 || m.Line > lines+strings.Count(string(data), "\u0085")+
				strings.Count(string(data), "\u2028")+strings.Count(string(data), "\u2029") || m.Column < 0 {
				t.Errorf("the mistake has no place in a file of %d lines: %+v", lines, m)
			}
		}
	})
}
