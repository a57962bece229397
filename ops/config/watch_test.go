package config_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// quiet keeps the log of changes out of the tests'.
var quiet = core.WithLogger(slog.New(slog.DiscardHandler))

// file is a file of rules that a test changes.
type file struct{ path string }

func newFile(t *testing.T, text string) file {
	f := file{filepath.Join(t.TempDir(), "rules.yaml")}
	f.write(t, text)
	return f
}

// end is the last line of a file that is followed.
const end = "...\n"

// write replaces the file at once, as editors do, by a whole one.
func (f file) write(t *testing.T, text string) {
	t.Helper()
	f.writeAsIs(t, text+end)
}

func (f file) writeAsIs(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(f.path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		t.Fatal(err)
	}
}

// watch follows a file, which is read when the test says so.
func watch(t *testing.T, gate *core.Engine, f file, opts ...config.Option) *config.Live {
	t.Helper()
	live, err := config.Watch(t.Context(), gate, f.path, append(opts, config.WithInterval(time.Hour))...)
	if err != nil {
		t.Fatal(err)
	}
	return live
}

func reload(t *testing.T, live *config.Live) {
	t.Helper()
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
}

func perHour(n int) string {
	return fmt.Sprintf("guards: {g: {sliding_window: {limits: '%d/h'}}}\nrules: {r: [{guard: g, who: ip}]}\n", n)
}

// get sends a request through the rules and returns its status.
func get(h http.Handler) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Code
}

func guarded(live *config.Live) http.Handler {
	return nethttpmw.Follow(live.Source("r"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// TestALimitThatChangesKeepsItsLog: what was used before counts, with Redis and without.
func TestALimitThatChangesKeepsItsLog(t *testing.T) {
	for name, backend := range map[string]redistest.Backend{"memory": {}, "redis": redistest.Single(t)} {
		t.Run(name, func(t *testing.T) {
			f := newFile(t, perHour(2))
			live := watch(t, guardtest.NewEngine(backend, quiet), f)
			h := guarded(live)
			want := func(statuses ...int) {
				t.Helper()
				for i, status := range statuses {
					if got := get(h); got != status {
						t.Fatalf("request %d: got %d, want %d", i, got, status)
					}
				}
			}
			want(200, 200, 429)
			f.write(t, perHour(3))
			reload(t, live)
			want(200, 429)
			f.write(t, strings.Replace(perHour(4), "4/h", "4/h, 100/day", 1)) // with a window that is new
			reload(t, live)
			want(200, 429)
			f.write(t, perHour(1))
			reload(t, live)
			want(429)
		})
	}
}

// TestABadFileKeepsTheRules: the rules of the last good file stay, and the state, the log and the function
// say so, once.
func TestABadFileKeepsTheRules(t *testing.T) {
	var log bytes.Buffer
	var told []config.State
	gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	f := newFile(t, perHour(1))
	live := watch(t, gate, f, config.WithNotify(func(s config.State) { told = append(told, s) }))
	h := guarded(live)
	sum := live.State().Sum
	if len(sum) != 64 || live.State().Err != nil {
		t.Fatalf("state %+v", live.State())
	}
	f.write(t, strings.Replace(perHour(100), "who: ip", "who: ipp", 1))
	for range 3 {
		of := (*config.Error)(nil)
		if err := live.Reload(); !errors.As(err, &of) || !strings.Contains(err.Error(), `did you mean "ip"?`) {
			t.Fatalf("got %v", err)
		}
	}
	if get(h) != 200 || get(h) != 429 {
		t.Error("the former limit is not in force")
	}
	if s := live.State(); s.Sum != sum || s.Err == nil || s.Failed.IsZero() || s.Changes != 0 {
		t.Errorf("state %+v", s)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "mistakes=1") {
		t.Errorf("log: %s", log.String())
	}
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := live.Reload(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without the file: %v", err)
		}
	}
	f.write(t, perHour(1)) // the good one is back
	reload(t, live)
	if s := live.State(); s.Sum != sum || s.Err != nil || !s.Failed.IsZero() || s.Changes != 0 {
		t.Errorf("state %+v", s)
	}
	f.write(t, perHour(2))
	reload(t, live)
	if s := live.State(); s.Sum == sum || s.Changes != 1 || get(h) != 200 {
		t.Errorf("state %+v", s)
	}
	if len(told) != 4 || told[0].Err == nil || told[1].Err == nil || told[2].Err != nil || told[3].Changes != 1 {
		t.Errorf("told %+v", told)
	}
}

// TestTheFileIsFollowed: without a call of Reload, until the context ends.
func TestTheFileIsFollowed(t *testing.T) {
	f := newFile(t, perHour(1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := make(chan config.State, 1)
	live, err := config.Watch(ctx, core.NewMemory(quiet), f.path, config.WithInterval(10*time.Millisecond),
		config.WithNotify(func(s config.State) { changes <- s }))
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, perHour(7))
	if s := <-changes; s.Changes != 1 || s.Err != nil || s.Set != live.Set() {
		t.Errorf("state %+v", s)
	}
	if got := live.Set().Rules("r"); len(got) != 1 || got[0].Guard.Name() != "g" {
		t.Errorf("rules %+v", got)
	}
}

// TestHalfAFileIsNotInForce: a file that is written in place is half written for a while, and 34 of 404 prefixes
// of a valid file were valid. What two looks in a row have not read is not in force.
func TestHalfAFileIsNotInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t, perHour(1))
		const interval = 2 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		live, err := config.Watch(ctx, core.NewMemory(quiet), f.path, config.WithInterval(interval))
		if err != nil {
			t.Fatal(err)
		}
		whole := perHour(7)
		half := strings.Replace(whole, "7/h", "7/h, 9/d", 1)
		changes := func() int64 { return live.State().Changes }
		<-time.After(interval / 2)
		for range 3 { // each look finds another half
			f.write(t, half)
			<-time.After(interval)
			f.writeAsIs(t, whole[:len(whole)-1]+"\n"+end)
			<-time.After(interval)
		}
		if n := changes(); n != 0 {
			t.Errorf("%d changes were in force while the file was written", n)
		}
		f.write(t, whole)
		<-time.After(2 * interval)
		synctest.Wait()
		if n := changes(); n != 1 || live.State().Err != nil {
			t.Errorf("%d changes, %v: want the whole file in force after two looks", n, live.State().Err)
		}
	})
}

