// Package market sells items for money: the buyer pays, the seller is paid, and the item changes hands, all
// or nothing. It is a recipe of the cookbook: see README.md in the folder above.
package market

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

const (
	// MaxMoney is how much money a market has at most, in minor units such as cents. It is 2^53-1, so that
	// scripts compare any two amounts exactly.
	MaxMoney = core.MaxAmount
	// Replay is how long the answer to an operation is kept. Within this time, a retry with the same ID changes
	// nothing and gets the same answer.
	Replay = 24 * time.Hour
)

var (
	//go:embed deposit.lua
	depositSource string
	//go:embed offer.lua
	offerSource string
	//go:embed buy.lua
	buySource string

	depositScript = script.New("market_deposit", depositSource, script.Idempotent)
	offerScript   = script.New("market_offer", offerSource, script.Idempotent)
	buyScript     = script.New("market_buy", buySource, script.Idempotent)
)

var (
	// ErrNoItem says that the market does not know the item.
	ErrNoItem = kit.NewError("market: no such item", core.ErrNotFound)
	// ErrConflict says that the user's operation ID belongs to another operation.
	ErrConflict = kit.NewError("market: the operation ID belongs to another operation", core.ErrNotNow)
	// ErrOwn says that the buyer has the item already.
	ErrOwn = kit.NewError("market: the buyer has the item", core.ErrNotNow)
	// ErrNotOffered says that the item is not on offer, because nobody offered it or somebody has bought it.
	ErrNotOffered = kit.NewError("market: the item is not on offer", core.ErrNotNow)
	// ErrNotOwner says that the item belongs to somebody else.
	ErrNotOwner = kit.NewError("market: the item belongs to somebody else", core.ErrNotNow)
	// ErrFull says that the market has as many items as it may have.
	ErrFull = kit.NewError("market: the market is full", core.ErrNotNow)
	// ErrTooMuch says that the market would have more than MaxMoney.
	ErrTooMuch = kit.NewError("market: more money than a market may have", core.ErrNotNow)

	refusals = map[string]error{"unknown": ErrNoItem, "conflict": ErrConflict, "own": ErrOwn,
		"not_offered": ErrNotOffered, "not_owner": ErrNotOwner, "full": ErrFull, "too_much": ErrTooMuch}
)

// PriceError says that the price of the item is not the one that the buyer has seen.
type PriceError struct{ Price int64 }

func (e *PriceError) Error() string { return fmt.Sprintf("market: the price is %d now", e.Price) }

// FundsError says that the buyer has less money than the price.
type FundsError struct{ Balance int64 }

func (e *FundsError) Error() string { return fmt.Sprintf("market: the buyer has %d", e.Balance) }

// Markets has markets, each with the accounts and the items of its users in one slot. Nothing moves between
// two markets. It is safe for concurrent use.
type Markets struct {
	gate *core.Engine
	most int
	keep time.Duration
}

// New returns markets of at most the given number of items. A market is kept as a whole for the duration keep
// after its latest change, so that no money outlives the items that it has paid for. New panics if the engine
// has no Redis, if most is less than 1, or if keep is not from 1 s to kit.MaxTTL.
func New(gate *core.Engine, most int, keep time.Duration) *Markets {
	kit.NeedRedis(gate, "market", "markets")
	if most < 1 || keep < time.Second || keep > kit.MaxTTL {
		panic(fmt.Sprintf("market: %d items for %v: give 1 or more, for 1 s to %v", most, keep, kit.MaxTTL))
	}
	return &Markets{gate, most, keep}
}

// All keys of a market have the market as their tag: a purchase needs both accounts and the item in one slot.
func (m *Markets) funds(market string) string { return m.gate.Key("market", market, "funds") }
func (m *Markets) items(market string) string { return m.gate.Key("market", market, "items") }

// Deposit pays money into a user's account and returns the balance. Call it when your payment provider has
// told you of a payment, with the payment's ID as the operation ID. The error is ErrConflict, ErrTooMuch,
// wraps core.ErrInvalid, or comes from Redis; then call again with the same ID.
func (m *Markets) Deposit(
	ctx context.Context, market, user, id string, amount int64,
) (balance int64, err error) {
	if amount < 1 || amount > MaxMoney {
		return 0, fmt.Errorf("market: %w: amount %d: give 1 to 2^53-1", core.ErrInvalid, amount)
	}
	return m.run(ctx, depositScript, market, user, id, script.Encode(user), amount, int64(MaxMoney))
}

