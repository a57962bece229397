package market_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/internal/recipetest"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/market"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// fair is the market of most tests. Its braces are those of users, not of a hash tag.
const fair = "fair {1}"

func deposit(t *testing.T, m *market.Markets, user string, amount int64) {
	t.Helper()
	if _, err := m.Deposit(t.Context(), fair, user, "payment", amount); err != nil {
		t.Fatalf("%.20q pays in %d: %v", user, amount, err)
	}
}

func offer(t *testing.T, m *market.Markets, seller, id, item string, price int64) {
	t.Helper()
	if err := m.Offer(t.Context(), fair, seller, id, item, price); err != nil {
		t.Fatalf("%.20q offers %.20q: %v", seller, item, err)
	}
}

func wantItem(t *testing.T, m *market.Markets, item, owner string, price int64) {
	t.Helper()
	has, asked, err := m.Item(t.Context(), fair, item)
	if err != nil || has != owner || asked != price {
		t.Errorf("%.20q has %.20q for %d, %v: want %.20q, %d", has, item, asked, err, owner, price)
	}
}

func wantBalance(t *testing.T, m *market.Markets, user string, want int64) {
	t.Helper()
	if balance, err := m.Balance(t.Context(), fair, user); err != nil || balance != want {
		t.Errorf("%.20q has %d, %v: want %d", user, balance, err, want)
	}
}

func TestAPurchaseMovesMoneyAndItem(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		m := market.New(guardtest.NewEngine(b), 10, time.Hour)
		deposit(t, m, "ann", 900)
		offer(t, m, "bob", "1", "lamp", 500)
		for range 2 { // the second is a retry
			if balance, err := m.Buy(t.Context(), fair, "ann", "b1", "lamp", 500); err != nil || balance != 400 {
				t.Errorf("%d left, %v: want 400", balance, err)
			}
		}
		wantItem(t, m, "lamp", "ann", 0)
		wantBalance(t, m, "ann", 400)
		wantBalance(t, m, "bob", 500)

		offer(t, m, "ann", "1", "lamp", 600) // ann's ID 1, not bob's
		if _, err := m.Buy(t.Context(), fair, "ann", "b1", "lamp", 600); !errors.Is(err, market.ErrConflict) {
			t.Errorf("another purchase under the same ID: %v", err)
		}
		offer(t, m, "bob", "1", "lamp", 500) // a retry of bob's, who has sold the lamp since
		wantItem(t, m, "lamp", "ann", 600)
	})
}

func TestRefusedPurchasesChangeNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		m := market.New(guardtest.NewEngine(b), 2, time.Hour)
		deposit(t, m, "ann", 900)
		offer(t, m, "bob", "1", "lamp", 500)
		offer(t, m, "bob", "2", "lamp", 950)
		offer(t, m, "ann", "1", "book", 0)
		before := len(recipetest.Keys(t, b))

		buy := func(buyer, item string, price int64) error {
			_, err := m.Buy(t.Context(), fair, buyer, "b1", item, price)
			return err
		}
		changed, poor := new(market.PriceError), new(market.FundsError)
		if err := buy("ann", "lamp", 500); !errors.As(err, &changed) || changed.Price != 950 {
			t.Errorf("a price that has changed: %v", err)
		}
		if err := buy("ann", "lamp", 950); !errors.As(err, &poor) || poor.Balance != 900 {
			t.Errorf("a price of 950 for one who has 900: %v", err)
		}
		for _, c := range []struct {
			buyer, item string
			want        error
		}{{"bob", "lamp", market.ErrOwn}, {"ann", "book", market.ErrOwn}, {"cid", "book", market.ErrNotOffered},
			{"ann", "moon", market.ErrNoItem}, {"", "lamp", core.ErrInvalid}, {"ann", "", core.ErrInvalid}} {
			if err := buy(c.buyer, c.item, 950); !errors.Is(err, c.want) {
				t.Errorf("%q buys %q: %v, want %v", c.buyer, c.item, err, c.want)
			}
		}
		if err := m.Offer(t.Context(), fair, "ann", "9", "lamp", 1); !errors.Is(err, market.ErrNotOwner) {
			t.Errorf("ann offers bob's lamp: %v", err)
		}
		if err := m.Offer(t.Context(), fair, "ann", "9", "pen", 1); !errors.Is(err, market.ErrFull) {
			t.Errorf("a third item of two: %v", err)
		}
		wantItem(t, m, "lamp", "bob", 950)
		wantItem(t, m, "book", "ann", 0)
		wantBalance(t, m, "ann", 900)
		wantBalance(t, m, "bob", 0)
		if after := len(recipetest.Keys(t, b)); after != before {
			t.Errorf("%d keys, %d before", after, before)
		}
	})
}

