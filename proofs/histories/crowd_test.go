package histories

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/rpc"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// crowdEnv tells the test binary that it is a process of a crowd's room: the prefix and the addresses.
const crowdEnv = "GATEHOUSE_HISTORIES_CROWD"

const (
	crowdPlaces = 8
	crowdPoll   = time.Second
	crowdPass   = 2500 * ms
	// crowdLag is how long a visitor has to ask until Redis knows that they are here: a process tells it once a
	// second, unless it is killed before.
	crowdLag = 3 * time.Second
)

// CrowdRoom is what a process offers to its test.
type CrowdRoom struct{ guard *waitingroom.Guard }

// CrowdCall is a request of a visitor.
type CrowdCall struct {
	Visitor, Ticket string
	Capacity        int64
}

// CrowdAnswer is what they hear.
type CrowdAnswer struct {
	Allowed, Asked bool // Asked: Redis was
	Ticket         string
	Again          time.Duration
}

func (r *CrowdRoom) Check(call CrowdCall, answer *CrowdAnswer) error {
	d, err := r.guard.Check(context.Background(), core.Attempt{Actor: call.Visitor, Token: call.Ticket})
	*answer = CrowdAnswer{d.Allowed, d.Source == core.SourceRedis, d.Token, d.RetryAfter}
	return err
}

func (r *CrowdRoom) Leave(call CrowdCall, _ *CrowdAnswer) error {
	return r.guard.Leave(context.Background(), core.Decision{Token: call.Ticket})
}

func (r *CrowdRoom) SetCapacity(call CrowdCall, _ *CrowdAnswer) error {
	return r.guard.SetCapacity(context.Background(), call.Capacity)
}

// serveCrowd is what the process does until it is killed.
func serveCrowd(t *testing.T, prefix string, addrs []string) {
	faults := redistest.NewFaults(t)
	faults.SwallowEvery("evalsha", 0.03, rand.New(rand.NewPCG(rand.Uint64(), 0)))
	o := redistest.OptionsOf(addrs[0])
	o.Addrs, o.Dialer, o.ContextTimeoutEnabled, o.DialerRetries = addrs, faults.Dial, true, 1
	rdb := redis.NewUniversalClient(o)
	e := core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(time.Second),
		core.WithObserver(guardtest.Ignore{}), core.WithBreaker(1<<30, 0))
	serveCalls(t, &CrowdRoom{waitingroom.New(e, "crowd", waitingroom.Options{
		Capacity: crowdPlaces, Pass: crowdPass, Idle: crowdPass, Poll: crowdPoll,
		Secrets: [][]byte{[]byte("a secret of sixteen bytes")},
	})})
}

// serveCalls writes its address, and serves the methods of a receiver until the process is killed.
func serveCalls(t *testing.T, receiver any) {
	server := rpc.NewServer()
	if err := server.Register(receiver); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(listener.Addr())
	server.Accept(listener)
}

// visit is one call of a visitor, and what they heard.
type visit struct {
	visitor    int
	op         string // check, leave
	begin, end time.Time
	failed     bool
	allowed    bool
	asked      bool
	lost       bool // the process was killed before it can have told Redis of it for sure
	by         *crowdProcess
	had, has   said // before and after
}

// said is what a ticket says.
type said struct {
	number     int64 // the place in the line
	id         [6]byte
	until, end time.Time // zero: it is no pass
}

func readTicket(ticket string) (p said) {
	b, err := base64.RawURLEncoding.DecodeString(ticket)
	if err != nil || len(b) != 78 {
		return p
	}
	word := func(n int) int64 { return int64(binary.BigEndian.Uint64(b[14+8*n:])) }
	p.number, p.id = word(3), [6]byte(b)
	if word(5) > 0 {
		p.until, p.end = time.UnixMilli(word(4)), time.UnixMilli(word(5))
	}
	return p
}

