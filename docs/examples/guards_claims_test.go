package examples_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/core/votes/parts"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

var (
	_ = []any{oneVote, inParts, stuffed, openSale, buyRule, payLater, reopen, sweeping, gifts,
		giftsBack}
	_ = []any{onceOnly, outcomes, exporting, permitsByHand, locking, tasks, operateTasks, reporting,
		waiting, leaving, overWhenSoldOut, ownLinePage, waitingByHand}
)

// findPoll knows the polls: in memory, because it is asked at each attempt.
func findPoll(_ context.Context, name string) (votes.Poll, error) {
	if name != "final" {
		return votes.Poll{}, votes.ErrNoPoll
	}
	return votes.Poll{
		Choices: []string{"red", "blue"},
		Closes:  time.Date(2030, time.June, 1, 20, 0, 0, 0, time.UTC),
	}, nil
}

func oneVote(ctx context.Context, gate *core.Engine) (ratelimit.Rule, error) {
	ballots := votes.New(gate, "poll", votes.Options{Find: findPoll})
	vote := ratelimit.Rule{
		Guard: ballots,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Form("choice"),
	}

	tally, err := ballots.Tally(ctx, "final") // map[blue:17 red:25]

	fmt.Println(tally)
	return vote, err
}

func inParts(gate *core.Engine, findPoll func(context.Context, string) (votes.Poll, error)) *parts.Guard {
	ballots := parts.New(gate, "poll", 30, votes.Options{Find: findPoll})

	return ballots
}

func stuffed(ctx context.Context, ballots *votes.Guard) error {
	found, err := ballots.Void(ctx, "final", votes.VoidOptions{
		Match:  func(e votes.Event) bool { return e.Origin == "198.51.100.7" },
		DryRun: true, // look first
	})
	fmt.Println("would void", found.Voided, found.Weights)

	return err
}

func openSale(ctx context.Context, gate *core.Engine) (*seckill.Guard, error) {
	sale := seckill.New(gate, "sale", seckill.Options{})
	opened, err := sale.Open(ctx, "tv-55", seckill.Sale{
		Stock:    100,
		PerBuyer: 1,
		Opens:    time.Now(),
		Closes:   time.Now().Add(2 * time.Hour),
		Hold:     5 * time.Minute,
	})

	fmt.Println(opened)
	return sale, err
}

func buyRule(sale *seckill.Guard) ratelimit.Rule {
	buy := ratelimit.Rule{
		Guard: sale,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("sku"),
		ID:    keyfuncs.IdempotencyKey(),
	}

	return buy
}

