package recipes

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

const (
	addresses = 50 // of the attacker: 49 of IPv4, and one of IPv6 with its whole /64
	perOffice = 10 // people behind one address: every other ten people; the others are at home
)

// election is a poll, and what was answered.
type election struct {
	*testing.T
	app  http.Handler
	poll *votes.Guard

	mu       sync.Mutex
	statuses map[int]int // the attacker's answers
	refused  []int       // honest votes that did not pass
}

func newElection(t *testing.T, b redistest.Backend) *election {
	// A test machine may be busy, and the deadline is not under test.
	gate := core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
	poll := votes.New(gate, "poll", votes.Options{Poll: votes.Poll{Choices: []string{"red", "blue"}}})
	return &election{T: t, app: Ballots(gate, poll, asUser, keyfuncs.TrustProxies("10.0.0.0/8")), poll: poll,
		statuses: map[int]int{}}
}

// tally returns the votes for red and blue.
func (e *election) tally() (red, blue int) {
	e.Helper()
	tally, err := e.poll.Tally(e.Context(), "final")
	if err != nil {
		e.Fatal(err)
	}
	return int(tally["red"]), int(tally["blue"])
}

// stuff lets an attacker with some accounts try to vote for red, while honest people vote for blue and click
// twice. It fails the test if an honest vote is refused, and returns the votes for red.
func (e *election) stuff(tries, accounts, people int) int {
	e.Helper()
	seed := uint64(time.Now().UnixNano())
	e.Logf("seed %d", seed)
	visits := make([]func(), 0, tries+people)
	for i := range tries {
		visits = append(visits, func() {
			status := e.serve(try(seed, i, accounts))
			e.mu.Lock()
			defer e.mu.Unlock()
			e.statuses[status]++
		})
	}
	for i := range people {
		visits = append(visits, func() {
			for _, want := range []int{http.StatusCreated, http.StatusOK} { // a vote, and a second click
				if status := e.serve(honest(i)); status != want {
					e.mu.Lock()
					e.refused = append(e.refused, status)
					e.mu.Unlock()
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(visits), func(i, j int) { visits[i], visits[j] = visits[j], visits[i] })
	queue := make(chan func())
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for visit := range queue {
				visit()
			}
		})
	}
	for _, visit := range visits {
		queue <- visit
	}
	close(queue)
	all.Wait()
	red, blue := e.tally()
	if e.statuses[http.StatusCreated] != red || blue != people || len(e.refused) > 0 {
		e.Errorf("%d votes for red, answered %v; %d of %d honest votes count, some were answered %v",
			red, e.statuses, blue, people, e.refused)
	}
	e.Logf("red %d, blue %d, %v", red, blue, e.statuses)
	return red
}

// try is one try to vote for red: from a random account and address, with a new device, a forged
// X-Forwarded-For, and an operation ID that is repeated, new or absent.
func try(seed uint64, i, accounts int) *http.Request {
	rng := rand.New(rand.NewPCG(seed, uint64(i)+1))
	from := fmt.Sprintf("198.51.100.%d", rng.IntN(addresses-1))
	if rng.IntN(addresses) == 0 {
		from = fmt.Sprintf("2001:db8:bad::%x:%x", rng.IntN(1<<16), rng.IntN(1<<16))
	}
	forged := fmt.Sprintf("203.0.113.%d", rng.IntN(256))
	keys := []string{"", `"the-same"`, fmt.Sprintf(`"%d"`, i)}
	b := ballot{"red", fmt.Sprint("account-", rng.IntN(accounts)), from, forged, fmt.Sprint("device-", i),
		keys[rng.IntN(len(keys))]}
	return b.request(rng)
}

// honest is a vote for blue, from somebody at home or in an office.
func honest(i int) *http.Request {
	office := i / perOffice
	from := fmt.Sprintf("100.64.%d.%d", office/256%256, office%256)
	if office%2 == 1 {
		from = fmt.Sprintf("2001:db8:%x::1", i) // at home
	}
	b := ballot{"blue", fmt.Sprint("person-", i), from, "", fmt.Sprint("phone-", i), `"1"`}
	return b.request(rand.New(rand.NewPCG(uint64(i), 0)))
}

// ballot is a vote as it is sent.
type ballot struct{ choice, account, from, forged, device, key string }

// request makes a request from an address, through one of our proxies or around them.
func (b ballot) request(rng *rand.Rand) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/polls/final/votes?choice="+b.choice, nil)
	r.RemoteAddr = net.JoinHostPort(b.from, "40000")
	if b.forged != "" {
		r.Header.Set("X-Forwarded-For", b.forged)
	}
	if rng.IntN(2) == 0 { // our proxies append to what they get
		r.RemoteAddr = "10.0.0.1:40000"
		r.Header.Add("X-Forwarded-For", b.from)
	}
	r.Header.Set("X-User", b.account)
	r.AddCookie(&http.Cookie{Name: deviceCookie, Value: b.device})
	if b.key != "" {
		r.Header.Set("Idempotency-Key", b.key)
	}
	return r
}

func (e *election) serve(r *http.Request) int {
	w := httptest.NewRecorder()
	e.app.ServeHTTP(w, r)
	return w.Code
}

// tries is a number of tries against a redis-server: all of them where redistest.All is wanted.
func tries(some int) int {
	if redistest.All() {
		return 10_000
	}
	return some
}

// TestThreeAccountsHaveThreeVotes, whatever they try.
func TestThreeAccountsHaveThreeVotes(t *testing.T) {
	if red := newElection(t, redistest.Single(t)).stuff(tries(500), 3, 200); red != 3 {
		t.Errorf("%d votes for red, the rules allow 3", red)
	}
}

// TestManyAccountsHaveWhatTheirAddressesHave: the number of addresses limits an attacker with thousands of
// accounts. An IPv6 network counts as one address, and a forged header as none.
func TestManyAccountsHaveWhatTheirAddressesHave(t *testing.T) {
	const allowed = addresses * votesPerAddress
	red := newElection(t, redistest.Single(t)).stuff(tries(1500), 5000, 100)
	if red > allowed || red < allowed/2 { // few are no attack
		t.Errorf("%d votes for red, the rules allow %d", red, allowed)
	}
}

// TestOneDeviceOfManyAccounts: a device that does not change limits its user, from every address.
func TestOneDeviceOfManyAccounts(t *testing.T) {
	e := newElection(t, redistest.Mini(t))
	var statuses []int
	for i := range 5 {
		r := honest(20 + i)
		r.Header.Set("Cookie", deviceCookie+"=shared")
		statuses = append(statuses, e.serve(r))
	}
	if _, blue := e.tally(); blue != votesPerDevice {
		t.Errorf("%d votes: %v", blue, statuses)
	}
}

// TestClicksAndDuplicatesTakeNothingFromTheOffice: one voter in an office cannot use up the votes of all.
func TestClicksAndDuplicatesTakeNothingFromTheOffice(t *testing.T) {
	e := newElection(t, redistest.Mini(t))
	for i := range votesPerAddress + 5 {
		again := honest(0)
		want := http.StatusOK
		if i == 0 {
			want = http.StatusCreated
		} else if i%2 == 0 {
			again.Header.Set("Idempotency-Key", `"another"`)
			want = http.StatusConflict
		}
		if got := e.serve(again); got != want {
			t.Errorf("click %d: %d, want %d", i, got, want)
		}
	}
	for i := 1; i < perOffice; i++ {
		if got := e.serve(honest(i)); got != http.StatusCreated {
			t.Errorf("colleague %d: %d", i, got)
		}
	}
}