// look is what Redis has at one moment.
type look struct {
	begin, end     time.Time
	inside, called []int64 // numbers
	limit          int
}

func (l *look) taken() int { return len(l.inside) + len(l.called) }

// crowd is a room of several processes, and its history.
type crowd struct {
	t      *testing.T
	prefix string
	addrs  []string
	admin  redis.UniversalClient

	mu        sync.Mutex
	processes []*crowdProcess
	visits    []visit
	looks     []look
	visitors  int
}

type crowdProcess struct {
	*guardtest.Process
	client *rpc.Client
	killed time.Time
}

func (c *crowd) launch() *crowdProcess {
	p := guardtest.StartProcess(c.t, "TestACrowdBeforeProcessesThatDie",
		crowdEnv+"="+strings.Join(append([]string{c.prefix}, c.addrs...), " "))
	client, err := rpc.Dial("tcp", p.Line())
	if err != nil {
		c.t.Fatal(err)
	}
	return &crowdProcess{Process: p, client: client}
}

// call calls one of the processes.
func (c *crowd) call(
	rng *rand.Rand, method string, call CrowdCall,
) (answer CrowdAnswer, p *crowdProcess, err error) {
	c.mu.Lock()
	p = c.processes[rng.IntN(len(c.processes))]
	c.mu.Unlock()
	made := p.client.Go("CrowdRoom."+method, call, &answer, make(chan *rpc.Call, 1))
	select {
	case <-made.Done:
		return answer, p, made.Error
	case <-time.After(2 * time.Second): // it may have stopped
		return CrowdAnswer{}, p, os.ErrDeadlineExceeded
	}
}

// ask is one call of a visitor, who keeps what they are given.
func (c *crowd) ask(rng *rand.Rand, visitor int, op string, ticket *string) (CrowdAnswer, bool) {
	v := visit{visitor: visitor, op: op, begin: time.Now(), had: readTicket(*ticket)}
	method := map[string]string{"check": "Check", "leave": "Leave"}[op]
	answer, by, err := c.call(rng, method, CrowdCall{Visitor: fmt.Sprint("visitor ", visitor), Ticket: *ticket})
	if answer.Ticket != "" && err == nil {
		*ticket = answer.Ticket
	}
	v.end, v.failed, v.has = time.Now(), err != nil, readTicket(*ticket)
	v.allowed, v.asked, v.by = answer.Allowed, answer.Asked, by
	c.mu.Lock()
	defer c.mu.Unlock()
	c.visits = append(c.visits, v)
	return answer, err == nil
}

// arrive lets visitors come, each of whom asks until the crowd is over.
func (c *crowd) arrive(ctx context.Context, all *sync.WaitGroup, rng *rand.Rand, n int) {
	for range n {
		visitor, seed := c.visitors, rng.Uint64()
		c.visitors++
		all.Go(func() { c.live(ctx, rand.New(rand.NewPCG(seed, 0)), visitor) })
	}
}

// live is the life of a visitor: one in five leaves the line, one in five is away for a while, the others ask
// when they are told to. Some send a ticket several times at a moment, to all processes.
func (c *crowd) live(ctx context.Context, rng *rand.Rand, visitor int) {
	kind, ticket, number := rng.IntN(5), "", ""
	left := time.Time{}
	for ctx.Err() == nil {
		if kind == 2 && ticket != "" { // a burst, also of the number when they are inside
			var tabs sync.WaitGroup
			for range 6 {
				copied, seed := []string{ticket, number}[rng.IntN(2)], rng.Uint64()
				tabs.Go(func() { c.ask(rand.New(rand.NewPCG(seed, 0)), visitor, "check", &copied) })
				pass(ctx, 30*time.Microsecond)
			}
			tabs.Wait()
		}
		answer, ok := c.ask(rng, visitor, "check", &ticket)
		if readTicket(ticket).until.IsZero() {
			number = ticket
		}
		switch {
		case !ok:
			pass(ctx, 100*ms)
		case answer.Allowed && left.IsZero():
			left = time.Now().Add(time.Duration(rng.IntN(1500)) * ms)
			pass(ctx, 200*ms)
		case answer.Allowed && time.Now().After(left):
			if rng.IntN(3) > 0 {
				c.ask(rng, visitor, "leave", &ticket)
				if kind == 2 { // once more with what was given back, and with the number
					c.ask(rng, visitor, "check", &number)
				}
			}
			return
		case answer.Allowed:
			pass(ctx, 200*ms)
		case !left.IsZero(): // the pass has ended
			return
		case kind == 0 && rng.IntN(3) == 0:
			return
		case kind == 1 && rng.IntN(3) == 0:
			kind = 3
			pass(ctx, 3*time.Second+rand.N(2*time.Second))
		default:
			pass(ctx, answer.Again)
		}
	}
}

