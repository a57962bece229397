package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// spenderEnv tells the test binary that it is a process that spends a budget: the share of replies that it
// loses, its deadline, and the addresses of Redis.
const spenderEnv = "GATEHOUSE_HISTORIES_SPENDER"

const (
	long       = 366 * day // the period of what is metered
	userWindow = 150 * ms
)

// spenderPlan is the limits of each level of the process's budgets. That of the period has the moment of each
// decision in its figures.
func spenderPlan(path []string) ([]budget.Limit, error) {
	if strings.HasPrefix(path[0], "burst") {
		return [][]budget.Limit{{{Max: 52, Window: time.Hour}}, nil, {{Max: 10, Window: time.Hour}}}[len(path)-1], nil
	}
	if path[0] == "refunds" {
		return []budget.Limit{{Max: 1, Period: period.Every(long), Overage: budget.Metered}}, nil
	}
	return [][]budget.Limit{
		{{Max: 60, Window: 300 * ms}, {Max: 1, Period: period.Every(long), Overage: budget.Metered}},
		{{Max: 30, Window: 200 * ms}},
		{{Max: 3, Window: userWindow}},
	}[len(path)-1], nil
}

// Spender is what a process offers to its test.
type Spender struct {
	guard *budget.Guard
	desk  *control.Desk
}

// SpendCall is an attempt, and what it has really cost, which is known after a while. In a burst the attempts
// of a process are a distance apart.
type SpendCall struct {
	Path         []string
	Cost, Actual int64
	After        time.Duration
	Burst        []string // users
	From         time.Time
	Apart        time.Duration
	Max          int64 // of an override
}

// SpendAnswer is what became of it.
type SpendAnswer struct {
	Failed, Unsettled bool // Redis has not answered
	Reason            core.Reason
	Stamp             int64 // microseconds of the period
	Max               int64 // of the user's window
	Negative          bool  // a figure was below zero
	Passed            map[string]int
}

// Check makes an attempt, and settles it.
func (s *Spender) Check(call SpendCall, answer *SpendAnswer) error {
	ctx := context.Background()
	d, err := s.guard.Check(ctx, core.Attempt{Actor: budget.Path(call.Path...), Cost: call.Cost})
	if answer.Failed = err != nil; answer.Failed {
		return nil
	}
	answer.Reason = d.Reason
	for _, f := range budget.Figures(d) {
		answer.Negative = answer.Negative || f.Used < 0 || f.Max < 0
		switch {
		case f.Limit.Period != nil:
			answer.Stamp = (long - f.ResetAfter).Microseconds()
		case f.Level == "user":
			answer.Max = f.Max
		}
	}
	if !d.Allowed || call.Actual == call.Cost {
		return nil
	}
	pass(ctx, call.After)
	answer.Unsettled = true
	for range 20 {
		if s.guard.Spend(ctx, d, call.Actual) == nil {
			answer.Unsettled = false
			return nil
		}
	}
	return nil
}

// Burst makes attempts of many users.
func (s *Spender) Burst(call SpendCall, answer *SpendAnswer) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	answer.Passed = map[string]int{}
	for i, user := range call.Burst {
		for time.Until(call.From.Add(time.Duration(i)*call.Apart)) > 0 {
		}
		all.Go(func() {
			var one SpendAnswer
			attempt := SpendCall{Path: append(slices.Clone(call.Path), user), Cost: 1, Actual: 1}
			_ = s.Check(attempt, &one) // the answer has the error
			mu.Lock()
			defer mu.Unlock()
			answer.Failed = answer.Failed || one.Failed
			if one.Reason == core.ReasonOK {
				answer.Passed[user]++
			}
		})
	}
	all.Wait()
	return nil
}

// paused and resumed are in place of the Max of an override.
const paused, resumed = -1, -2