// TestLargeAmountsAreExact: Lua counts exactly below 2^53, and would write a large number as 9.007e+15.
func TestLargeAmountsAreExact(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		m := market.New(guardtest.NewEngine(b), 10, time.Hour)
		deposit(t, m, "ann", market.MaxMoney-1)
		if _, err := m.Deposit(t.Context(), fair, "bob", "2", 2); !errors.Is(err, market.ErrTooMuch) {
			t.Errorf("2^53: %v", err)
		}
		deposit(t, m, "bob", 1)
		offer(t, m, "bob", "1", "lamp", market.MaxMoney-2)
		balance, err := m.Buy(t.Context(), fair, "ann", "b1", "lamp", market.MaxMoney-2)
		if err != nil || balance != 1 {
			t.Errorf("%d left, %v", balance, err)
		}
		wantBalance(t, m, "bob", market.MaxMoney-1)
		for _, amount := range []int64{-1, 0, market.MaxMoney + 1} {
			if _, err := m.Deposit(t.Context(), fair, "ann", "3", amount); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("amount %d: %v", amount, err)
			}
		}
	})
}

func TestOfManyBuyersOneGetsTheItem(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		m := market.New(guardtest.NewEngine(b), 10, time.Hour)
		offer(t, m, "bob", "1", "lamp", 500)
		var all sync.WaitGroup
		var got, late atomic.Int64
		for i := range 8 {
			buyer := fmt.Sprint("buyer ", i)
			deposit(t, m, buyer, 500)
			all.Go(func() {
				switch _, err := m.Buy(t.Context(), fair, buyer, "1", "lamp", 500); {
				case err == nil:
					got.Add(1)
				case errors.Is(err, market.ErrNotOffered):
					late.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got.Load() != 1 || late.Load() != 7 {
			t.Errorf("%d got it, %d came too late: want 1 and 7", got.Load(), late.Load())
		}
		wantBalance(t, m, "bob", 500)
	})
}

// TestMoneyIsConserved: users trade at random while replies are lost. Each purchase is repeated with its ID
// until there is an answer. In the end each user has what the answers add up to.
func TestMoneyIsConserved(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		random := rand.New(rand.NewPCG(seed, 1))
		gate, faults := recipetest.Lossy(t, b, 0.2)
		m := market.New(gate, 10, time.Hour)
		users, items := []string{"ann", "bob", "{cid}"}, []string{"lamp", "book"}
		have, owner := map[string]int64{}, map[string]string{}
		for _, user := range users {
			recipetest.Retry(t, func() error {
				_, err := m.Deposit(t.Context(), fair, user, "payment", 1000)
				return err
			})
			have[user] = 1000
		}
		for i := range 60 {
			user, item := users[random.IntN(len(users))], items[random.IntN(len(items))]
			id, price := fmt.Sprint("op ", i), int64(random.IntN(400)+1)
			var refused error
			recipetest.Retry(t, func() error {
				switch refused = m.Offer(t.Context(), fair, user, id, item, price); {
				case errors.Is(refused, market.ErrNotOwner):
					return nil
				default:
					return refused
				}
			})
			if refused == nil {
				owner[item] = user
				continue
			}
			_, asked, err := m.Item(t.Context(), fair, item)
			if err != nil {
				t.Fatal(err)
			}
			balance, seller := int64(0), owner[item]
			recipetest.Retry(t, func() error {
				balance, refused = m.Buy(t.Context(), fair, user, "buy "+id, item, max(asked, 1))
				if poor := new(market.FundsError); errors.As(refused, &poor) ||
					errors.Is(refused, market.ErrNotOffered) {
					return nil
				}
				return refused
			})
			if refused == nil {
				have[user] -= asked
				have[seller] += asked
				owner[item] = user
				if balance != have[user] {
					t.Errorf("%s has %d after a purchase, want %d", user, balance, have[user])
				}
			}
		}
		faults.Heal()
		sum := int64(0)
		for _, user := range users {
			wantBalance(t, m, user, have[user])
			sum += have[user]
		}
		for _, item := range items {
			if owner[item] == "" { // nobody has offered it
				continue
			}
			if has, _, err := m.Item(t.Context(), fair, item); err != nil || has != owner[item] {
				t.Errorf("%s has %s, %v: want %s", has, item, err, owner[item])
			}
		}
		if sum != 3000 || faults.Swallowed() == 0 {
			t.Errorf("%d in all after %d lost replies, want 3000", sum, faults.Swallowed())
		}
	})
}

