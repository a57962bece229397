package votes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// ErrLost is wrapped by the errors of a poll that has lost a part of its data in Redis, for example by
// eviction, by a failover or because somebody deleted a key. The error's text names the lost part:
//
//   - the tally, or a choice of it: [Guard.Check] and [Guard.Tally] return the error until [Guard.Repair] has
//     counted the records. Rollbacks, retractions and voids go on, by the records.
//   - the audit stream: Check, [Guard.Audit] and [Guard.Void] return the error until Repair lets the stream
//     begin anew, without the events that were lost.
//   - the records or the book, which says what the records mean: Check and [Guard.Retract] return the error,
//     because who has voted is unknown. Without the book, Tally and Void return it too, and rollbacks fail.
//     Repair cannot restore either.
//
// The answers to operation IDs expire one by one, so nothing notices a lost answer. The voter's record
// still says that they have voted.
var ErrLost = kit.NewError("votes: Redis has lost a part of the poll", core.ErrNotNow)

// lost wraps a script's error that says what is lost in an ErrLost. It returns other errors unchanged.
func lost(err error) error {
	if err != nil && strings.Contains(err.Error(), "GATEHOUSE lost: ") {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// keptTally is the tally of a poll as Redis keeps it, and the lost parts of the poll.
type keptTally struct {
	sums        map[string]int64 // by the names that Redis keeps
	lost        string           // "tally", "book" or nothing
	auditIsLost bool
}

// missing returns the names of the lost parts.
func (t keptTally) missing() (names []string) {
	if t.lost != "" {
		names = append(names, t.lost)
	}
	if t.auditIsLost {
		names = append(names, "audit")
	}
	return names
}

// err returns an ErrLost when the tally is not whole.
func (t keptTally) err(poll string) error {
	if t.lost == "" {
		return nil
	}
	return fmt.Errorf("%w: poll %.100q: the %s, or a part of it: see Verify and Repair", ErrLost, poll, t.lost)
}

var errAuditLost = errors.New("its audit stream: Repair lets it begin anew")

// checkAudit returns an ErrLost when the audit stream of a poll has begun and is lost.
func (g *Guard) checkAudit(ctx context.Context, poll string) error {
	tally, err := g.keptTally(ctx, poll)
	if err == nil && tally.auditIsLost {
		err = fmt.Errorf("%w: poll %.100q: %w", ErrLost, poll, errAuditLost)
	}
	return err
}