// Decide gives a user another limit, pauses or resumes them, as an operator.
func (s *Spender) Decide(call SpendCall, _ *SpendAnswer) error {
	ctx := context.Background()
	x := control.Decision{Kind: control.Pause, Name: "api", Of: budget.Path(call.Path...), Value: "on"}
	switch call.Max {
	case resumed:
		return s.desk.Withdraw(ctx, x, "sue", "")
	case paused:
	default:
		x.Kind, x.Value = control.Budget, budget.Limit{Max: call.Max, Window: userWindow}.String()
	}
	return s.desk.Decide(ctx, x, "sue", "")
}

// Drain waits until all that was lost is taken back.
func (s *Spender) Drain(SpendCall, *SpendAnswer) error {
	return s.guard.Engine().Drain(context.Background())
}

func newSpender(e *core.Engine) *budget.Guard {
	return budget.New(e, "api", budget.Options{Levels: []string{"org", "team", "user"}, Find: spenderPlan})
}

// serveSpender is what a process does until it is killed.
func serveSpender(t *testing.T, words []string) {
	lost, _ := strconv.ParseFloat(words[0], 64)
	deadline, _ := time.ParseDuration(words[1])
	o, faults := redistest.OptionsOf(words[2]), redistest.NewFaults(t)
	if o.Addrs = words[2:]; lost > 0 {
		faults.SwallowEvery("evalsha", lost, rand.New(rand.NewPCG(rand.Uint64(), 0)))
		o.Dialer = faults.Dial
	}
	o.ContextTimeoutEnabled, o.DialerRetries = true, 1
	e := core.New(redis.NewUniversalClient(o), core.WithPrefix("spenders"), core.WithDeadline(deadline),
		core.WithObserver(guardtest.Ignore{}), core.WithBreaker(1<<30, 0))
	guard := newSpender(e)
	serveCalls(t, &Spender{guard, deskOf(e, guard)})
}

// spenders are processes that spend the same budgets.
type spenders struct {
	t     *testing.T
	env   string
	admin redis.UniversalClient
	guard *budget.Guard // of the test
	seed  uint64

	mu        sync.Mutex
	processes []*spender
}

type spender struct {
	*guardtest.Process
	client *rpc.Client
}

func startSpenders(
	t *testing.T, o *redis.UniversalOptions, lost float64, deadline time.Duration,
) *spenders {
	t.Helper()
	s := &spenders{t: t, admin: redis.NewUniversalClient(o), seed: rand.Uint64()}
	t.Cleanup(func() { _ = s.admin.Close() })
	s.env = fmt.Sprintf("%s=%v %v %s", spenderEnv, lost, deadline, strings.Join(o.Addrs, " "))
	s.guard = newSpender(core.New(s.admin, core.WithPrefix("spenders"), core.WithDeadline(time.Minute)))
	t.Logf("seed %d", s.seed)
	for range 3 {
		s.processes = append(s.processes, s.launch())
	}
	return s
}

func (s *spenders) launch() *spender {
	p := guardtest.StartProcess(s.t, "TestABurstOverProcessesAtTheTempoOfTheWire", s.env)
	client, err := rpc.Dial("tcp", p.Line())
	if err != nil {
		s.t.Fatal(err)
	}
	return &spender{Process: p, client: client}
}

func (s *spenders) some(rng *rand.Rand) *spender {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[rng.IntN(len(s.processes))]
}

func (s *spenders) all() []*spender {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.processes)
}

func (p *spender) call(method string, call SpendCall) (answer SpendAnswer, err error) {
	err = p.client.Call("Spender."+method, call, &answer)
	return answer, err
}