func payLater(saveOrder func(sku, id, buyer string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reservation, ok := ratelimit.Take(r.Context(), "sale") // held, and now the handler's to settle
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if reservation.Kept { // a repeat of an order that is paid: there is nothing to do again
			w.WriteHeader(http.StatusOK)
			return
		}
		a := reservation.Attempt
		if err := saveOrder(a.Resource, a.ID, a.Actor); err != nil {
			w.WriteHeader(http.StatusInternalServerError) // the hold ends by itself
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

func reopen(ctx context.Context, sale *seckill.Guard, item string, stock, paid int64) error {
	opened, err := sale.Open(ctx, item, seckill.Sale{Stock: stock - paid})
	if err == nil && !opened {
		err = fmt.Errorf("%s is on sale already", item)
	}
	return err
}

func sweeping(ctx context.Context, sale *seckill.Guard) error {
	status, err := sale.Status(ctx, "tv-55") // status.Left, Held, Sold, Stock
	if err != nil {
		return err
	}
	_, err = sale.Restock(ctx, "tv-55", "delivery-7", 20) // once per delivery, however often it is called
	fmt.Println(status.Left, err)

	return sale.SweepEvery(ctx, time.Second, func() []string { return []string{"tv-55"} })
}

func gifts(ctx context.Context, gate *core.Engine) (ratelimit.Rule, error) {
	packets := redpacket.New(gate, "packet", redpacket.Options{})
	created, err := packets.Create(ctx, "party", redpacket.Packet{
		Total: 10_000, Shares: 20, Expires: time.Now().Add(24 * time.Hour),
	})
	grab := ratelimit.Rule{
		Guard: packets,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("packet"),
	}

	fmt.Println(created)
	return grab, err
}

func giftsBack(ctx context.Context, packets *redpacket.Guard) error {
	rest, err := packets.Refund(ctx, "party") // after it has expired; the same amount each time
	if err != nil {
		return err
	}
	checked, err := packets.Verify(ctx, "party")

	fmt.Println(rest, checked)
	return err
}

func onceOnly(gate *core.Engine) ratelimit.Rule {
	once := ratelimit.Rule{
		Guard: idempotency.New(gate, "orders", idempotency.Options{}),
		Who:   keyfuncs.User("uid"),
		ID:    keyfuncs.IdempotencyKey(),
	}

	return once
}

func outcomes(ctx context.Context, once *idempotency.Guard, pay func() (string, error)) (string, error) {
	d, err := once.Check(ctx, core.Attempt{Actor: "ann", ID: "payment-7"})
	if err != nil {
		return "", err
	}
	if !d.Allowed {
		if outcome := core.OutcomeOf(d); outcome != nil {
			return string(outcome.Body), nil // of the first time
		}
		return "", fmt.Errorf("not now: %s", d.Reason)
	}
	receipt, err := pay()
	if err != nil { // settling does not stop when the caller leaves
		return "", errors.Join(err, once.Settle(ctx, d, core.Rollback)) // it may begin again
	}
	return receipt, once.Settle(ctx, d, core.CommitWith(&core.Outcome{Body: []byte(receipt)}))
}

func exporting(gate *core.Engine) ratelimit.Rule {
	exports := ratelimit.Rule{
		Guard: semaphore.New(gate, "exports", semaphore.Options{Max: 5, Wait: 2 * time.Second}),
		Who:   keyfuncs.User("uid"),
	}

	return exports
}

func waiting(gate *core.Engine, secret []byte) []ratelimit.Rule {
	front := ratelimit.PerIP(gate, limit.PerMinute(60))
	_ = front

	room := waitingroom.New(gate, "shop", waitingroom.Options{
		Capacity: 2000, Pass: 10 * time.Minute, Secrets: [][]byte{secret},
	})
	visitors := ratelimit.Rule{Guard: room, Who: keyfuncs.Visitor()}

	return []ratelimit.Rule{visitors}
}

func leaving(r *http.Request, room *waitingroom.Guard) {
	if d, ok := ratelimit.Decision(r.Context(), "shop"); ok {
		_ = room.Leave(r.Context(), d)
	}
}

func overWhenSoldOut(gate *core.Engine, sale *seckill.Guard, secret []byte) *waitingroom.Guard {
	soldOut := func(ctx context.Context) (string, error) {
		tv, err := sale.Status(ctx, "tv")
		if err != nil || tv.Left+tv.Held > 0 {
			return "", err
		}
		return "Sold out", nil
	}
	room := waitingroom.New(gate, "shop", waitingroom.Options{
		Capacity: 2000, Over: soldOut, Secrets: [][]byte{secret},
	})
	return room
}

var linePage = template.Must(template.New("").Parse(`<!DOCTYPE html><title>Wait</title>{{.Position}}`))

func ownLinePage(room *waitingroom.Guard) ratelimit.Rule {
	return ratelimit.Rule{
		Guard: room,
		Who:   keyfuncs.Visitor(),
		Answer: func(w http.ResponseWriter, r *http.Request, refusal *ratelimit.Refusal) {
			place, waits := waitingroom.PlaceOf(refusal.Decision)
			if !waits || r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), "text/html") {
				refusal.Reply(w, r) // the standard answer
				return
			}
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_ = linePage.Execute(w, place) // a html/template
		},
	}
}

// place returns the place of a visitor's number among those drawn, from 0 on; -1 if the seed is another one.
func place(commitment, seed string, number, drawn int) int {
	if fmt.Sprintf("%x", sha256.Sum256([]byte(seed))) != commitment {
		return -1
	}
	hash := func(n int) uint64 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s:%d", seed, n))
		return binary.BigEndian.Uint64(sum[:])
	}
	before := 0
	for n := range drawn {
		if hash(n) < hash(number) {
			before++
		}
	}
	return before
}