// lookScript tells who is inside and called, and the capacity, at one moment.
const lookScript = `return {redis.call('ZRANGE', KEYS[1], 0, -1), redis.call('ZRANGE', KEYS[2], 0, -1),
  redis.call('HGET', KEYS[3], 'limit') or ''}`

// watch looks at what Redis has, as often as it can.
func (c *crowd) watch(ctx context.Context) {
	var keys []string
	for _, field := range []string{"inside", "called", "room"} {
		keys = append(keys, c.prefix+":waitingroom:crowd:{room}:"+field)
	}
	for ctx.Err() == nil {
		l := look{begin: time.Now(), limit: crowdPlaces}
		reply, err := c.admin.Eval(ctx, lookScript, keys).Slice()
		if err != nil {
			pass(ctx, ms)
			continue
		}
		l.end, l.inside, l.called = time.Now(), numbersOf(reply[0]), numbersOf(reply[1])
		if text, _ := reply[2].(string); text != "" {
			l.limit, _ = strconv.Atoi(text)
		}
		c.mu.Lock()
		c.looks = append(c.looks, l)
		c.mu.Unlock()
		pass(ctx, 500*time.Microsecond)
	}
}

func numbersOf(reply any) (numbers []int64) {
	members, _ := reply.([]any)
	for _, member := range members {
		place, _, _ := strings.Cut(member.(string), ":")
		number, _ := strconv.ParseInt(place, 10, 64)
		numbers = append(numbers, number)
	}
	return numbers
}

// run lets the crowd be, for so long, while the processes are stopped and killed.
// Meanwhile more runs, too.
func (c *crowd) run(length time.Duration, more func(ctx context.Context, rng *rand.Rand)) {
	seed := rand.Uint64()
	c.t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 3 {
		c.processes = append(c.processes, c.launch())
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), length+time.Minute)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { c.watch(ctx) })
	all.Go(func() {
		for pass(ctx, length); ctx.Err() == nil && !c.saysMuch(); { // on a busy machine
			pass(ctx, 100*ms)
		}
		cancel()
	})
	faults := func(ctx context.Context, _ *rand.Rand) { <-ctx.Done() }
	if more != nil {
		faults = more
	}
	c.arrive(ctx, &all, rng, 40)
	all.Go(func() { c.breakProcesses(ctx, &all, rng) })
	faults(ctx, rand.New(rand.NewPCG(seed, 1)))
	all.Wait()
}

// entered are the numbers that have been inside.
func (c *crowd) entered() map[int64]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	entered := map[int64]bool{}
	for _, v := range c.visits {
		if v.allowed {
			entered[v.has.number] = true
		}
	}
	return entered
}

// saysMuch reports whether the history is worth a look.
func (c *crowd) saysMuch() bool {
	entered := c.entered()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(entered) >= 3 && len(c.looks) >= 100
}