// TestABurstOverProcessesAtTheTempoOfTheWire: 500 attempts of one user, 30 us apart, beside 42 of nine others
// in the same organisation, of which all that the limits of the users allow fit. Whatever the order, exactly
// 10 and 42 pass. The test is also what the processes run.
func TestABurstOverProcessesAtTheTempoOfTheWire(t *testing.T) {
	if words := strings.Fields(os.Getenv(spenderEnv)); len(words) > 2 {
		serveSpender(t, words)
		return
	}
	rounds := 8
	if redistest.Soak() {
		rounds = 300
	}
	s := startSpenders(t, redistest.StartServer(t).Options(), 0, time.Minute)
	rng := rand.New(rand.NewPCG(s.seed, 0))
	for round := range rounds {
		users := make([]string, 542)
		for i := range users {
			if users[i] = "ann"; i >= 500 {
				users[i] = fmt.Sprint("user ", i%9)
			}
		}
		switch round % 4 {
		case 0:
		case 1: // the others first
			slices.Reverse(users)
		default:
			rng.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] })
		}
		const apart = 30 * time.Microsecond
		passed, from := map[string]int{}, time.Now().Add(20*ms)
		var mu sync.Mutex
		var all sync.WaitGroup
		for i, p := range s.processes {
			call := SpendCall{Path: []string{fmt.Sprint("burst ", round), []string{"", "dev"}[round%2]},
				From: from.Add(time.Duration(i) * apart), Apart: 3 * apart}
			for n := i; n < len(users); n += 3 {
				call.Burst = append(call.Burst, users[n])
			}
			all.Go(func() {
				answer, err := p.call("Burst", call)
				if err != nil || answer.Failed {
					t.Errorf("a process has failed: %v, %+v", err, answer)
				}
				mu.Lock()
				defer mu.Unlock()
				for user, n := range answer.Passed {
					passed[user] += n
				}
			})
		}
		all.Wait()
		others := 0
		for user, n := range passed {
			if user != "ann" {
				others += n
			}
		}
		if passed["ann"] != 10 || others != 42 {
			t.Errorf("round %d: %d of one and %d of the others, want 10 and 42", round, passed["ann"], others)
		}
	}
}

// spent is an attempt that was allowed: what counts of it in windows.
type spent struct {
	stamp, units int64
	path         []string
}

// ledger is what callers know.
type ledger struct {
	mu          sync.Mutex
	spent       []spent
	least, most int64 // units that were metered
	kills       bool  // what processes have not told, or not taken back, may be lost with them
	calls       int
	failed      int
	unsettled   int
}

func (l *ledger) allowed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.spent)
}

func (l *ledger) add(call SpendCall, answer SpendAnswer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	switch {
	case err != nil: // the process is dead
		l.failed++
		l.most += max(call.Cost, call.Actual)
	case answer.Failed:
		if l.failed++; l.kills {
			l.most += call.Cost
		}
	case answer.Reason != core.ReasonOK:
	default:
		least := min(call.Cost, call.Actual)
		l.spent = append(l.spent, spent{answer.Stamp, least, call.Path})
		l.least, l.most = l.least+call.Actual, l.most+call.Actual
		if answer.Unsettled {
			l.unsettled++
			l.least, l.most = l.least-call.Actual+least, l.most-call.Actual+max(call.Cost, call.Actual)
		}
	}
}

// exceeded finds windows of any level in which more was spent than its Max. Moments are those of the server.
// Units that were given back do not count, nor do those that were charged beyond the estimate.
func exceeded(all []spent) (faults []string) {
	nodes := map[string][]spent{}
	for _, one := range all {
		for n := range one.path {
			name := budget.Path(one.path[:n+1]...)
			nodes[name] = append(nodes[name], one)
		}
	}
	for name, units := range nodes {
		slices.SortFunc(units, func(a, b spent) int { return int(a.stamp - b.stamp) })
		limits, _ := spenderPlan(units[0].path[:strings.Count(name, "|")+1]) // it knows all
		first, sum := 0, int64(0)
		for _, u := range units {
			sum += u.units
			for units[first].stamp+limits[0].Window.Microseconds() <= u.stamp {
				sum -= units[first].units
				first++
			}
			if sum > limits[0].Max {
				faults = append(faults, fmt.Sprintf("%q has spent %d in %v until %d, of %d", name, sum,
					limits[0].Window, u.stamp, limits[0].Max))
			}
		}
	}
	return faults
}