func TestThePageChecksTheDraw(t *testing.T) {
	const seed, drawn = "5eed", 1000
	for i, number := range waitingroom.Draw(seed, drawn) {
		if got := place(waitingroom.Commitment(seed), seed, number, drawn); got != i {
			t.Fatalf("number %d has the place %d, want %d", number, got, i)
		}
	}
	if got := place(waitingroom.Commitment("another"), seed, 1, drawn); got != -1 {
		t.Errorf("a false seed: %d", got)
	}
}

func waitingByHand(ctx context.Context, room *waitingroom.Guard, token string) error {
	d, err := room.Check(ctx, core.Attempt{Actor: "ann", Token: token})
	if err != nil {
		return err
	}
	if !d.Allowed {
		place, _ := waitingroom.PlaceOf(d)
		return fmt.Errorf("place %d, ask again in %v", place.Position, d.RetryAfter)
	}

	return nil
}

func permitsByHand(ctx context.Context, exports *semaphore.Guard, export func(context.Context) error) error {
	err := core.Do(ctx, exports, core.Attempt{Actor: "ann"}, func(ctx context.Context) error {
		return export(ctx) // ctx ends with semaphore.ErrLost when the permit is lost
	})
	return err
}

func locking(ctx context.Context, gate *core.Engine, write func(context.Context, int64) error) error {
	accounts := lock.New(gate, "account", lock.Options{})
	account := ratelimit.Rule{
		Guard: accounts,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("account"),
	}

	err := accounts.Do(ctx, "ann", "a7", func(ctx context.Context, fence int64) error {
		return write(ctx, fence) // UPDATE … WHERE id = 'a7' AND fence < $1
	})

	_ = account
	return err
}

func tasks(ctx context.Context, gate *core.Engine, cancelOrder func(context.Context, string) error) error {
	unpaid := delay.New(gate, "unpaid", delay.Options{})
	created, err := unpaid.Schedule(ctx, "order 7", time.Now().Add(30*time.Minute), []byte("7"))

	fmt.Println(created, err)

	stopped := delay.Work(ctx, unpaid, func(ctx context.Context, t delay.Task) error {
		return cancelOrder(ctx, string(t.Payload))
	}, delay.WorkOptions{Concurrency: 10})

	return stopped
}

func operateTasks(ctx context.Context, unpaid *delay.Queue) error {
	counts, err := unpaid.Counts(ctx) // pending, running, dead
	if err != nil {
		return err
	}
	dead, err := unpaid.Peek(ctx, delay.Dead, 10)
	for _, task := range dead {
		fmt.Println(task.ID, task.Reason)
	}

	fmt.Println(counts)
	return err
}

func reporting(gate *core.Engine, mux *http.ServeMux, report http.Handler, secret []byte) {
	requests := deferred.New(delay.New(gate, "deferred", delay.Options{}), deferred.Options{
		Who:     keyfuncs.User("uid"), // nobody else may read the answer
		Limit:   limit.NewSlidingWindow(gate, "stored", limit.PerHour(20)),
		Secrets: [][]byte{secret}, // 32 random bytes; seal what is stored
	})
	reports := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "reports", limit.PerMinute(1)),
		Who:   keyfuncs.User("uid"),
		Defer: requests, // 202 in place of 429
	}
	mux.Handle("POST /reports", ratelimit.HTTP(reports)(report))
	mux.Handle("GET /deferred/{id}", requests)
}
