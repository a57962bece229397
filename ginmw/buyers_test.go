package ginmw_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/seckill/buckets"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/saletest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// markets are the sales in which a crowd races for an item, and their settings.
var markets = []struct {
	name  string
	start func(testing.TB) redistest.Backend
	sale  seckill.Sale
	sales func(e *core.Engine) saletest.Sales
}{
	{"redis", redistest.Single, seckill.Sale{PerBuyer: 2}, inOneSlot},
	{"cluster", redistest.Cluster, seckill.Sale{PerBuyer: 2}, inOneSlot},
	{"buckets", redistest.Cluster, seckill.Sale{PerBuyer: 2}, func(e *core.Engine) saletest.Sales {
		return buckets.New(e, "sale", buckets.Options{Buckets: 8})
	}},
}

func inOneSlot(e *core.Engine) saletest.Sales { return seckill.New(e, "sale", seckill.Options{}) }

// crowd is a number of buyers and of units for them.
func crowd() (buyers int, stock int64) {
	switch {
	case redistest.Soak():
		return 20_000, 1000
	case redistest.All():
		return 2000, 100
	}
	return 300, 40
}

// market is an item on sale in several processes, and the answers that its buyers got.
type market struct {
	*testing.T
	seed   uint64
	guards []saletest.Sales // one per process
	apps   []http.Handler
	server *httptest.Server // the first process, on a real connection
	faults *redistest.Faults

	mu       sync.Mutex
	promised map[string]string // buyers by reservation, who got an answer that they have bought
	later    map[string]string // likewise: they will pay later, and never do
	unsure   map[string]bool   // reservations whose buyer hung up
	endings  map[string]int    // how often a handler ended like this
	refusals map[string]int    // by reason; failures by status
}

// tv is the path of all orders.
const tv = "/sales/tv/orders"

// endsHeader is the header by which a test selects how the handler ends.
const endsHeader = "X-Ends"

// goAwayKey is the context key of the function that disconnects the client.
type goAwayKey struct{}

func openMarket(
	t *testing.T, b redistest.Backend, sale seckill.Sale, sales func(e *core.Engine) saletest.Sales,
) *market {
	t.Helper()
	m := &market{
		T: t, seed: rand.Uint64(), faults: redistest.NewFaults(t), promised: map[string]string{},
		later:  map[string]string{},
		unsure: map[string]bool{}, endings: map[string]int{}, refusals: map[string]int{},
	}
	t.Logf("seed %d", m.seed)
	for range 3 {
		gate := saletest.NewEngine(b, b.NewClientWith(t, m.faults))
		guard := sales(gate)
		if err := gate.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.guards = append(m.guards, guard)
		m.apps = append(m.apps, m.app(guard))
	}
	saletest.Open(t, m.guards[0], "tv", sale)

	m.server = httptest.NewUnstartedServer(m.apps[0])
	m.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	m.server.Start()
	t.Cleanup(m.server.Close)
	return m
}

func (m *market) app(sale saletest.Sales) http.Handler {
	engine := gin.New()
	engine.Use(gin.RecoveryWithWriter(io.Discard), signIn)
	engine.POST("/sales/:sku/orders", ginmw.Gin(ginmw.Rule{
		Guard: sale,
		Who:   keyfuncs.User(adaptertest.UserKey),
		What:  keyfuncs.Param("sku"),
		ID:    keyfuncs.IdempotencyKey(),
	}), m.placeOrder)
	return engine
}

// placeOrder ends as the request demands.
func (m *market) placeOrder(c *gin.Context) {
	d, _ := ginmw.Decision(c, "sale")
	ends := c.GetHeader(endsHeader)
	m.mu.Lock()
	m.endings[ends]++
	m.mu.Unlock()
	switch ends {
	case "fail":
		c.Status(http.StatusBadGateway)
		return
	case "panic":
		panic("the handler is broken")
	case "gone":
		c.Request.Context().Value(goAwayKey{}).(context.CancelFunc)()
	case "later":
		ginmw.Take(c, "sale")
		c.String(http.StatusAccepted, d.Attempt.ID)
		return
	}
	c.String(http.StatusCreated, d.Attempt.ID)
}

// order sends an order in process, and returns its status. Without a key it cannot be sent again.
func (m *market) order(buyer, key, ends string) int {
	ctx, goAway := context.WithCancel(context.Background())
	defer goAway()
	r := httptest.NewRequestWithContext(context.WithValue(ctx, goAwayKey{}, goAway), http.MethodPost, tv, nil)
	m.sign(r, buyer, key, ends)
	w := httptest.NewRecorder()
	m.apps[rand.IntN(len(m.apps))].ServeHTTP(w, r)
	switch {
	case ctx.Err() == nil:
		m.record(buyer, w.Code, w.Body.String())
	case w.Code == http.StatusCreated: // it was written, whether or not a client got it
		m.mu.Lock()
		m.unsure[w.Body.String()] = true
		m.mu.Unlock()
	}
	return w.Code
}

