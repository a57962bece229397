package histories

import (
	"context"
	"encoding/gob"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// applicationEnv tells the test binary that it is an application of a test, which is to be killed.
const applicationEnv = "GATEHOUSE_HISTORIES_APPLICATION"

const (
	killedCallers = 2
	killedCalls   = 8 // of a history's calls
)

// message goes between a test and its application. The application asks before each call and tells what it
// heard, so that all moments are those of the test's clock: a call begins before its message is answered, and
// ends after its answer has arrived.
type message struct {
	Kind   messageKind
	Caller int
	Value  any  // of isBegun and isLater: the input; of isEnded: the output
	Failed bool // of isEnded: the outcome is unknown
	Unsent bool // of isEnded: the breaker did not send it

	// of isWork
	Subject             int
	Name                string
	Seed                uint64
	Phase, Phases, Each int
	Base, Now           time.Time           // of the clock, when the history began and in this phase
	Shares              [packetShares]int64 // of a red packet
}

type messageKind int

const (
	isWork  messageKind = iota // to the application: make calls
	isGo                       // to it: make this call
	isBegun                    // to the test: a caller wants to make a call
	isEnded                    // to it: a call has returned
	isLater                    // to it: what may happen at any time from now on
	isDone                     // to it: all callers have made their calls
)

func init() {
	for _, value := range []any{
		limitIn{}, limitOut{}, voteIn{}, voteOut{}, saleIn{}, saleOut{}, quotaIn{}, quotaOut{}, operationIn{},
		operationOut{}, banIn{}, banOut{}, packetIn{}, packetOut{}, permitIn{}, permitOut{}, lockIn{}, lockOut{},
		taskIn{}, taskOut{}, roomIn{}, roomOut{}, budgetIn{}, budgetOut{},
	} {
		gob.Register(value)
	}
}

// application is a process of its own that runs some of the callers of a history, and is killed again and
// again.
type application struct {
	addr, prefix string
	clock        func() time.Time

	mu     sync.Mutex // held by who uses it
	cmd    *exec.Cmd
	to     *gob.Encoder
	from   *gob.Decoder
	files  []*os.File
	until  atomic.Int64 // the call, counted down to zero, during which it is killed
	killed chan struct{}
}

// launch starts the application anew.
func (a *application) launch() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end()
	in, to, err := os.Pipe()
	if err != nil {
		return err
	}
	from, out, err := os.Pipe()
	if err != nil {
		return errors.Join(err, in.Close(), to.Close())
	}
	defer func() { _, _ = in.Close(), out.Close() }() // the application has its own
	a.files = []*os.File{to, from}
	a.cmd = exec.Command(os.Args[0], "-test.run=^TestApplicationsMakeCallsOfEveryGuard$", "-test.timeout=0")
	a.cmd.Env = append(os.Environ(), applicationEnv+"="+a.addr+" "+a.prefix)
	a.cmd.Stderr, a.cmd.ExtraFiles = os.Stderr, []*os.File{in, out}
	a.to, a.from, a.killed = gob.NewEncoder(to), gob.NewDecoder(from), make(chan struct{})
	return a.cmd.Start()
}

// end kills the application, and waits until it is gone.
func (a *application) end() {
	if a.cmd == nil {
		return
	}
	_ = a.cmd.Process.Kill() // it may be dead already
	_ = a.cmd.Wait()         // how it died is known
	for _, file := range a.files {
		_ = file.Close()
	}
	a.cmd = nil
}

// work lets the application make its part of the calls of a history, and records them. Calls that have not
// ended when it dies have unknown outcomes. One that is dead makes none.
func (a *application) work(h *history, phase, phases, each int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	order := message{Kind: isWork, Name: h.name, Seed: h.seed, Phase: phase, Phases: phases, Each: each,
		Subject: indexOf(h.guard.name), Base: h.base, Now: a.clock(), Shares: h.shares}
	if a.cmd == nil || a.to.Encode(order) != nil {
		return
	}
	pending := map[int]porcupine.Operation{}
	for {
		var m message
		if a.from.Decode(&m) != nil { // dead
			for _, op := range pending {
				op.Output, op.Return = unknown{}, never
				h.failed.Add(1)
				h.add(op)
			}
			a.end()
			return
		}
		op := porcupine.Operation{ClientId: m.Caller, Input: m.Value, Call: h.now()}
		switch m.Kind {
		case isBegun:
			pending[m.Caller] = op
			if a.to.Encode(message{Kind: isGo, Caller: m.Caller}) == nil && a.until.Add(-1) == 0 {
				go a.killSoon(a.cmd.Process, a.killed)
			}
		case isEnded:
			op := pending[m.Caller]
			delete(pending, m.Caller)
			op.Output, op.Return = m.Value, h.now()
			if m.Unsent {
				continue
			}
			if m.Failed {
				op.Output, op.Return = unknown{}, never
				h.failed.Add(1)
			}
			h.add(op)
		case isLater:
			op.Output, op.Return = unknown{}, never
			h.add(op)
		case isDone:
			return
		case isWork, isGo: // the test sends these
		}
	}
}

