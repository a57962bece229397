// Package explain has the commands that read files of rules: check says what is wrong with them, and explain
// which rules a request meets.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/connect"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/rules"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/attack"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// Command is the command explain.
var Command = cli.Command{Name: "explain", Args: "[flags] FILE",
	Does: "which rules a request meets, with which keys, and what it is answered", Run: explain}

// flags are the flags of the command explain.
type flags struct {
	connect.Redis
	rules.Functions
	request, route, remote, body, list string
	header                             http.Header
	users                              map[string]string
}

// report is the result of the command explain.
type report struct {
	Request string       `json:"request"`
	Lists   []listReport `json:"lists"`
}

// listReport is what happens to the request in one list of rules.
type listReport struct {
	Name   string       `json:"name"`
	Rules  []ruleReport `json:"rules"`
	Status int          `json:"status,omitempty"` // of a refusal
	Header []string     `json:"header"`
	// Assumed reports that a guard that only Redis can ask was assumed to allow the request.
	Assumed bool `json:"assumed"`
}

// ruleReport is what a rule makes of the request.
type ruleReport struct {
	Guard string `json:"guard"`
	Kind  string `json:"kind"`
	// Asked reports whether the guard is asked at all.
	Asked    bool            `json:"asked"`
	Reason   core.Reason     `json:"reason,omitempty"`   // of a refusal
	Key      string          `json:"key,omitempty"`      // what refused, if not the guard: see core.Event.Key
	Function string          `json:"function,omitempty"` // and its key function
	Try      []string        `json:"try,omitempty"`      // the flags that give what it did not find
	Actor    string          `json:"actor,omitempty"`
	Resource string          `json:"resource,omitempty"`
	Item     string          `json:"item,omitempty"`
	Cost     int64           `json:"cost,omitempty"`
	ID       string          `json:"id,omitempty"`
	Keys     []string        `json:"keys"`
	Source   string          `json:"source,omitempty"`
	Figures  *cli.Figures    `json:"figures,omitempty"`
	Sale     *seckill.Status `json:"sale,omitempty"`
}

func explain(ctx context.Context, e *cli.Env) error {
	f := flags{header: http.Header{}, users: map[string]string{}}
	f.Looks = true
	fs := e.Flags
	f.Redis.Register(fs)
	f.Functions.Register(fs)
	fs.StringVar(&f.request, "request", "GET /", "the `method and path` of the request, such as 'POST /polls/1/votes'")
	fs.StringVar(&f.route, "route", "", "the `pattern` of the route, as of http.ServeMux: 'POST /polls/{poll}/votes'")
	fs.StringVar(&f.remote, "remote", "192.0.2.1", "the `address` of the peer")
	fs.StringVar(&f.body, "body", "", "the `body` of the request; name its Content-Type with -H")
	fs.StringVar(&f.list, "rules", "", "the `list` of rules to explain (default: all lists)")
	fs.Func("H", "a header `field`, such as 'X-Forwarded-For: 203.0.113.7'; may be repeated", cli.AddTo(f.header))
	fs.Func("user", "what the login stored, such as `uid=ann`; may be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("write it as NAME=VALUE")
		}
		f.users[name] = value
		return nil
	})
	operands, err := e.Operands()
	if err != nil {
		return err
	}
	if len(operands) != 1 {
		return cli.Usagef("%d operands: name one file", len(operands))
	}
	if _, err := f.newRequest(ctx); err != nil {
		return err
	}
	cfg, err := rules.Load(operands[0], f.Options())
	if err != nil {
		return err
	}
	if f.list != "" && !slices.Contains(cfg.Lists(), f.list) {
		return cli.Usagef("%s has no list %q: it has %s", operands[0], f.list, strings.Join(cfg.Lists(), ", "))
	}
	x, done, err := f.explainer(ctx, e, cfg)
	if err != nil {
		return err
	}
	defer done()
	result := report{Request: f.request, Lists: []listReport{}}
	for _, name := range cfg.Lists() {
		if f.list != "" && name != f.list {
			continue
		}
		list, err := x.explain(ctx, name)
		if err != nil {
			return err
		}
		result.Lists = append(result.Lists, list)
	}
	return e.Write(result, result.write)
}

// newRequest makes the request, as the handlers of the route see it.
func (f *flags) newRequest(ctx context.Context) (*http.Request, error) {
	method, target, ok := strings.Cut(f.request, " ")
	u, err := url.ParseRequestURI(target)
	if !ok || err != nil {
		return nil, cli.Usagef("-request is %q: write a method and a path, such as 'POST /polls/1/votes'",
			f.request)
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(f.body))
	if err != nil {
		return nil, cli.Usagef("-request is %q: %w", f.request, err)
	}
	r.Host, r.Header = cmp.Or(f.header.Get("Host"), r.Host, "app.example"), f.header.Clone()
	r.Header.Del("Host")
	r.RemoteAddr = f.remote
	if _, _, err := net.SplitHostPort(f.remote); err != nil {
		r.RemoteAddr = net.JoinHostPort(strings.Trim(f.remote, "[]"), "40000")
	}
	for name, value := range f.users {
		r = r.WithContext(keyfuncs.WithValue(r.Context(), name, value))
	}
	if f.route == "" {
		return r, nil
	}
	return f.routed(r)
}