// orderFromAfar sends an order over a connection, and hangs up after a while. It returns 0 when no answer
// arrived.
func (m *market) orderFromAfar(buyer, key, ends string, patience time.Duration) int {
	ctx, hangUp := context.WithTimeout(m.Context(), patience)
	defer hangUp()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.server.URL+tv, http.NoBody)
	if err != nil {
		m.Error(err)
		return 0
	}
	m.sign(r, buyer, key, ends)
	answer, err := m.server.Client().Do(r)
	if err == nil {
		defer answer.Body.Close()
		var body []byte
		if body, err = io.ReadAll(answer.Body); err == nil {
			m.record(buyer, answer.StatusCode, string(body))
			return answer.StatusCode
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unsure[buyer+"|"+key] = true
	return 0
}

func (m *market) sign(r *http.Request, buyer, key, ends string) {
	r.Header.Set(adaptertest.UserHeader, buyer)
	r.Header.Set(endsHeader, ends)
	if key != "" {
		r.Header.Set("Idempotency-Key", `"`+key+`"`)
	}
}

// record records an answer that reached a buyer.
func (m *market) record(buyer string, status int, body string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch status {
	case http.StatusOK: // asked again, and heard that it is done
	case http.StatusCreated:
		m.promised[body] = buyer
	case http.StatusAccepted:
		m.later[body] = buyer
	case http.StatusConflict:
		for _, reason := range []core.Reason{core.ReasonSoldOut, core.ReasonDuplicate} {
			if strings.Contains(body, fmt.Sprintf("%q", reason)) {
				m.refusals[string(reason)]++
			}
		}
	case http.StatusBadGateway, http.StatusInternalServerError, http.StatusServiceUnavailable:
		m.refusals[http.StatusText(status)]++
	default:
		m.Errorf("%s got %d %s", buyer, status, body)
	}
}

// open lets the buyers in, some hundreds at a time, and returns when the last one is done.
func (m *market) open(buyers int, visit func(i int, buyer string, rng *rand.Rand)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, 400)
	for i := range buyers {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			visit(i, fmt.Sprint("buyer-", i), rand.New(rand.NewPCG(m.seed, uint64(i))))
		})
	}
	all.Wait()
}

// wantSettled wants every promise kept, every unit accounted for, and nobody above the limit at any time.
func (m *market) wantSettled(sale seckill.Sale) seckill.Status {
	m.Helper()
	status := saletest.WantConsistent(m, m.guards[0], "tv")
	if status.Held != 0 || status.Stock != sale.Stock {
		m.Errorf("%+v, want a stock of %d and nothing held", status, sale.Stock)
	}
	ledger := saletest.Read(m, m.guards[0], "tv")
	sold := ledger.In(seckill.EventSold)
	if int64(len(sold)) != status.Sold {
		m.Errorf("the outbox tells of %d units sold, the sale of %d", len(sold), status.Sold)
	}
	for id, buyer := range m.promised {
		if sold[id] != buyer {
			m.Errorf("%s was told that they own %s: %+v", buyer, id, ledger.Last[id])
		}
	}
	for id, buyer := range sold {
		if m.promised[id] != buyer && !m.unsure[id] {
			m.Errorf("%s is sold to %s, who was not told", id, buyer)
		}
	}
	for buyer, most := range ledger.Most {
		if most > sale.PerBuyer {
			m.Errorf("%s has had %d units at a time, %d are allowed", buyer, most, sale.PerBuyer)
		}
	}
	m.Logf("%d of %d units sold, %d promised; refused: %v; handlers: %v; replies lost: %d",
		status.Sold, status.Stock, len(m.promised), m.refusals, m.endings, m.faults.Swallowed())
	return status
}