// spend lets callers make attempts until the context ends: 60 users of three teams, alone and in bursts.
func (s *spenders) spend(ctx context.Context, all *sync.WaitGroup, l *ledger) {
	for i := range 6 {
		rng := rand.New(rand.NewPCG(s.seed, uint64(1+i)))
		all.Go(func() {
			for ctx.Err() == nil {
				n := 1
				if rng.IntN(8) == 0 {
					n = 20
				}
				var burst sync.WaitGroup
				for range n {
					user := rng.IntN([]int{8, 60}[rng.IntN(2)])
					call := SpendCall{Path: []string{"acme", fmt.Sprint("team ", user%3), fmt.Sprint("user ", user)},
						Cost: 1 + rng.Int64N(2), After: time.Duration(rng.IntN(20)) * ms}
					if call.Actual = call.Cost; rng.IntN(4) == 0 {
						call.Actual = rng.Int64N(4)
					}
					p := s.some(rng)
					burst.Go(func() {
						answer, err := p.call("Check", call)
						if answer.Negative {
							s.t.Errorf("a figure below zero: %+v", answer)
						}
						l.add(call, answer, err)
					})
					pass(ctx, 30*time.Microsecond)
				}
				burst.Wait()
				pass(ctx, time.Duration(rng.IntN(5))*ms)
			}
		})
	}
}

// operate overrides the limit of a user again and again, pauses and resumes them, and wants the next call of
// each process to obey. A process that is dead does not answer.
func (s *spenders) operate(ctx context.Context, obeyed *atomic.Int64) {
	rng := rand.New(rand.NewPCG(s.seed, 100))
	vip := []string{"another", "dev", "vip"}
	for round := 0; ctx.Err() == nil; round++ {
		decided := []int64{1 + rng.Int64N(1000)}
		if round%4 == 3 {
			decided = []int64{paused, resumed}
		}
		for _, decision := range decided {
			for { // one that fails may have happened, or be about to
				if _, err := s.some(rng).call("Decide", SpendCall{Path: vip, Max: decision}); err == nil {
					break
				}
				pass(context.Background(), 20*ms)
			}
			for _, answer := range s.each(SpendCall{Path: vip, Cost: 1, Actual: 1}) {
				switch isPaused := answer.Reason == budget.ReasonPaused; {
				case answer.Failed:
				case isPaused != (decision == paused), decision > 0 && answer.Max != decision:
					s.t.Errorf("a process answers %+v after %d was decided", answer, decision)
				default:
					obeyed.Add(1)
				}
			}
		}
	}
}

// each lets all processes make an attempt.
func (s *spenders) each(call SpendCall) []SpendAnswer {
	var all sync.WaitGroup
	answers := make([]SpendAnswer, 3)
	for i, p := range s.all() {
		all.Go(func() {
			var err error
			answers[i], err = p.call("Check", call)
			answers[i].Failed = answers[i].Failed || err != nil
		})
	}
	all.Wait()
	return answers
}

// breakProcesses stops processes, and may kill them.
func (s *spenders) breakProcesses(ctx context.Context, kills bool) {
	rng := rand.New(rand.NewPCG(s.seed, 101))
	for ctx.Err() == nil {
		pass(ctx, 100*ms)
		victim := rng.IntN(len(s.processes))
		if kills && rng.IntN(2) == 0 {
			s.processes[victim].Signal(syscall.SIGKILL)
			fresh := s.launch()
			s.mu.Lock()
			s.processes[victim] = fresh
			s.mu.Unlock()
			continue
		}
		s.processes[victim].Signal(syscall.SIGSTOP)
		pass(context.Background(), 150*ms)
		s.processes[victim].Signal(syscall.SIGCONT)
	}
}

// settled waits until the processes have taken back what was lost, and returns what counts as metered.
func (s *spenders) settled() int64 {
	s.t.Helper()
	for _, p := range s.all() {
		if _, err := p.call("Drain", SpendCall{}); err != nil {
			s.t.Fatal(err)
		}
	}
	figures, err := s.guard.Usage(s.t.Context(), core.Attempt{Actor: budget.Path("acme", "", "")})
	if err != nil {
		s.t.Fatal(err)
	}
	return figures[1].Used
}