// routed passes the request through a router with the route.
func (f *flags) routed(r *http.Request) (routed *http.Request, err error) {
	var mux http.ServeMux
	catch := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { routed = r })
	if err := cli.Caught(func() { mux.Handle(f.route, catch) }); err != nil {
		return nil, cli.Usagef("-route: %w", err)
	}
	mux.ServeHTTP(httptest.NewRecorder(), r)
	if routed == nil {
		return nil, cli.Usagef("-route %q does not match -request %q", f.route, f.request)
	}
	return routed, nil
}

// explainer has the rules of the file on an engine that sends nothing, and perhaps on a Redis.
type explainer struct {
	flags  *flags
	config *config.Config
	dry    *config.Set
	live   *config.Set // nil without a Redis
	unmade core.Event  // the last refusal without a decision
}

// Observe implements core.Observer.
func (x *explainer) Observe(_ context.Context, e core.Event) {
	if e.Op == "refuse" {
		x.unmade = e
	}
}

func (f *flags) explainer(
	ctx context.Context, e *cli.Env, cfg *config.Config,
) (x *explainer, done func(), err error) {
	x = &explainer{flags: f, config: cfg}
	x.dry, err = rules.DryBuild(cfg, new(recorder).note, f.Prefix, core.WithObserver(x))
	if err != nil || f.URL == "" {
		return x, func() {}, err
	}
	engine, client, err := f.Connect(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	x.live, err = cfg.Build(engine)
	return x, func() { _ = client.Close() }, err
}

// explain explains one list.
func (x *explainer) explain(ctx context.Context, name string) (listReport, error) {
	list := listReport{Name: name, Header: []string{}}
	rules := x.dry.Rules(name)
	for i := range rules {
		guard := x.watch(&rules[i])
		rule, err := x.explainRule(ctx, rules[i], guard)
		if err != nil {
			return list, err
		}
		list.Rules = append(list.Rules, rule)
		list.Assumed = list.Assumed || rule.Source == fromNobody
	}
	r, err := x.flags.newRequest(ctx)
	if err != nil {
		return list, err
	}
	w := httptest.NewRecorder()
	passed := false
	nethttpmw.HTTP(rules...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })).
		ServeHTTP(w, r)
	if !passed {
		list.Status = w.Code
	}
	for _, field := range slices.Sorted(maps.Keys(w.Header())) {
		for _, value := range w.Header()[field] {
			list.Header = append(list.Header, attack.FieldName(field)+": "+value)
		}
	}
	return list, nil
}

// watch replaces the guard and the bans of a rule by those that take nothing.
func (x *explainer) watch(rule *pipeline.Rule) *watched {
	g := &watched{Guard: rule.Guard}
	rule.Guard, rule.Defer = g, nil
	bans := rule.Bans
	rule.Bans = nil
	if x.live == nil {
		return g
	}
	g.live = x.live.Guard(g.Name())
	if bans != nil {
		if live, ok := x.live.Guard(bans.Name()).(pipeline.Bans); ok {
			rule.Bans = watchedBans{live}
		}
	}
	return g
}

// explainRule asks one rule, as if it were alone.
func (x *explainer) explainRule(ctx context.Context, rule pipeline.Rule, g *watched) (ruleReport, error) {
	says := ruleReport{Guard: g.Name(), Kind: x.config.Kind(g.Name()), Keys: []string{}}
	r, err := x.flags.newRequest(ctx)
	if err != nil {
		return says, err
	}
	x.unmade = core.Event{}
	passage, refusal := pipeline.New(rule).Enter(&keyfuncs.Request{Request: r})
	if g.err != nil {
		return says, fmt.Errorf("ask Redis about guard %q: %w", g.Name(), g.err)
	}
	says.Asked = g.asked
	if refusal != nil {
		says.Reason = refusal.Reason
		if !g.asked {
			says.Key, says.Function = x.unmade.Key, x.unmade.Function
			if refusal.Reason == answers.ReasonNoKey {
				says.Function = cmp.Or(says.Function, "a function of the program")
				says.Try = givenBy(x.unmade.Function)
			}
		}
	} else {
		defer passage.Abort()
	}
	if !g.asked {
		return says, nil
	}
	a := g.attempt
	says.Actor, says.Resource, says.Item, says.Cost, says.ID = a.Actor, a.Resource, a.Item, max(a.Cost, 1), a.ID
	says.Source, says.Sale = g.source, g.sale
	if g.source != fromNobody {
		now := cli.FiguresOf(g.decision)
		says.Figures = &now
	}
	says.Keys, err = x.keysOf(ctx, g.Name(), a)
	return says, err
}