// TestACrowdOfBuyers: exactly the stock is sold, and winners who ask again get the same yes, during the
// race and after it.
//
// Promise (Endings): A replay of a finished operation does not run the handler. A crowd with one key makes
// one order.
func TestACrowdOfBuyers(t *testing.T) {
	for _, c := range markets {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "redis" {
				redistest.LeftToCI(t)
			}
			buyers, stock := crowd()
			c.sale.Stock = stock
			m := openMarket(t, c.start(t), c.sale, c.sales)
			const greedy = 10 // are the first at the door, and send one order more than is allowed
			var firstIn sync.WaitGroup
			for i := range greedy {
				for n := range c.sale.PerBuyer + 1 {
					firstIn.Go(func() { m.order(fmt.Sprint("buyer-", i), fmt.Sprint("first-", n), "") })
				}
			}
			firstIn.Wait()
			if n := m.refusals[string(core.ReasonDuplicate)]; n != greedy ||
				len(m.promised) != greedy*int(c.sale.PerBuyer) {
				t.Errorf("%d orders above the limit are refused, %d units promised", n, len(m.promised))
			}
			m.open(buyers, func(_ int, buyer string, rng *rand.Rand) {
				for n := range 1 + rng.IntN(2) {
					key := fmt.Sprint("order-", n)
					if rng.IntN(8) == 0 {
						m.order(buyer, "", "")
					} else if m.order(buyer, key, "") == http.StatusCreated &&
						m.order(buyer, key, "") != http.StatusOK {
						t.Errorf("%s has won, and asked again in vain", buyer)
					}
				}
			})
			if status := m.wantSettled(c.sale); status.Sold != stock || int64(len(m.promised)) != stock {
				t.Errorf("%d of %d units are sold, %d promised", status.Sold, stock, len(m.promised))
			}
			winners := maps.Clone(m.promised)
			var all sync.WaitGroup
			for id, buyer := range winners {
				if key, ok := strings.CutPrefix(id, buyer+"|"); ok {
					all.Go(func() {
						if status := m.order(buyer, key, ""); status != http.StatusOK {
							t.Errorf("%s has won, and hears %d when all is over", buyer, status)
						}
					})
				}
			}
			all.Wait()
			if n := m.endings[""]; int64(n) != stock {
				t.Errorf("%d orders were made of %d units", n, stock)
			}
			if !maps.Equal(m.promised, winners) {
				t.Errorf("%d units were sold again", len(m.promised)-len(winners))
			}
			m.wantSettled(c.sale)
		})
	}
}

// TestACrowdOfBuyersAndFaults: some replies are lost, handlers fail and panic, clients hang up, and some who
// are to pay later never do. When their holds expire, every unit is accounted for and every promise is kept.
//
// Promise (Seckill): Crowds of buyers, directly or through an adapter, never oversell.
func TestACrowdOfBuyersAndFaults(t *testing.T) {
	redistest.LeftToCI(t)
	for _, c := range markets {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // it mostly waits for the holds to expire
			buyers, stock := crowd()
			c.sale.Stock, c.sale.Hold = stock, 10*time.Second
			lost := 0.05 // of a few hundred calls
			if redistest.Soak() {
				lost = 0.01
			}
			m := openMarket(t, c.start(t), c.sale, c.sales)
			m.faults.SwallowEvery("evalsha", lost, rand.New(rand.NewPCG(m.seed, 1<<63)))
			m.open(buyers, func(i int, buyer string, rng *rand.Rand) {
				if i%20 == 0 {
					m.hangsUp(buyer, rng)
				} else {
					m.triesOften(buyer, rng)
				}
			})
			m.faults.Heal()
			m.server.Close() // waits for the requests whose clients have gone
			saletest.EndHolds(t, m.guards[0], "tv")

			m.wantSettled(c.sale)
			expired := saletest.Read(t, m.guards[0], "tv").In(seckill.EventExpired)
			for id, buyer := range m.later {
				if expired[id] != buyer && !m.unsure[id] { // else an earlier try may have bought it
					t.Errorf("%s of %s, never paid, has not expired", id, buyer)
				}
			}
			if m.faults.Swallowed() == 0 || len(m.later) == 0 || len(m.unsure) == 0 || m.endings["panic"] == 0 ||
				m.endings["fail"] == 0 || m.endings["gone"] == 0 {
				t.Error("some faults did not happen")
			}
		})
	}
}

// triesOften sends an order until it gets yes or no despite faults, and sometimes once more.
func (m *market) triesOften(buyer string, rng *rand.Rand) {
	endings := []string{"", "", "fail", "panic", "gone", "later"}
	for range 10 {
		ends := endings[rng.IntN(len(endings))]
		switch status := m.order(buyer, "1", ends); {
		case ends == "gone" || status >= http.StatusInternalServerError: // asks again
		case status == http.StatusCreated:
			again := endings[rng.IntN(len(endings)-1)]
			m.order(buyer, "1", again) // takes nothing back, however it ends
			return
		default:
			return
		}
	}
}

// hangsUp sends orders over a connection and hangs up at random moments; then it asks once more, and waits.
func (m *market) hangsUp(buyer string, rng *rand.Rand) {
	for range 3 {
		m.orderFromAfar(buyer, "1", "", time.Duration(rng.Int64N(int64(20*time.Millisecond))))
	}
	m.orderFromAfar(buyer, "1", "", time.Minute)
}