// TestABudgetOfProcessesThatDie lets three processes spend a budget, which lose replies, and are stopped and
// killed. No level spends more than its Max in any window, each process obeys an override with its next call,
// and what is metered is what callers have heard, each unit once. So is the bill, which is exported all the
// time.
//
// Promise (Budget): No level exceeds its Max in any window, whatever dies; units given back or charged at an
// ending do not count. Children may add up to more than the parent.
func TestABudgetOfProcessesThatDie(t *testing.T) {
	for name, kills := range map[string]bool{"stopped": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			s := startSpenders(t, redistest.StartServer(t).Options(), 0.03, 300*ms)
			s.live(kills, nil)
		})
	}
	if !redistest.All() {
		return
	}
	t.Run("moving slots", func(t *testing.T) {
		servers := redistest.StartCluster(t)
		s := startSpenders(t, servers.Options(), 0.03, 300*ms)
		slot, to := redistest.Slot("{acme}"), 0
		s.live(false, func(ctx context.Context) {
			for ctx.Err() == nil {
				pass(ctx, 300*ms)
				from := servers.MasterOfSlot(slot)
				if to++; servers.MasterOfSlot(to%3*16383/2) == from {
					continue
				}
				m := servers.BeginMigration(t, slot, from, servers.MasterOfSlot(to%3*16383/2))
				m.MoveKeys(20)
				pass(ctx, 20*ms)
				m.Finish()
			}
		})
	})
}

// bill is the row of the organisation that has the greatest sequence, and where an export goes on.
type bill struct {
	last budget.Row
	next int64
}

// export reads what has changed since the last time.
func (s *spenders) export(b *bill) {
	for {
		rows, next, err := s.guard.Export(context.Background(), core.Attempt{Actor: "acme"}, b.next)
		if err != nil {
			s.t.Errorf("an export: %v", err)
		}
		for _, row := range rows {
			if len(row.Path) == 1 && row.Sequence > b.last.Sequence {
				b.last = row
			}
		}
		if next == b.next {
			return
		}
		b.next = next
	}
}

// live lets the processes spend for a while, until there is enough to judge. Meanwhile more happens.
func (s *spenders) live(kills bool, more func(ctx context.Context)) {
	s.t.Helper()
	length := 1500 * ms
	if redistest.Soak() {
		length = time.Minute
	}
	l := &ledger{kills: kills}
	ctx, cancel := context.WithTimeout(s.t.Context(), length+20*time.Second)
	defer cancel()
	var all sync.WaitGroup
	var obeyed atomic.Int64
	s.spend(ctx, &all, l)
	all.Go(func() { s.operate(ctx, &obeyed) })
	all.Go(func() { s.breakProcesses(ctx, kills) })
	var billed bill
	all.Go(func() {
		for ; ctx.Err() == nil; pass(ctx, 10*ms) {
			s.export(&billed)
		}
	})
	if more != nil {
		all.Go(func() { more(ctx) })
	}
	pass(ctx, length)
	for ctx.Err() == nil && (obeyed.Load() < 10 || l.allowed() < 60) { // on a busy machine
		pass(ctx, 100*ms)
	}
	cancel()
	all.Wait()
	used := s.settled()
	if used < l.least || used > l.most {
		s.t.Errorf("%d units are metered, and callers know of %d to %d", used, l.least, l.most)
	}
	if s.export(&billed); billed.last.Used != used {
		s.t.Errorf("%d units are metered, and the bill has %+v", used, billed.last)
	}
	if faults := exceeded(l.spent); len(faults) > 0 {
		s.t.Errorf("%d windows with too much, the first: %s", len(faults), faults[0])
	}
	s.t.Logf("%d calls, %d failed, %d allowed, %d unsettled; %d units, known %d to %d; obeyed %d", l.calls,
		l.failed, l.allowed(), l.unsettled, used, l.least, l.most, obeyed.Load())
	if l.allowed() < 60 || obeyed.Load() < 10 {
		s.t.Error("the history says little")
	}
}

