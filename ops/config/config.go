package config

import (
	"crypto/sha256"

	"github.com/gatehouse-go/gatehouse/ops/config/internal/rulefile"
	"github.com/gatehouse-go/gatehouse/ops/control"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// Config is what a file says, checked: the guards and the lists of rules that [Config.Build] makes. It never
// changes, and it is safe for concurrent use.
type Config struct {
	file    *rulefile.File
	name    string
	sum     [sha256.Size]byte
	program *program
	whole   bool
}

// program is what a program adds to its files.
type program struct {
	rulefile.Program
	desk   *control.Desk
	adjust []func(list string, rule *pipeline.Rule)
}

func parse(name string, data []byte, p *program) (*Config, error) {
	file, mistakes := rulefile.Read(name, data, &p.Program)
	end := rulefile.CheckEnd(name, data)
	if end != nil && p.ForGateway { // its file is followed
		mistakes = append(mistakes, *end)
	}
	if len(mistakes) > 0 {
		return nil, errorOf(mistakes...)
	}
	return &Config{file, name, sha256.Sum256(data), p, end == nil}, nil
}

// Whole reports whether the end of the file is marked, as [Watch] demands: YAML by a last line "...".
func (c *Config) Whole() bool { return c.whole }

// Lists returns the names of the lists of rules, in the order of the file.
func (c *Config) Lists() []string {
	names := make([]string, len(c.file.Rules))
	for i, list := range c.file.Rules {
		names[i] = list.Name
	}
	return names
}

// Guards returns the names of the guards of the file, in its order. Kind has the kind of each.
func (c *Config) Guards() []string {
	names := make([]string, len(c.file.Guards))
	for i, g := range c.file.Guards {
		names[i] = g.Name
	}
	return names
}

// Kind returns the kind of a guard as the file names it, such as sliding_window. It is empty if the file has
// no such guard.
func (c *Config) Kind(guard string) string {
	for _, g := range c.file.Guards {
		if g.Name == guard {
			return g.Value.Kind
		}
	}
	return ""
}

// Route names the lists of rules that the requests of a pattern pass.
type Route struct {
	// Pattern is one of http.ServeMux, such as "POST /polls/{poll}/votes".
	Pattern string
	// Lists are passed in this order.
	Lists []string
}

// Routes returns the routes of the file, in its order.
func (c *Config) Routes() []Route {
	routes := make([]Route, len(c.file.Routes))
	for i, r := range c.file.Routes {
		routes[i] = Route{r.Pattern, r.Lists}
	}
	return routes
}

// ForGateway reports whether the file was checked by the option [ForGateway].
func (c *Config) ForGateway() bool { return c.program.ForGateway }