// Offer puts an item on offer for a price, changes its price, or with price 0 takes it off offer. An item
// that the market does not know belongs to the seller. The error is ErrConflict, ErrNotOwner, ErrFull, wraps
// core.ErrInvalid, or comes from Redis; then call again with the same ID.
func (m *Markets) Offer(ctx context.Context, market, seller, id, item string, price int64) error {
	if item == "" || price < 0 || price > MaxMoney {
		return fmt.Errorf("market: %w: item %.40q for %d: give 0 to 2^53-1", core.ErrInvalid, item, price)
	}
	_, err := m.run(ctx, offerScript, market, seller, id,
		script.Encode(seller), script.Encode(item), price, m.most)
	return err
}

// Buy buys an item for the price that the buyer has seen, and returns the buyer's balance after that. The
// error is ErrNoItem, ErrConflict, ErrOwn, ErrNotOffered, a *PriceError, a *FundsError, wraps
// core.ErrInvalid, or comes from Redis; then call again with the same ID.
func (m *Markets) Buy(
	ctx context.Context, market, buyer, id, item string, price int64,
) (balance int64, err error) {
	if item == "" || price < 1 || price > MaxMoney {
		return 0, fmt.Errorf("market: %w: item %.40q for %d: give 1 to 2^53-1", core.ErrInvalid, item, price)
	}
	return m.run(ctx, buyScript, market, buyer, id, script.Encode(buyer), script.Encode(item), price)
}

// run runs a script for a user's operation and turns its reason into an error.
func (m *Markets) run(
	ctx context.Context, s *script.Script, market, user, id string, args ...any,
) (number int64, err error) {
	if market == "" || user == "" || id == "" {
		return 0, fmt.Errorf("market: %w: need a market, a user and an operation ID", core.ErrInvalid)
	}
	keys := []string{m.funds(market), m.items(market), m.gate.Key("market", market, "op", user, id)}
	value, err := m.gate.Run(ctx, s, keys, append(args, m.keep.Milliseconds(), Replay.Milliseconds())...)
	if err != nil {
		return 0, err
	}
	r := script.ReadReply(value, 2, 2)
	reason, number := r.Text(), r.Number()
	switch {
	case r.Err != nil:
		return 0, r.Err
	case reason == "ok", reason == "replayed":
		return number, nil
	case reason == "price":
		return 0, &PriceError{number}
	case reason == "funds":
		return 0, &FundsError{number}
	}
	if err := refusals[reason]; err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("market: unexpected reason %.40q", reason)
}

// Item returns who has an item, and its price, which is 0 for an item that is not on offer. A name of more
// than script.MaxPlain encoded bytes is returned as its hash. The error is ErrNoItem or comes from Redis.
func (m *Markets) Item(ctx context.Context, market, item string) (owner string, price int64, err error) {
	if market == "" || item == "" {
		return "", 0, ErrNoItem
	}
	record, err := script.Query(ctx, m.gate.Runner,
		redis.NewStringCmd(ctx, "hget", m.items(market), script.Encode(item)))
	if errors.Is(err, redis.Nil) {
		return "", 0, ErrNoItem
	} else if err != nil {
		return "", 0, err
	}
	owner, asked, _ := strings.Cut(record, " ")
	price, err = strconv.ParseInt(asked, 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("market: record of an item: %w", err)
	}
	return script.Decode(owner), price, nil
}

// Balance returns how much money a user has. It is 0 for a user whom the market does not know.
func (m *Markets) Balance(ctx context.Context, market, user string) (int64, error) {
	if market == "" || user == "" {
		return 0, nil
	}
	balance, err := script.Query(ctx, m.gate.Runner,
		redis.NewStringCmd(ctx, "hget", m.funds(market), script.Encode(user)))
	if errors.Is(err, redis.Nil) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	return strconv.ParseInt(balance, 10, 64)
}
