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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// crowdEnv tells the test binary that it is a process of a crowd's room: the prefix and the addresses.
const crowdEnv = "GATEHOUSE_HISTORIES_CROWD"

const (
	crowdPlaces = 8
	crowdPoll   = time.Second
	crowdPass   = 2500 * ms
	// crowdLag is how long after one who came later a visitor enters who asks in time: they are called first,
	// the process that they ask knows that a second later, and they ask once a second.
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
	e := core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(time.Second), core.WithObserver(guardtest.Ignore{}),
		core.WithBreaker(1<<30, 0))
	server := rpc.NewServer()
	if err := server.Register(&CrowdRoom{waitingroom.New(e, "crowd", waitingroom.Options{
		Capacity: crowdPlaces, Pass: crowdPass, Idle: crowdPass, Poll: crowdPoll,
		Secrets: [][]byte{[]byte("a secret of sixteen bytes")},
	})}); err != nil {
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
	had, has   said // before and after
}

// said is what a ticket says.
type said struct {
	number     int64
	id         [6]byte
	until, end time.Time // zero: it is no pass
}

func readTicket(ticket string) (p said) {
	b, err := base64.RawURLEncoding.DecodeString(ticket)
	if err != nil || len(b) < 46 {
		return p
	}
	p.number, p.id = int64(binary.BigEndian.Uint64(b[8:])), [6]byte(b[16:])
	if len(b) > 46 {
		p.until = time.UnixMilli(int64(binary.BigEndian.Uint64(b[30:])))
		p.end = time.UnixMilli(int64(binary.BigEndian.Uint64(b[38:])))
	}
	return p
}

// look is what Redis has at one moment.
type look struct {
	begin, end                  time.Time
	inside, called, limit, last int64
}

// crowd is a room of several processes, and its history.
type crowd struct {
	t      *testing.T
	prefix string
	addrs  []string
	admin  redis.UniversalClient
	stop   time.Time

	mu        sync.Mutex
	processes []*crowdProcess
	visits    []visit
	looks     []look
	visitors  int
}

type crowdProcess struct {
	*guardtest.Process
	client *rpc.Client
}

func (c *crowd) launch() *crowdProcess {
	p := guardtest.StartProcess(c.t, "TestACrowdBeforeProcessesThatDie",
		crowdEnv+"="+strings.Join(append([]string{c.prefix}, c.addrs...), " "))
	client, err := rpc.Dial("tcp", p.Line())
	if err != nil {
		c.t.Fatal(err)
	}
	return &crowdProcess{p, client}
}

// call calls one of the processes.
func (c *crowd) call(rng *rand.Rand, method string, call CrowdCall) (answer CrowdAnswer, err error) {
	c.mu.Lock()
	p := c.processes[rng.IntN(len(c.processes))]
	c.mu.Unlock()
	made := p.client.Go("CrowdRoom."+method, call, &answer, make(chan *rpc.Call, 1))
	select {
	case <-made.Done:
		return answer, made.Error
	case <-time.After(2 * time.Second): // it may have stopped
		return CrowdAnswer{}, os.ErrDeadlineExceeded
	}
}