// flagsFor are the flags that give a request what a key function looks for, by the function. ARGUMENT stands
// for its argument.
var flagsFor = map[string]string{
	"User":           "-user ARGUMENT=VALUE",
	"Route":          "-route 'METHOD /PATTERN', as the program mounts it",
	"Param":          "-route 'METHOD /PATTERN', as the program mounts it",
	"Query":          "-request 'METHOD /PATH?ARGUMENT=VALUE'",
	"Header":         "-H 'ARGUMENT: VALUE'",
	"Cookie":         "-H 'Cookie: ARGUMENT=VALUE'",
	"IdempotencyKey": `-H 'Idempotency-Key: "VALUE"'`,
	"BasicAuth":      "-H 'Authorization: Basic BASE64'",
	"Form":           "-H 'Content-Type: application/x-www-form-urlencoded' -body 'ARGUMENT=VALUE'",
	"JSON":           "-H 'Content-Type: application/json' -body 'OBJECT'",
	"IP":             "-remote ADDRESS",
}

// givenBy returns the flags that give a request what a key function looks for.
func givenBy(function string) (flags []string) {
	for _, call := range keyCall.FindAllStringSubmatch(function, -1) {
		if flag := flagsFor[call[1]]; flag != "" {
			flags = append(flags, strings.ReplaceAll(flag, "ARGUMENT", call[2]))
		}
	}
	if len(flags) == 0 {
		flags = append(flags, "-key NAME=VALUE, with the name that the file has")
	}
	return flags
}

// keyCall finds the calls in the text of a key function: FirstOf(User("uid"), Cookie("sid")).
var keyCall = regexp.MustCompile(`(\w+)\((?:"([^"]*)"|[^()]*)\)`)

// keysOf returns the keys of a check. If the request has no operation ID, each process makes another one. A
// key that contains it ends in front of it, with a star.
func (x *explainer) keysOf(ctx context.Context, guard string, a core.Attempt) ([]string, error) {
	keys, err := x.keysInOneProcess(ctx, guard, a)
	if err != nil {
		return nil, err
	}
	again, err := x.keysInOneProcess(ctx, guard, a)
	if err != nil {
		return nil, err
	}
	for i := range min(len(keys), len(again)) {
		if keys[i] == again[i] {
			continue
		}
		same := 0
		for same < min(len(keys[i]), len(again[i])) && keys[i][same] == again[i][same] {
			same++
		}
		before := keys[i][:same]
		keys[i] = before[:strings.LastIndexAny(before, "|:")+1] + "*"
	}
	return keys, nil
}

// keysInOneProcess returns the keys of a check by a new guard. Every call fails here, and a guard that was
// used before would try the earlier ones again in the background.
func (x *explainer) keysInOneProcess(ctx context.Context, guard string, a core.Attempt) ([]string, error) {
	r := &recorder{keys: []string{}}
	set, err := rules.DryBuild(x.config, r.note, x.flags.Prefix, core.WithObserver(x))
	if err != nil {
		return nil, err
	}
	_, _ = set.Guard(guard).Check(ctx, a)
	return r.noted(), nil
}

// write writes what was found, a paragraph for each list.
func (x report) write(w *strings.Builder) {
	fmt.Fprintln(w, x.Request)
	for _, list := range x.Lists {
		fmt.Fprintf(w, "\nrules of %s\n", list.Name)
		for _, rule := range list.Rules {
			rule.write(w)
		}
		answer := "the request passes"
		switch {
		case list.Status != 0:
			answer = fmt.Sprintf("the request gets %d %s", list.Status, http.StatusText(list.Status))
		case list.Assumed:
			answer = "the request passes, if the guards that were not asked allow it"
		}
		fmt.Fprintf(w, "  %s\n", answer)
		for _, field := range list.Header {
			fmt.Fprintf(w, "    %s\n", cli.Printable(field))
		}
	}
}

func (r ruleReport) write(w *strings.Builder) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "    %-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(w, "  %s (%s)\n", r.Guard, r.Kind)
	if !r.Asked {
		if r.Reason != "" {
			line("refused", "%s: the guard is not asked", r.Reason)
			if r.Key != "" {
				line("by", "%s", strings.TrimSpace(r.Key+" "+r.Function))
			}
			for _, flag := range r.Try {
				line("try", "%s", flag)
			}
		} else {
			line("passes", "without being counted")
		}
		return
	}
	for _, part := range []struct{ name, value string }{
		{"actor", r.Actor}, {"resource", r.Resource}, {"item", r.Item}, {"id", r.ID},
	} {
		if part.value != "" {
			line(part.name, "%s", cli.Printable(part.value))
		}
	}
	line("cost", "%d", r.Cost)
	for _, key := range r.Keys {
		line("key", "%s", cli.Printable(key))
	}
	switch f := r.Figures; {
	case f != nil && f.Limit == 0:
		line("now", "%s, not limited", f.Reason)
	case f != nil && r.Source == fromRedis:
		line("now", "%s, %d of %d left", f.Reason, f.Remaining, f.Limit)
	case f != nil:
		line("at first", "%s, %d of %d left with this request", f.Reason, f.Remaining, f.Limit)
	case r.Sale != nil:
		line("now", "stock %d: left %d, held %d, sold %d", r.Sale.Stock, r.Sale.Left, r.Sale.Held, r.Sale.Sold)
	default:
		line("now", "not asked: only an attempt could tell")
	}
}