// killSoon kills the application while it makes a call, or shortly after.
func (a *application) killSoon(p *os.Process, killed chan<- struct{}) {
	pass(context.Background(), rand.N(400*time.Microsecond))
	_ = p.Kill() // it may be dead already
	close(killed)
}

// killed is a world whose last process is one that a nemesis kills.
func killed(t *testing.T) *world {
	w := own(deadline)(t)
	w.app = &application{addr: w.server.Addr(), prefix: "histories", clock: w.clock.Now}
	t.Cleanup(func() {
		w.app.mu.Lock()
		defer w.app.mu.Unlock()
		w.app.end()
	})
	if err := w.app.launch(); err != nil {
		t.Fatal(err)
	}
	return w
}

// killApplication kills it during one of its next calls, and starts it again.
func killApplication(ctx context.Context, t *testing.T, w *world) {
	a := w.app
	a.mu.Lock()
	dead := a.killed
	a.until.Store(1 + w.rng.Int64N(3*killedCalls))
	a.mu.Unlock()
	select {
	case <-dead:
	case <-ctx.Done():
		return
	}
	if err := a.launch(); err != nil {
		t.Error(err)
	}
}

// indexOf returns the number of a subject.
func indexOf(name string) int {
	for i, s := range subjects() {
		if s.name == name {
			return i
		}
	}
	return -1
}

// parent is the test whose application this process is.
type parent struct {
	mu    sync.Mutex
	to    *gob.Encoder
	ready map[int]chan struct{} // by caller: it may make its call
}

func (p *parent) tell(m message) {
	p.mu.Lock()
	err := p.to.Encode(m)
	p.mu.Unlock()
	if err != nil {
		os.Exit(1) // the test is gone, or does not know the type
	}
}

// do is caller.do in the application.
func (p *parent) do(c *caller, in any, call func() (any, error)) bool {
	p.tell(message{Kind: isBegun, Caller: c.number, Value: in})
	<-p.ready[c.number]
	out, err := call()
	m := message{Kind: isEnded, Caller: c.number, Value: out, Failed: err != nil}
	m.Unsent = errors.Is(err, core.ErrBreakerOpen) && c.guard.single
	p.tell(m)
	return err == nil
}

// TestApplicationsMakeCallsOfEveryGuard: an application that nobody kills makes its part of the calls of a
// history of each guard. The test is also what the application runs.
func TestApplicationsMakeCallsOfEveryGuard(t *testing.T) {
	if addr, prefix, is := strings.Cut(os.Getenv(applicationEnv), " "); is {
		serve(t, addr, prefix)
		return
	}
	w := killed(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, s := range subjects() {
		if s.acked {
			continue
		}
		begin, call := s.open(t, w)
		h, err := s.run(w, "history", seed+uint64(i), begin, call)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		for _, op := range h.ops {
			if op.ClientId >= most && op.Return != never {
				calls++
			}
		}
		if verdict := h.verdict(); calls == 0 || verdict == porcupine.Illegal {
			t.Errorf("%s: %d calls of the application, %s\n%s", s.name, calls, verdict, h)
		}
	}
}

// serve is what the process of an application does until it is killed or its test is gone.
func serve(t *testing.T, addr, prefix string) {
	in, out := os.NewFile(3, "in"), os.NewFile(4, "out")
	p := &parent{to: gob.NewEncoder(out), ready: map[int]chan struct{}{}}
	for i := range killedCallers {
		p.ready[most+i] = make(chan struct{}, 1)
	}
	orders := make(chan message)
	go p.listen(in, orders)
	w := &world{breaks: true}
	w.start(t, prefix, redistest.OptionsOf(addr), deadline)
	calls := map[int]func(*caller, int){}
	for m := range orders {
		w.clock.Set(m.Now)
		s := subjects()[m.Subject]
		if calls[m.Subject] == nil {
			_, calls[m.Subject] = s.open(t, w)
		}
		p.make(w, s, m, calls[m.Subject])
	}
}

// listen reads what the test says, until it is gone.
func (p *parent) listen(in *os.File, orders chan<- message) {
	from := gob.NewDecoder(in)
	for {
		var m message
		if from.Decode(&m) != nil {
			os.Exit(0)
		}
		if m.Kind == isWork {
			orders <- m
		} else {
			p.ready[m.Caller] <- struct{}{}
		}
	}
}

// make makes the application's part of the calls of a phase. They have the last numbers of a history.
func (p *parent) make(w *world, s subject, m message, call func(*caller, int)) {
	share := killedCalls / m.Phases
	h := &history{name: m.Name, seed: m.Seed, guard: s, world: w, base: m.Base, shares: m.Shares,
		room: most - killedCalls + (m.Phase+1)*share}
	w.bases.Store(h.name, h.base)
	h.calls.Store(int64(h.room - share))
	var all sync.WaitGroup
	for i := range killedCallers {
		all.Go(func() {
			c := h.caller(most+i, uint64(1<<34+i+m.Phase*killedCallers))
			c.resends, c.parent = true, p
			for range m.Each {
				call(c, 0)
			}
		})
	}
	all.Wait()
	p.tell(message{Kind: isDone})
}