// TestAFileThatStaysCutIsNotInForce: where a file was cut behind a line and stayed so, what was left of it was
// in force, with the last rules gone.
func TestAFileThatStaysCutIsNotInForce(t *testing.T) {
	const text = "guards:\n  a: {sliding_window: {limits: 100/h}}\n" +
		"  b:\n    sliding_window:\n      limits: 10/h\n" +
		"rules:\n  r:\n    - guard: a\n      who: ip\n      on_outage: closed\n    - guard: b\n      who: ip\n" + end
	f := newFile(t, perHour(1))
	live := watch(t, core.NewMemory(quiet), f)
	valid := 0
	for cut := range len(text) - 1 {
		f.writeAsIs(t, text[:cut])
		err := live.Reload()
		if state := live.State(); err == nil || state.Err == nil || state.Changes != 0 {
			t.Fatalf("%q is in force: %v, %+v", text[:cut], err, state)
		}
		if strings.Contains(err.Error(), `does not end with a line "..."`) {
			valid++
		}
	}
	if valid == 0 {
		t.Error("no beginning of the file is valid: it proves nothing")
	}
	f.writeAsIs(t, text[:len(text)-1]) // whole, but for the end of the last line
	if err := live.Reload(); err != nil || live.State().Changes != 1 {
		t.Errorf("the whole file: %v", err)
	}
	f.writeAsIs(t, `{"guards": {"g": {"sliding_window": {"limits": "1/h"}}},
		"rules": {"r": [{"guard": "g", "who": "ip"}]}}`)
	if err := live.Reload(); err != nil || live.State().Changes != 2 {
		t.Errorf("JSON: %v", err)
	}
	f.writeAsIs(t, perHour(3))
	if _, err := config.Watch(t.Context(), core.NewMemory(quiet), f.path); err == nil {
		t.Error("a first file without its end is followed")
	}
}

// TestAListThatIsMountedStays: a file without it would let requests pass that were guarded before.
func TestAListThatIsMountedStays(t *testing.T) {
	f := newFile(t, perHour(1))
	live := watch(t, core.NewMemory(quiet), f)
	live.Source("r")
	f.write(t, strings.Replace(perHour(1), "{r:", "{s:", 1))
	err := live.Reload()
	if err == nil || !strings.Contains(err.Error(), "rules.r: missing: the program has mounted") {
		t.Errorf("got %v", err)
	}
	guardtest.WantPanic(t, `has no list of rules named "q"; it has r`, func() { live.Source("q") })
}