// breakProcesses stops and kills processes, sets the capacity, and lets more visitors come.
func (c *crowd) breakProcesses(ctx context.Context, all *sync.WaitGroup, rng *rand.Rand) {
	for ctx.Err() == nil {
		pass(ctx, 500*ms)
		c.arrive(ctx, all, rng, rng.IntN(12))
		switch victim := rng.IntN(len(c.processes)); rng.IntN(4) {
		case 0:
			c.processes[victim].Signal(syscall.SIGSTOP)
			pass(ctx, 400*ms)
			c.processes[victim].Signal(syscall.SIGCONT)
		case 1:
			killed := time.Now()
			c.processes[victim].Signal(syscall.SIGKILL)
			fresh := c.launch()
			c.mu.Lock()
			c.processes[victim].killed = killed
			c.processes[victim] = fresh
			c.mu.Unlock()
		default:
			_, _, _ = c.call(rng, "SetCapacity", CrowdCall{Capacity: []int64{2, 5, 8, 12}[rng.IntN(4)]}) // or not
		}
	}
}

// TestACrowdBeforeProcessesThatDie lets visitors come to a room of three processes, which are stopped and
// killed, lose replies, and lower and raise the capacity. The test is also what the processes run.
//
// Promise (Waiting room): Inside and called never exceed the capacity, also while processes die, replies are
// lost, a slot moves and visitors come back.
func TestACrowdBeforeProcessesThatDie(t *testing.T) {
	if words := strings.Fields(os.Getenv(crowdEnv)); len(words) > 1 {
		serveCrowd(t, words[0], words[1:])
		return
	}
	length := 4 * time.Second
	if redistest.Soak() {
		length = 2 * time.Minute
	}
	t.Run("redis", func(t *testing.T) {
		b := redistest.Single(t)
		c := &crowd{t: t, prefix: b.Prefix, addrs: b.Options().Addrs, admin: b.Client}
		c.run(length, nil)
		c.judge()
	})
	if !redistest.All() {
		return
	}
	t.Run("moving slots", func(t *testing.T) {
		servers := redistest.StartCluster(t)
		c := &crowd{t: t, prefix: "crowd", addrs: servers.Options().Addrs, admin: servers.Client(t)}
		slot := redistest.Slot("{room}")
		c.run(length, func(ctx context.Context, rng *rand.Rand) {
			for ctx.Err() == nil {
				pass(ctx, 300*ms)
				from := servers.MasterOfSlot(slot)
				to := servers.MasterOfSlot(rng.IntN(3) * 16383 / 2)
				if to == from {
					continue
				}
				m := servers.BeginMigration(t, slot, from, to)
				m.MoveKeys(1 + rng.IntN(4))
				pass(ctx, 20*ms)
				m.Finish()
			}
		})
		c.judge()
	})
}

// judge wants no fault in the history.
func (c *crowd) judge() {
	c.t.Helper()
	for i, v := range c.visits {
		c.visits[i].lost = !v.asked && !v.by.killed.IsZero() && v.by.killed.Sub(v.end) < crowdLag
	}
	faults := findFaults(c.visits, c.looks)
	for _, fault := range faults[:min(len(faults), 10)] {
		c.t.Error(fault)
	}
	entered, failed := c.entered(), 0
	for _, v := range c.visits {
		if v.failed {
			failed++
		}
	}
	c.t.Logf("%d visitors, %d entered, %d calls, %d failed, %d looks, %d faults", c.visitors, len(entered),
		len(c.visits), failed, len(c.looks), len(faults))
	if !c.saysMuch() {
		c.t.Error("the history says little")
	}
}

// findFaults says what of the promises a history breaks.
func findFaults(visits []visit, looks []look) (faults []string) {
	for _, find := range []func([]visit, []look) []string{tooMany, unknownPasses, twiceInside, overtaken} {
		faults = append(faults, find(visits, looks)...)
	}
	return faults
}