// ask is one call of a visitor, who keeps what they are given.
func (c *crowd) ask(rng *rand.Rand, visitor int, op string, ticket *string) (CrowdAnswer, bool) {
	v := visit{visitor: visitor, op: op, begin: time.Now(), had: readTicket(*ticket)}
	method := map[string]string{"check": "Check", "leave": "Leave"}[op]
	answer, err := c.call(rng, method, CrowdCall{Visitor: fmt.Sprint("visitor ", visitor), Ticket: *ticket})
	if answer.Ticket != "" && err == nil {
		*ticket = answer.Ticket
	}
	v.end, v.failed, v.allowed, v.asked, v.has = time.Now(), err != nil, answer.Allowed, answer.Asked, readTicket(*ticket)
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

// watch looks at what Redis has, as often as it can.
func (c *crowd) watch(ctx context.Context) {
	key := func(field string) string { return c.prefix + ":waitingroom:crowd:{room}:" + field }
	for ctx.Err() == nil {
		l := look{begin: time.Now(), limit: crowdPlaces}
		var inside, called *redis.IntCmd
		var limit *redis.SliceCmd
		_, err := c.admin.TxPipelined(ctx, func(p redis.Pipeliner) error {
			inside, called = p.ZCard(ctx, key("inside")), p.ZCard(ctx, key("called"))
			limit = p.HMGet(ctx, key("room"), "limit")
			return nil
		})
		if err != nil {
			continue
		}
		l.end, l.inside, l.called = time.Now(), inside.Val(), called.Val()
		if text, _ := limit.Val()[0].(string); text != "" {
			_, _ = fmt.Sscan(text, &l.limit)
		}
		c.mu.Lock()
		c.looks = append(c.looks, l)
		c.mu.Unlock()
		pass(ctx, 500*time.Microsecond)
	}
}

// run lets the crowd be, for so long, while the processes are stopped and killed.
func (c *crowd) run(seed uint64, length time.Duration, more func(ctx context.Context)) {
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 3 {
		c.processes = append(c.processes, c.launch())
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { c.watch(ctx) })
	if more != nil {
		all.Go(func() { more(ctx) })
	}
	c.arrive(ctx, &all, rng, 40)
	for ctx.Err() == nil {
		pass(ctx, 500*ms)
		c.arrive(ctx, &all, rng, rng.IntN(12))
		switch victim := rng.IntN(len(c.processes)); rng.IntN(4) {
		case 0:
			c.processes[victim].Signal(syscall.SIGSTOP)
			pass(ctx, 400*ms)
			c.processes[victim].Signal(syscall.SIGCONT)
		case 1:
			c.processes[victim].Signal(syscall.SIGKILL)
			fresh := c.launch()
			c.mu.Lock()
			c.processes[victim] = fresh
			c.mu.Unlock()
		default:
			_, _ = c.call(rng, "SetCapacity", CrowdCall{Capacity: []int64{2, 5, 8, 12}[rng.IntN(4)]}) // or not
		}
	}
	all.Wait()
}

// TestACrowdBeforeProcessesThatDie lets visitors come to a room of three processes, which are stopped and
// killed, lose replies, and lower and raise the capacity. The test is also what the processes run.
func TestACrowdBeforeProcessesThatDie(t *testing.T) {
	if words := strings.Fields(os.Getenv(crowdEnv)); len(words) > 1 {
		serveCrowd(t, words[0], words[1:])
		return
	}
	length := 5 * time.Second
	if redistest.Soak() {
		length = 2 * time.Minute
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := redistest.Single(t)
	c := &crowd{t: t, prefix: b.Prefix, addrs: b.Options().Addrs, admin: b.Client}
	c.run(seed, length, nil)
	c.judge(t)
}

// judge wants no fault in the history.
func (c *crowd) judge(t *testing.T) {
	t.Helper()
	faults := findFaults(c.visits, c.looks)
	for _, fault := range faults[:min(len(faults), 10)] {
		t.Error(fault)
	}
	entered, failed := map[int64]bool{}, 0
	for _, v := range c.visits {
		if v.allowed {
			entered[v.has.number] = true
		}
		if v.failed {
			failed++
		}
	}
	t.Logf("%d visitors, %d entered, %d calls, %d failed, %d looks, %d faults", c.visitors, len(entered), len(c.visits),
		failed, len(c.looks), len(faults))
	if len(entered) < 10 || len(c.looks) < 100 {
		t.Error("the history says little")
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
		if l.inside+l.called > max(l.limit, before.limit, before.inside+before.called) {
			faults = append(faults, fmt.Sprintf("%d inside and %d called, before %d and %d: the capacity is %d", l.inside,
				l.called, before.inside, before.called, l.limit))
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
		valid := int64(0)
		for _, all := range stays {
			if slices.ContainsFunc(all, func(s stay) bool { return s.from.Before(l.begin) && s.to.After(l.end) }) {
				valid++
			}
		}
		if valid > l.inside {
			faults = append(faults, fmt.Sprintf("%d visitors have valid passes, Redis knows %d", valid, l.inside))
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

// overtaken finds visitors who ask when they are told to, also after they were away, and enter later than
// crowdLag after one who came later.
func overtaken(visits []visit, _ []look) (faults []string) {
	entered := map[int64]time.Time{}
	type stretch struct{ from, to time.Time } // in which they wait, and ask
	waits := map[int64][]stretch{}
	inOrder := slices.Clone(visits)
	slices.SortFunc(inOrder, func(a, b visit) int { return a.end.Compare(b.end) })
	for _, v := range inOrder {
		n := v.has.number
		if _, in := entered[n]; v.failed || v.op != "check" || in {
			continue
		}
		if all := waits[n]; len(all) > 0 && v.begin.Sub(all[len(all)-1].to) < crowdPoll*11/10 {
			all[len(all)-1].to = v.end
		} else {
			waits[n] = append(all, stretch{v.end, v.end})
		}
		if v.allowed {
			entered[n] = v.end
		}
	}
	for later, moment := range entered {
		for number, all := range waits {
			for _, s := range all {
				if number < later && moment.After(s.from.Add(crowdLag)) && moment.Before(s.to.Add(-crowdLag)) {
					faults = append(faults, fmt.Sprintf("number %d has asked from %v before to %v after %d entered", number,
						moment.Sub(s.from), s.to.Sub(moment), later))
				}
			}
		}
	}
	return faults
}