// TestTradersAtOnceConserveMoney: the accounts add up to what was paid in at any time, negative for nobody,
// and each item has one owner.
func TestTradersAtOnceConserveMoney(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		gate := guardtest.NewEngine(b)
		m := market.New(gate, 10, time.Hour)
		users := []string{"ann", "bob", "cid", "dan"}
		for _, user := range users {
			deposit(t, m, user, 100)
		}
		offer(t, m, "ann", "first", "lamp", 30)
		var all sync.WaitGroup
		for _, user := range users {
			all.Go(func() {
				for i := range 20 {
					id := fmt.Sprint(i)
					if m.Offer(t.Context(), fair, user, "o"+id, "lamp", 30) != nil {
						_, _ = m.Buy(t.Context(), fair, user, "b"+id, "lamp", 30) // one of them, or too little money
					}
				}
			})
		}
		for range 10 {
			accounts, err := b.Client.HGetAll(t.Context(), gate.Key("market", fair, "funds")).Result()
			if err != nil {
				t.Fatal(err)
			}
			sum := int64(0)
			for user, text := range accounts {
				var money int64
				if _, err := fmt.Sscan(text, &money); err != nil || money < 0 {
					t.Errorf("%s has %q, %v", user, text, err)
				}
				if user != "=" {
					sum += money
				}
			}
			if sum != 400 || accounts["="] != "400" {
				t.Errorf("%v add up to %d, want 400", accounts, sum)
			}
		}
		all.Wait()
	})
}

// TestOneMarketIsOneSlot: a purchase used to need keys of four slots.
func TestOneMarketIsOneSlot(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		gate, declared := recipetest.NewDeclared(b)
		m := market.New(gate, 10, time.Hour)
		deposit(t, m, "ann", 500)
		offer(t, m, "bob", "1", "lamp", 500)
		if _, err := m.Buy(t.Context(), fair, "ann", "1", "lamp", 500); err != nil {
			t.Fatal(err)
		}
		declared.WantAll(t, b)
		slots := map[int]bool{}
		for _, key := range recipetest.Keys(t, b) {
			slots[redistest.Slot(key)] = true
		}
		if len(slots) != 1 {
			t.Errorf("the keys are in %d slots", len(slots))
		}
	})
}

// TestAMarketExpiresAsAWhole: money must not outlive the items that it has paid for.
func TestAMarketExpiresAsAWhole(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		gate := guardtest.NewEngine(b)
		deposit(t, market.New(gate, 10, time.Hour), "ann", 500)
		offer(t, market.New(gate, 10, time.Hour), "bob", "1", "lamp", 500)
		if _, err := market.New(gate, 10, 9*time.Hour).Buy(t.Context(), fair, "ann", "1", "lamp", 500); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"funds", "items"} {
			ttl, err := b.Client.PTTL(t.Context(), gate.Key("market", fair, key)).Result()
			if err != nil || ttl < 8*time.Hour {
				t.Errorf("%s expire in %v, %v: want 9 h", key, ttl, err)
			}
		}
	})
}

func TestAServerThatForgetsItsScripts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		m := market.New(recipetest.Forgetful(t, b), 10, time.Hour)
		deposit(t, m, "ann", 500)
		offer(t, m, "bob", "1", "lamp", 500)
		if balance, err := m.Buy(t.Context(), fair, "ann", "1", "lamp", 500); err != nil || balance != 0 {
			t.Errorf("%d, %v", balance, err)
		}
	})
}

func TestUsersAndItemsAreNotConfused(t *testing.T) {
	b := redistest.Single(t)
	m := market.New(guardtest.NewEngine(b), 1000, time.Hour)
	for i, text := range guardtest.Hostile {
		deposit(t, m, text, int64(i)+1)
		offer(t, m, text, text, text, int64(i)+1)
	}
	for i, text := range guardtest.Hostile {
		wantBalance(t, m, text, int64(i)+1)
		if _, price, err := m.Item(t.Context(), fair, text); err != nil || price != int64(i)+1 {
			t.Errorf("%.20q costs %d, %v", text, price, err)
		}
	}
	sum, err := b.Client.HGet(t.Context(), fundsKey(b), "=").Int64()
	if n := int64(len(guardtest.Hostile)); err != nil || sum != n*(n+1)/2 {
		t.Errorf("%d in all, %v", sum, err)
	}
}

func fundsKey(b redistest.Backend) string {
	return guardtest.NewEngine(b).Key("market", fair, "funds")
}