// tooMany finds moments with more inside and called than there are places: after the capacity was lowered
// they only become fewer.
func tooMany(_ []visit, looks []look) (faults []string) {
	for i, l := range looks[min(1, len(looks)):] {
		before := looks[i]
		if l.taken() > max(l.limit, before.limit, before.taken()) {
			faults = append(faults, fmt.Sprintf("%d inside and %d called, before %d together: the capacity is %d",
				len(l.inside), len(l.called), before.taken(), l.limit))
		}
	}
	return faults
}

// unknownPasses finds moments at which visitors have more passes than Redis knows.
func unknownPasses(visits []visit, looks []look) (faults []string) {
	type stay struct{ from, to time.Time }
	stays := map[int64][]stay{}
	for _, v := range visits {
		if v.op == "check" && !v.has.until.IsZero() {
			stays[v.has.number] = append(stays[v.has.number], stay{v.end, v.has.until})
		}
	}
	for _, v := range visits {
		if v.op != "leave" {
			continue
		}
		for i, s := range stays[v.had.number] {
			if v.begin.Before(s.to) {
				stays[v.had.number][i].to = v.begin
			}
		}
	}
	for _, l := range looks {
		valid := 0
		for _, all := range stays {
			if slices.ContainsFunc(all, func(s stay) bool { return s.from.Before(l.begin) && s.to.After(l.end) }) {
				valid++
			}
		}
		if valid > len(l.inside) {
			faults = append(faults, fmt.Sprintf("%d visitors have valid passes, Redis knows %d", valid, len(l.inside)))
		}
	}
	return faults
}

// twiceInside finds numbers that have entered twice: with two passes, or after they were given back.
func twiceInside(visits []visit, _ []look) (faults []string) {
	type entry struct {
		id  [6]byte
		end time.Time
	}
	entries, given := map[int64]entry{}, map[int64]time.Time{}
	for _, v := range visits {
		if v.op == "leave" && !v.failed {
			if was, is := given[v.had.number]; !is || v.end.Before(was) {
				given[v.had.number] = v.end
			}
		}
	}
	for _, v := range visits {
		if v.op != "check" || !v.allowed || v.has.end.IsZero() {
			continue
		}
		now := entry{v.has.id, v.has.end}
		if was, is := entries[v.has.number]; is && was != now {
			faults = append(faults, fmt.Sprintf("number %d has entered twice: %v, %v", v.has.number, was, now))
		}
		entries[v.has.number] = now
		if moment, is := given[v.has.number]; is && v.asked && v.begin.After(moment) {
			faults = append(faults, fmt.Sprintf("number %d has entered after it was given back", v.has.number))
		}
	}
	return faults
}

// overtaken finds visitors who ask when they are told to, also after they were away, and are not called yet
// when one is who came later. What a process heard right before it was killed, Redis may never hear.
func overtaken(visits []visit, looks []look) (faults []string) {
	type stretch struct{ from, to time.Time } // in which they wait, and ask
	waits, entered := map[int64][]stretch{}, map[int64]bool{}
	inOrder := slices.Clone(visits)
	slices.SortFunc(inOrder, func(a, b visit) int { return a.end.Compare(b.end) })
	for _, v := range inOrder {
		n := v.has.number
		switch all := waits[n]; {
		case v.failed || v.lost || entered[n]:
			continue
		case v.allowed || v.op == "leave":
			entered[n] = true
		case len(all) > 0 && v.begin.Sub(all[len(all)-1].to) < crowdPoll*11/10:
			all[len(all)-1].to = v.begin
		default:
			waits[n] = append(all, stretch{v.end, v.end})
		}
	}
	known := map[int64]bool{} // who was called before
	for _, l := range looks {
		now := slices.Concat(l.called, l.inside)
		for _, called := range l.called {
			if known[called] {
				continue
			}
			for number, all := range waits {
				if number < called && !slices.Contains(now, number) && slices.ContainsFunc(all, func(s stretch) bool {
					return s.from.Before(l.begin.Add(-crowdLag)) && s.to.After(l.end)
				}) {
					faults = append(faults, fmt.Sprintf("number %d asks, and %d is called", number, called))
				}
			}
		}
		clear(known)
		for _, number := range now {
			known[number] = true
		}
	}
	return faults
}

