package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var all = rules{tries: true, address: true, device: true, account: true}

// each runs f with some tries on a redis-server. Where all is wanted it does so on miniredis, and with many
// tries on a redis-server.
func each(t *testing.T, some int, f func(t *testing.T, b redistest.Backend, tries int)) {
	if redistest.AlsoMini() {
		t.Run("miniredis", func(t *testing.T) {
			b := redistest.Mini(t)
			b.Mini.ClockTTL(false) // as in connect
			f(t, b, some)
		})
	}
	tries := some
	if redistest.All() {
		tries = 10_000
	}
	t.Run("redis", func(t *testing.T) { f(t, redistest.Single(t), tries) })
}

// stuff attacks an application with these rules, and fails the test if honest voters are refused.
func stuff(t *testing.T, b redistest.Backend, on rules, k attack) result {
	t.Helper()
	k.seed = uint64(time.Now().UnixNano())
	t.Logf("seed %d", k.seed)
	// A test machine may be busy, and the deadline is not under test.
	a := newApp(core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute)), on)
	res, err := k.run(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	answered := 0
	for _, n := range res.statuses {
		answered += n
	}
	if res.statuses[201] != res.red || answered != k.tries {
		t.Errorf("%d votes for red, %d tries were answered with %v", res.red, k.tries, res.statuses)
	}
	if on.account && (res.blue != k.people || len(res.refused) > 0) {
		t.Errorf("%d of %d honest votes count; some were answered with %v", res.blue, k.people, res.refused)
	}
	t.Logf("red %d, blue %d, %s", res.red, res.blue, res.answers())
	return res
}

// TestThreeAccountsHaveThreeVotes: with all rules three accounts get three votes; without rules every try
// counts.
func TestThreeAccountsHaveThreeVotes(t *testing.T) {
	each(t, 500, func(t *testing.T, b redistest.Backend, tries int) {
		k := attack{tries: tries, accounts: 3, people: 200}
		if res := stuff(t, b, rules{}, k); res.red != tries || res.blue != 2*k.people {
			t.Errorf("without rules %d votes for red and %d for blue, want all", res.red, res.blue)
		}
		allowed := all.allowed(tries, k.accounts, addresses, tries)
		if res := stuff(t, b, all, k); res.red != allowed || allowed != 3 {
			t.Errorf("%d votes for red, the rules allow %d", res.red, allowed)
		}
	})
}

// TestManyAccountsHaveWhatTheirAddressesHave: the number of addresses limits an attacker with thousands of
// accounts. An IPv6 network counts as one address, and a forged header as none.
func TestManyAccountsHaveWhatTheirAddressesHave(t *testing.T) {
	each(t, 1500, func(t *testing.T, b redistest.Backend, tries int) {
		k := attack{tries: tries, accounts: 5000, people: 100}
		allowed := all.allowed(tries, k.accounts, addresses, tries)
		res := stuff(t, b, all, k)
		if res.red > allowed || allowed != 1000 {
			t.Errorf("%d votes for red, the rules allow %d", res.red, allowed)
		}
		if res.red < allowed/2 {
			t.Errorf("%d votes for red are too few for an attack", res.red)
		}
	})
}

// TestOneDeviceOfManyAccounts: a device that does not change limits its user, from every address.
func TestOneDeviceOfManyAccounts(t *testing.T) {
	b := redistest.Mini(t)
	a := newApp(core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute)), all)
	var statuses []int
	for i := range 5 {
		r := honest(t.Context(), 20+i)
		r.Header.Set("Cookie", deviceCookie+"=shared")
		statuses = append(statuses, serve(a, r))
	}
	if a.counted["blue"] != votesPerDevice {
		t.Errorf("%d votes: %v", a.counted["blue"], statuses)
	}
}

// TestClicksAndDuplicatesTakeNothingFromTheOffice: one voter in an office cannot use up the votes of all.
func TestClicksAndDuplicatesTakeNothingFromTheOffice(t *testing.T) {
	b := redistest.Mini(t)
	a := newApp(core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute)), all)
	for i := range votesPerAddress + 5 {
		again := honest(t.Context(), 0)
		want := 200
		if i == 0 {
			want = 201
		} else if i%2 == 0 {
			again.Header.Set(idempotencyField, `"another"`)
			want = 409
		}
		if got := serve(a, again); got != want {
			t.Errorf("click %d: %d, want %d", i, got, want)
		}
	}
	for i := 1; i < perOffice; i++ {
		if got := serve(a, honest(t.Context(), i)); got != 201 {
			t.Errorf("colleague %d: %d", i, got)
		}
	}
}

// TestRunPrintsALineForEachCase: run prints what `go run` shows.
func TestRunPrintsALineForEachCase(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, "", 50, 20); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if !strings.Contains(out.String(), "\n"+c.name) {
			t.Errorf("no line for %s:\n%s", c.name, &out)
		}
	}
	if err := run(t.Context(), &out, "http://:secret@127.0.0.1", 1, 1); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