// TestARequestIsSettledByItsOwnRules: what a request took by the former rules goes back to these, also when
// their guard is gone or made anew.
func TestARequestIsSettledByItsOwnRules(t *testing.T) {
	b := redistest.Single(t)
	gate := guardtest.NewEngine(b, quiet)
	const former = "guards: {s: {seckill: {}}, g: {lock: {}}}\n" +
		"rules: {r: [{guard: g, who: ip, what: {const: x}}, {guard: s, who: ip, what: {const: x}}]}\n"
	f := newFile(t, former)
	live := watch(t, gate, f)
	sale := live.Set().Guard("s").(*seckill.Guard)
	if _, err := sale.Open(t.Context(), "x", seckill.Sale{Stock: 5, PerBuyer: 5}); err != nil {
		t.Fatal(err)
	}
	inside, leave := make(chan struct{}), make(chan struct{})
	h := nethttpmw.Follow(live.Source("r"))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		inside <- struct{}{}
		<-leave
		w.WriteHeader(http.StatusTeapot) // has failed: the unit goes back
	}))
	status := make(chan int)
	go func() { status <- get(h) }()
	<-inside
	f.write(t, "guards: {s: {seckill: {keep: 48h}}}\nrules: {r: [{guard: s, who: ip, what: {const: x}}]}\n")
	reload(t, live)
	if live.Set().Guard("s") == core.Guard(sale) || live.Set().Guard("g") != nil {
		t.Error("the guards have not changed")
	}
	if s, err := sale.Status(t.Context(), "x"); err != nil || s.Held != 1 {
		t.Errorf("while the request runs: %+v, %v", s, err)
	}
	leave <- struct{}{}
	if got := <-status; got != http.StatusTeapot {
		t.Errorf("got %d", got)
	}
	if s, err := live.Set().Guard("s").(*seckill.Guard).Status(t.Context(), "x"); err != nil || s.Left != 5 {
		t.Errorf("after the request: %+v, %v", s, err)
	}
	f.write(t, former) // the lock was given back
	reload(t, live)
	go func() { status <- get(h) }()
	<-inside
	leave <- struct{}{}
	<-status
}

// TestGuardsThatStayAreTheSame: a change of other rules, of comments, of the order or of the rule keeps a
// guard, its memory and what an operator has set.
func TestGuardsThatStayAreTheSame(t *testing.T) {
	const text = "guards:\n  a: {sliding_window: {limits: 1/h}}\n  b: {semaphore: {max: 1, lease: 5s}}\n" +
		"rules:\n  r:\n    - {guard: a, who: ip, rollout: {enforced: 50}}\n    - {guard: b, who: ip}\n"
	b := redistest.Single(t)
	f := newFile(t, text)
	live := watch(t, guardtest.NewEngine(b, quiet), f)
	former := live.Set()
	try := former.Rules("r")[0].Rollout
	if err := try.Set(100, 75); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{
		"# a comment\n" + text,
		strings.Replace(text, "max: 1, lease: 5s", "lease: \"5s\", max: 1", 1),
		strings.Replace(text, "{guard: b, who: ip}", "{guard: b, who: host}", 1),
		strings.Replace(text, "guards:\n", "guards:\n  c: {lock: {}}\n", 1),
	} {
		f.write(t, change)
		reload(t, live)
		for _, name := range []string{"a", "b"} {
			if live.Set().Guard(name) != former.Guard(name) {
				t.Errorf("the guard %s is another one after\n%s", name, change)
			}
		}
		rollout := live.Set().Rules("r")[0].Rollout
		if rollout != try || rollout.Report().Enforced != 75 {
			t.Errorf("the rollout is another one, or was reset: %+v", rollout.Report())
		}
	}
	f.write(t, strings.Replace(text, "enforced: 50", "enforced: 60", 1))
	reload(t, live)
	if got := try.Report().Enforced; got != 60 {
		t.Errorf("enforced for %v %%", got)
	}
}