// TestFaultsOfACrowdAreFound: histories that break one promise, and the same ones that do not.
func TestFaultsOfACrowdAreFound(t *testing.T) {
	begun := time.Now()
	at := func(seconds float64) time.Time { return begun.Add(time.Duration(seconds * float64(time.Second))) }
	looked := func(seconds float64, limit int, inside, called []int64) look {
		return look{at(seconds), at(seconds + 0.001), inside, called, limit}
	}
	asks := func(seconds float64, number int64, pass said) visit {
		pass.number = number
		return visit{op: "check", begin: at(seconds), end: at(seconds + 0.01), allowed: !pass.end.IsZero(), asked: true,
			had: said{number: number}, has: pass}
	}
	leaves := func(seconds float64, number int64) visit {
		return visit{op: "leave", begin: at(seconds), end: at(seconds + 0.01), had: said{number: number},
			has: said{number: number}}
	}
	waits := func(number int64, from, to float64) (visits []visit) {
		for ; from < to; from++ {
			visits = append(visits, asks(from, number, said{}))
		}
		return visits
	}
	pass := said{until: at(5), end: at(9)}
	for name, h := range map[string]struct {
		visits []visit
		looks  []look
		wrong  bool
	}{
		"one too many": {nil, []look{looked(1, 2, []int64{1, 2}, nil), looked(2, 2, []int64{1, 2}, []int64{3})}, true},
		"a lower capacity": {nil, []look{looked(1, 3, []int64{1, 2}, []int64{3}),
			looked(2, 1, []int64{1, 2}, []int64{3}), looked(3, 1, []int64{1, 2}, nil)}, false},
		"one enters after that": {nil, []look{looked(2, 1, []int64{1, 2}, nil), looked(3, 1, []int64{1, 2, 3}, nil)},
			true},
		"a pass that Redis forgot": {[]visit{asks(1, 1, pass)}, []look{looked(2, 2, nil, nil)}, true},
		"a pass that has ended":    {[]visit{asks(1, 1, pass)}, []look{looked(6, 2, nil, nil)}, false},
		"a pass that was given back": {[]visit{asks(1, 1, pass), leaves(2, 1)},
			[]look{looked(3, 2, nil, nil)}, false},
		"another pass":           {[]visit{asks(1, 1, pass), asks(2, 1, said{until: at(5), end: at(10)})}, nil, true},
		"another visitor":        {[]visit{asks(1, 1, pass), asks(2, 1, said{id: [6]byte{1}, end: at(9)})}, nil, true},
		"a pass that is renewed": {[]visit{asks(1, 1, pass), asks(2, 1, said{until: at(6), end: at(9)})}, nil, false},
		"again after leaving":    {[]visit{asks(1, 1, pass), leaves(2, 1), asks(3, 1, pass)}, nil, true},
		"overtaken": {append(waits(1, 0, 9), waits(2, 0, 9)...), []look{looked(6, 2, nil, nil),
			looked(6.1, 2, nil, []int64{2})}, true},
		"overtaken while away": {append(waits(1, 5, 9), waits(2, 0, 9)...), []look{looked(6, 2, nil, nil),
			looked(6.1, 2, nil, []int64{2})}, false},
		"in their order": {append(waits(1, 0, 9), waits(2, 0, 9)...), []look{looked(6, 2, nil, []int64{1}),
			looked(6.1, 2, []int64{1}, []int64{2})}, false},
	} {
		if faults := findFaults(h.visits, h.looks); (len(faults) > 0) != h.wrong {
			t.Errorf("%s: found %v", name, faults)
		}
	}
}
