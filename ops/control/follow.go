package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
)

const (
	// renews is how often it reads all, which renews the TTL.
	renews = 24 * time.Hour
	// readMost is how long a read may take. Decisions end that much later at most.
	readMost = time.Second
)

// follow obeys what is decided until ctx ends. It looks that often, since a message may be lost. The error is
// that of the first read.
func (d *Desk) follow(ctx context.Context, looks time.Duration, err error) {
	go d.hear(ctx)
	failed, whole := false, time.Now()
	for {
		switch {
		case ctx.Err() != nil || failed == (err != nil):
		case err != nil:
			d.Logger().Warn("gatehouse: cannot read what operators have decided: what was known stays",
				"desk", d.Name(), "err", err)
		default:
			d.Logger().Info("gatehouse: what operators have decided is read again", "desk", d.Name())
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-d.kick:
		case <-time.After(d.pause(looks)):
		}
		all := time.Since(whole) > renews
		if err = d.read(ctx, all); err == nil {
			d.tellUnbound()
			if all {
				whole = time.Now()
			}
		}
	}
}

// tellUnbound says once of each decision that it is about a name that this process has not bound, such as one
// with a slip in it. A process that has bound nothing of the kind says nothing.
func (d *Desk) tellUnbound() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.decided {
		if names := d.others(x); names != nil && !d.logged[x] {
			d.logged[x] = true
			d.Logger().Warn("gatehouse: a decision is about what this process has not bound: it has no effect here",
				"desk", d.Name(), "kind", x.Kind, "name", fmt.Sprintf("%.100q", x.Name), "bound", names)
		}
	}
}

// others returns the names of a decision's kind that this process has bound, if the decision's name is not
// among them. The caller holds mu.
func (d *Desk) others(x Decision) (names []string) {
	for t := range d.bound {
		switch {
		case t == thing{x.Kind, x.Name}:
			return nil
		case t.kind == x.Kind:
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	return names
}

// pause returns how long nothing has to be done.
func (d *Desk) pause(looks time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next == 0 {
		return looks
	}
	return min(looks, max(script.DurationOf(d.next-d.now(), time.Millisecond), time.Millisecond))
}

// subscriber is a client that can listen: *redis.Client, *redis.ClusterClient, *redis.Ring.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// hear listens to the channel of changes. It is apart from follow, since it takes as long as dialing.
func (d *Desk) hear(ctx context.Context) {
	client, ok := d.Engine().Client().(subscriber)
	if !ok {
		return
	}
	heard := client.Subscribe(ctx, d.channel)
	context.AfterFunc(ctx, func() { _ = heard.Close() }) // which ends the loop
	for range heard.Channel() {
		select {
		case d.kick <- struct{}{}:
		default: // it is awake already
		}
	}
}

// read reads what is decided, if it has changed, and obeys.
func (d *Desk) read(ctx context.Context, whole bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed, err := d.ask(ctx, whole)
	if changed || d.next > 0 && d.next <= d.now() {
		d.apply()
	}
	return err
}

// ask reads what is decided, and reports whether it has changed. The caller holds mu.
func (d *Desk) ask(ctx context.Context, whole bool) (changed bool, err error) {
	known := d.known
	if whole {
		known = "-" // which is no version
	}
	value, err := d.Engine().RunWithin(ctx, min(readMost, d.Engine().SettleTimeout()), readScript,
		[]string{d.root, d.audit}, known, d.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return false, err
	}
	if now, same := value.(int64); same {
		d.server, d.at = now, d.Engine().Now()
		return false, nil
	}
	r := script.ReadReply(value, 1, math.MaxInt)
	now, last, heard := r.Number(), "", map[string]record{}
	for r.More() {
		field, text := r.Text(), ""
		if r.More() {
			text = r.Text()
		}
		if field == "@" {
			last = text
		} else if x, id := decisionOf(field, text); x.Kind != "" {
			heard[field] = record{x, id, text}
		} else {
			d.malformed(Decision{Name: field, Value: text}, errors.New("this is no decision"))
		}
	}
	if r.Err != nil {
		return false, r.Err
	}
	lost := d.merge(heard, now)
	d.server, d.at, d.known = now, d.Engine().Now(), last
	greatest, _, _ := strings.Cut(last, " ")
	if id, err := strconv.ParseInt(greatest, 10, 64); err == nil {
		d.latest = max(d.latest, id)
	}
	return true, d.putBack(ctx, lost)
}

// apply has all things obey what is in force now. The caller holds mu.
func (d *Desk) apply() {
	now, inForce := d.now(), map[thing][]Decision{}
	d.next = 0
	for _, x := range d.decided {
		what, ends := thing{x.Kind, x.Name}, schedule.Milli(x.Until)
		if _, bound := d.bound[what]; !bound || ends > 0 && ends <= now {
			continue
		}
		if err := d.accepts(x); err != nil {
			d.malformed(x, err)
			continue
		}
		if ends > 0 && (d.next == 0 || ends < d.next) {
			d.next = ends
		}
		inForce[what] = append(inForce[what], x)
	}
	for what, b := range d.bound {
		if all := inForce[what]; !slices.Equal(all, b.obeys) {
			b.obeys = all
			b.obey(all)
		}
	}
}