// TestARedisThatIsFlushedHarmsNoClient flushes it while three processes spend a budget: counts begin anew, no
// client hears an error, and what was taken before and is given back after it makes no figure negative.
//
// Promise (Budget): A Redis that is flushed counts anew. No client gets an error, and later refunds make
// nothing negative.
func TestARedisThatIsFlushedHarmsNoClient(t *testing.T) {
	length := time.Second
	if redistest.Soak() {
		length = time.Minute
	}
	s, l := startSpenders(t, redistest.StartServer(t).Options(), 0, time.Minute), &ledger{}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	s.spend(ctx, &all, l)
	var flushes []int64
	for ctx.Err() == nil {
		refund := s.processes[0].client.Go("Spender.Check", SpendCall{Path: []string{"refunds", "", ""}, Cost: 1000,
			After: 100 * ms}, new(SpendAnswer), nil)
		pass(ctx, 50*ms)
		at, err := s.flush(ctx)
		if err != nil {
			t.Fatal(err)
		}
		flushes = append(flushes, at)
		s.one(t)
		if <-refund.Done; refund.Error != nil || refund.Reply.(*SpendAnswer).Unsettled {
			t.Errorf("a refund after a flush: %+v, %v", refund.Reply, refund.Error)
		}
		s.one(t)
	}
	all.Wait()
	s.settled()
	if l.failed > 0 || l.unsettled > 0 {
		t.Errorf("%d calls have failed, and %d could not be settled", l.failed, l.unsettled)
	}
	for user := range 60 {
		figures, err := s.guard.Usage(t.Context(), core.Attempt{
			Actor: budget.Path("acme", fmt.Sprint("team ", user%3), fmt.Sprint("user ", user))})
		if err != nil || slices.ContainsFunc(figures, func(f budget.Figure) bool { return f.Used < 0 }) {
			t.Errorf("%+v, %v", figures, err)
		}
	}
	for _, at := range flushes {
		before, after := []spent{}, []spent{}
		for _, one := range l.spent {
			if one.stamp < at {
				before = append(before, one)
			} else {
				after = append(after, one)
			}
		}
		if faults := exceeded(before); len(faults) > 0 {
			t.Errorf("%d windows with too much, the first: %s", len(faults), faults[0])
		}
		l.spent = after
	}
	t.Logf("%d calls, %d flushes", l.calls, len(flushes))
}

// one takes a unit beside those that are given back after a flush.
func (s *spenders) one(t *testing.T) {
	t.Helper()
	answer, err := s.processes[1].call("Check", SpendCall{Path: []string{"refunds", "", ""}, Cost: 1, Actual: 1})
	if err != nil || answer.Failed || answer.Negative {
		t.Errorf("%+v, %v", answer, err)
	}
}

// flush drops all that Redis has, and returns when.
func (s *spenders) flush(ctx context.Context) (at int64, err error) {
	var now *redis.TimeCmd
	_, err = s.admin.TxPipelined(context.WithoutCancel(ctx), func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		now = p.Time(ctx)
		return nil
	})
	return now.Val().UnixMicro() % long.Microseconds(), err
}

// TestWindowsWithTooMuchAreFound at each level.
func TestWindowsWithTooMuchAreFound(t *testing.T) {
	for level, most := range []int64{60, 30, 3} {
		var all []spent
		for i := range most + 1 {
			path := []string{"acme", "team", "ann"}
			for n := level + 1; n < len(path); n++ {
				path[n] += fmt.Sprint(i)
			}
			all = append(all, spent{i * 1000, 1, path})
		}
		if faults := exceeded(all); len(faults) != 1 {
			t.Errorf("level %d: found %v", level, faults)
		}
		limits, _ := spenderPlan(make([]string, level+1))
		all[most].stamp = limits[0].Window.Microseconds()
		if faults := exceeded(all); len(faults) > 0 {
			t.Errorf("level %d: found %v", level, faults)
		}
	}
}
