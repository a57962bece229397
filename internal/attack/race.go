package attack

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
)

// Race is what a race for a stock has found.
type Race struct {
	// Stock is how many units there were to sell; 0 means that it is not known.
	Stock int64 `json:"stock"`
	// Sold is the number of answers 2xx that are no replays.
	Sold int64 `json:"sold"`
	// Replayed is the number of answers 2xx that say that they repeat an earlier one (Idempotent-Replayed).
	Replayed int64 `json:"replayed"`
}

// Holds reports whether no more was sold than there was.
func (r Race) Holds() bool { return r.Stock == 0 || r.Sold <= r.Stock }

// Race sends all requests of the attack at once, as far as its concurrency allows.
func (a *Attacker) Race(ctx context.Context, stock int64) (Race, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Duration)
	defer cancel()
	var sold, replayed atomic.Int64
	err := a.each(ctx, func(ctx context.Context) error {
		for {
			answer, err := a.send(ctx, nil)
			switch {
			case errors.Is(err, ErrNoRequestsLeft):
				return nil
			case err != nil && !a.goesOn(ctx, err):
				return err
			case answer.Status < http.StatusOK || answer.Status >= http.StatusMultipleChoices:
			case answer.Header.Get("Idempotent-Replayed") != "":
				replayed.Add(1)
			default:
				sold.Add(1)
			}
		}
	})
	return Race{Stock: stock, Sold: sold.Load(), Replayed: replayed.Load()}, err
}