// TestANameThatTheProgramHas: only the engine knows it; a file that fails there changes nothing.
func TestANameThatTheProgramHas(t *testing.T) {
	gate := core.NewMemory(quiet)
	limit.NewSlidingWindow(gate, "own", limit.PerHour(1))
	f := newFile(t, perHour(1))
	live := watch(t, gate, f)
	for range 2 { // twice: the first failure must not leave the name of the other new guard behind
		f.write(t, "guards: {n: {token_bucket: {limits: 1/h}}, own: {sliding_window: {limits: 1/h}}}\n"+
			"rules: {r: [{guard: own, who: ip}, {guard: n, who: ip}]}\n")
		err := live.Reload()
		if err == nil || !strings.Contains(err.Error(), `:1:44: guards.own: two guards are named "own"`) ||
			strings.Contains(err.Error(), "guards.n:") {
			t.Errorf("got %v", err)
		}
		f.write(t, perHour(2))
		reload(t, live)
	}
	f.write(t, "guards: {v: {votes: {}}}\nrules: {r: [{guard: v, who: ip, what: ip, which: ip}]}\n")
	if err := live.Reload(); err == nil || !strings.Contains(err.Error(), `guards.v: the guard "v" needs Redis`) {
		t.Errorf("got %v", err)
	}
}

// TestSwapsUnderLoad: while the rules change a hundred times, no request is answered wrongly: those of one
// client never get more than the largest limit, and those of another are never refused.
func TestSwapsUnderLoad(t *testing.T) {
	b := redistest.Single(t)
	text := func(i int) string {
		return fmt.Sprintf("guards:\n  few: {sliding_window: {limits: %d/h}}\n"+
			"  many: {token_bucket: {limits: %d/s}}\n  slots: {semaphore: {max: 100}}\n"+
			"rules:\n  r:\n    - {guard: many, who: {header: X-Client}}\n"+
			"    - {guard: slots, who: ip}\n    - {guard: few, who: {header: X-Few}, no_key: skip, cost: 1}\n",
			20+i%7, 1_000_000+i)
	}
	f := newFile(t, text(0))
	live := watch(t, guardtest.NewEngine(b, quiet), f)
	h := guarded(live)
	var admitted, wrong, sent atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for worker := range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("X-Client", fmt.Sprint(worker))
				limited := i%2 == 0
				if limited {
					r.Header.Set("X-Few", "one")
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				sent.Add(1)
				switch {
				case w.Code == 200 && limited:
					admitted.Add(1)
				case w.Code == 200, w.Code == 429 && limited:
				default:
					wrong.Add(1)
				}
			}
		}()
	}
	for i := range 100 {
		before := sent.Load()
		f.write(t, text(i+1))
		reload(t, live)
		redistest.Eventually(t, time.Minute, func() bool { return sent.Load() > before }, "requests go on")
	}
	close(stop)
	all.Wait()
	if wrong.Load() > 0 || admitted.Load() < 20 || admitted.Load() > 26 {
		t.Errorf("%d of %d answers are wrong; admitted %d, want 20 to 26", wrong.Load(), sent.Load(),
			admitted.Load())
	}
	if s := live.State(); s.Changes != 100 || s.Err != nil {
		t.Errorf("state %+v", s)
	}
}

// TestASourceCostsNothing: a request asks for the pipeline without an allocation.
func TestASourceCostsNothing(t *testing.T) {
	source := watch(t, core.NewMemory(quiet), newFile(t, perHour(1))).Source("r")
	if n := testing.AllocsPerRun(100, func() { source.Pipeline() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestOptionsOfTheProgram: key functions, costs, guards and adjustments of code.
func TestOptionsOfTheProgram(t *testing.T) {
	c, err := config.Parse("f", []byte("keys: {both: {join: [tenant, ip]}}\n"+
		"guards: {g: {sliding_window: {limits: 10/h}}}\n"+
		"rules: {r: [{guard: own, who: ip}, {guard: g, who: both, cost: size}]}\n"),
		config.WithKey("tenant", keyfuncs.Const("acme")),
		config.WithCost("size", func(*keyfuncs.Request) (int64, error) { return 9, nil }),
		config.WithGuards(ownGuard{}),
		config.WithAdjust(func(list string, r *pipeline.Rule) {
			r.Texts = func(*http.Request, *answers.Refusal) answers.Text {
				return answers.Text{Detail: list + " " + r.Guard.Name()}
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	set, err := c.Build(core.NewMemory(quiet))
	if err != nil {
		t.Fatal(err)
	}
	rules := set.Rules("r")
	who, err := rules[1].Who(&keyfuncs.Request{Request: httptest.NewRequest(http.MethodGet, "/", nil)})
	if who != "acme|192.0.2.1" {
		t.Errorf("who is %q, %v", who, err)
	}
	h := nethttpmw.HTTP(rules...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	get(h)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != 429 || !strings.Contains(w.Body.String(), `"r g"`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	guardtest.WantPanic(t, "built-in", func() { config.WithKey("ip", keyfuncs.Host()) })
}
