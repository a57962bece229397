package control

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/schedule"
)

// stays is how long Redis keeps what is over or withdrawn: see set.lua. So a process that was away for less
// can tell that from a loss.
const stays = 30 * 24 * time.Hour

// record is a field of the root.
type record struct {
	Decision
	id   int64  // the greater, the later
	text string // as it stands in Redis
}

// merge takes over the present records of Redis. For each field the later record stays. It returns the
// records that Redis has lost: a field's record is only ever replaced by a later one. The caller holds mu.
func (d *Desk) merge(heard map[string]record, now int64) (lost map[string]record) {
	if d.server > 0 && now-d.server >= stays.Milliseconds() {
		clear(d.records) // they may be withdrawn and forgotten
	}
	lost = map[string]record{}
	for field, r := range d.records {
		ends := schedule.Milli(r.Until)
		switch old, found := heard[field]; {
		case found && old.id >= r.id:
		case ends > 0 && ends+stays.Milliseconds() <= now: // forgotten
		default:
			lost[field], heard[field] = r, r
		}
	}
	d.records, d.decided = heard, nil
	for _, field := range slices.Sorted(maps.Keys(heard)) {
		if r := heard[field]; r.Value != "" {
			d.decided = append(d.decided, r.Decision)
		}
		d.latest = max(d.latest, heard[field].id)
	}
	return lost
}

// putBack writes the records that Redis has lost. Later decisions there stay. The caller holds mu.
func (d *Desk) putBack(ctx context.Context, lost map[string]record) error {
	if len(lost) == 0 {
		d.lost = false
		return nil
	}
	if !d.lost {
		d.lost = true
		d.Logger().Warn("gatehouse: Redis has lost what operators have decided: this process puts it back",
			"desk", d.Name(), "changes", len(lost))
	}
	d.known = "-" // all is read again, and so is what others put back
	args := []any{d.channel, RestoredBy, "Redis had lost it", strconv.FormatInt(d.latest, 10),
		d.Engine().ScriptNow(time.Millisecond), rand.Text()}
	for _, field := range slices.Sorted(maps.Keys(lost)) {
		args = append(args, field, lost[field].text)
	}
	_, err := d.Engine().RunWithin(ctx, min(readMost, d.Engine().SettleTimeout()), restoreScript,
		[]string{d.root, d.audit}, args...)
	if err != nil {
		return fmt.Errorf("put back what Redis has lost: %w", err)
	}
	d.lost = false
	return nil
}

// lastID returns the greatest ID of a change that the process knows, as scripts take it.
func (d *Desk) lastID() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strconv.FormatInt(d.latest, 10)
}