func TestRequests(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		m := market.New(guardtest.NewEngine(b), 10, time.Hour)
		h := market.Handler(m, keyfuncs.Header("X-User"))
		if _, err := m.Deposit(t.Context(), "{a}", "ann", "payment", 500); err != nil {
			t.Fatal(err)
		}
		lamp := "/markets/%7Ba%7D/items/%7Blamp%00%FF%7D"
		recipetest.Send(t, h, []recipetest.Request{
			{Method: "POST", Path: lamp + "/offers", ID: "1", Body: `{"price":400}`, Status: 401},
			{Method: "POST", Path: lamp + "/offers", User: "bob", Body: `{"price":400}`, Status: 400},
			{Method: "POST", Path: lamp + "/offers", User: "bob", ID: "1", Status: 400},
			{Method: "POST", Path: lamp + "/offers", User: "bob", ID: "1", Body: "{}", Status: 400},
			{Method: "POST", Path: lamp + "/offers", User: "bob", ID: "1", Body: "\xff\x00", Status: 400},
			{Method: "POST", Path: lamp + "/offers", User: "bob", ID: "1", Body: `{"price":-1}`, Status: 400},
			{Method: "POST", Path: lamp + "/offers", User: "bob", ID: "1", Body: `{"price":1.5}`, Status: 400},
			{Method: "POST", Path: lamp + "/offers", User: "bob", ID: "1",
				Body: `{"price":9007199254740992}`, Status: 400},
			{Method: "POST", Path: lamp + "/offers", User: "bob", ID: "1",
				Body: `{"price":` + strings.Repeat("1", 2000) + `}`, Status: 413},
			{Method: "GET", Path: lamp, Status: 404},
			{Method: "POST", Path: lamp + "/offers", User: "bob", ID: "1", Body: `{"price":600}`, Status: 204},
			{Method: "GET", Path: lamp, Status: 200, Want: `{"owner":"bob","price":600}`},
			{Method: "POST", Path: lamp + "/purchases", User: "ann", ID: "1", Body: `{"price":600}`,
				Status: 402, Want: `{"balance":500}`},
			{Method: "POST", Path: lamp + "/purchases", User: "ann", ID: "1", Body: `{"price":500}`,
				Status: 409, Want: `{"price":600}`},
			{Method: "POST", Path: lamp + "/offers", User: "bob", ID: "2", Body: `{"price":400}`, Status: 204},
			{Method: "POST", Path: lamp + "/offers", User: "ann", ID: "2", Body: `{"price":400}`, Status: 403},
			{Method: "POST", Path: lamp + "/purchases", User: "bob", ID: "3", Body: `{"price":400}`, Status: 409},
			{Method: "POST", Path: lamp + "/purchases", User: "ann", ID: "1", Body: `{"price":0}`, Status: 400},
			{Method: "POST", Path: lamp + "/purchases", User: "ann", ID: "1", Body: `{"price":400}`,
				Status: 200, Want: `{"balance":100}`},
			{Method: "POST", Path: lamp + "/purchases", User: "ann", ID: "1", Body: `{"price":400}`,
				Status: 200, Want: `{"balance":100}`},
			{Method: "POST", Path: lamp + "/purchases", User: "ann", ID: "1", Body: `{"price":1}`, Status: 422},
			{Method: "POST", Path: lamp + "/purchases", User: "cid", ID: "1", Body: `{"price":400}`, Status: 409},
			{Method: "POST", Path: "/markets/x/items/y/purchases", User: "ann", ID: "1",
				Body: `{"price":1}`, Status: 404},
			{Method: "GET", Path: "/markets/%7Ba%7D/balance", Status: 401},
			{Method: "GET", Path: "/markets/%7Ba%7D/balance", User: "bob", Status: 200, Want: `{"balance":400}`},
			{Method: "GET", Path: "/markets/x/balance", User: "bob", Status: 200, Want: `{"balance":0}`},
			{Method: "GET", Path: "/markets//items/y", Status: 404},
		})
	})
}

func TestClientsDoNotSeeWhatIsWrongWithRedis(t *testing.T) {
	h := market.Handler(market.New(recipetest.Broken(t), 3, time.Hour), keyfuncs.Header("X-User"))
	recipetest.Send(t, h, []recipetest.Request{
		{Method: "POST", Path: "/markets/x/items/y/purchases", User: "ann", ID: "1",
			Body: `{"price":1}`, Status: 503},
	})
}

func TestSetUpMistakesPanic(t *testing.T) {
	gate := guardtest.NewEngine(redistest.Mini(t))
	guardtest.WantPanic(t, "give 1 or more", func() { market.New(gate, 0, time.Hour) })
	guardtest.WantPanic(t, "give 1 or more", func() { market.New(gate, 1, 0) })
	guardtest.WantPanic(t, "needs Redis", func() { market.New(core.NewMemory(), 1, time.Hour) })
}
