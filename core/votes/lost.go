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
// eviction, by a failover or because somebody deleted a key. The error's text names what is lost:
//
//   - the tally, or a choice of it: [Guard.Check] and [Guard.Tally] return the error until [Guard.Repair] has
//     counted the records. Rollbacks, retractions and voids go on, by the records.
//   - the audit stream: Check, [Guard.Audit] and [Guard.Void] return the error until Repair lets the stream
//     begin anew, without the events that were lost.
//   - the records or the book, which says what the records mean: Check and [Guard.Retract] return the error,
//     because who has voted is unknown. Without the book, Tally and Void return it too, and rollbacks fail.
//     Repair cannot restore either.
//   - a part of a poll with a Spread: Check returns the error to the voters of that part, or to all when it
//     is the first part; Tally and [Guard.Verify] return it. Repair cannot restore the part.
//
// The answers to operation IDs expire one by one, so nothing notices that one is lost. The voter's record
// still says that they have voted.
var ErrLost = kit.NewError("votes: Redis has lost a part of the poll", core.ErrNotNow)

// lost wraps a script's error that says what is lost in an ErrLost. It returns other errors unchanged.
func lost(err error) error {
	if err != nil && strings.Contains(err.Error(), "GATEHOUSE lost: ") {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// partTally is the tally of one part of a poll, and what the part has lost.
type partTally struct {
	sums        map[string]int64 // by the names that Redis keeps
	lost        string           // "tally", "book" or nothing
	auditIsLost bool
}

// missing returns the names of what is lost.
func (p partTally) missing() (names []string) {
	if p.lost != "" {
		names = append(names, p.lost)
	}
	if p.auditIsLost {
		names = append(names, "audit")
	}
	return names
}

// err returns an ErrLost when the tally is not whole.
func (p partTally) err(poll string) error {
	if p.lost == "" {
		return nil
	}
	return fmt.Errorf("%w: poll %.100q: the %s, or a part of it: see Verify and Repair", ErrLost, poll, p.lost)
}

var errFirstPart = fmt.Errorf("%w: its first part", ErrLost)

// errPart is the error of a poll that has lost all keys of another part.
func errPart(part int) error { return fmt.Errorf("%w: its part %d", ErrLost, part) }

var errAuditLost = errors.New("its audit stream: Repair lets it begin anew")

// checkAudit returns an ErrLost when the audit stream of a part has begun and is lost.
func (g *Guard) checkAudit(ctx context.Context, poll string, part int) error {
	tally, err := g.partTally(ctx, poll, part)
	if err == nil && tally.auditIsLost {
		err = fmt.Errorf("%w: poll %.100q: %w", ErrLost, poll, errAuditLost)
	}
	return err
}
