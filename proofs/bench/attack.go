package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	attacks "github.com/gatehouse-go/gatehouse/internal/attack"
)

// attackUnits is the limit under attack, per window.
const attackUnits = 50

// attack finds the most units that each limiter of the group admits in any window of the length. It attacks
// all at once, with and without units taken in the window before. It skips limiters whose limit differs
// from that of the others.
func (g group) attack(ctx context.Context, window time.Duration) (names []string, most []int, err error) {
	subjects := g.subjects(attackUnits, window)
	admitted, errs := make([]int, 2*len(subjects)), make([]error, 2*len(subjects))
	var running sync.WaitGroup
	for i, s := range subjects {
		if s.max != attackUnits {
			continue
		}
		for primed := range 2 {
			running.Go(func() {
				admitted[2*i+primed], errs[2*i+primed] = attack(ctx, s, window, primed == 1)
			})
		}
	}
	running.Wait()
	for i, s := range subjects {
		if s.max == attackUnits {
			names, most = append(names, s.name), append(most, max(admitted[2*i], admitted[2*i+1]))
		}
	}
	return names, most, errors.Join(errs...)
}

// attack takes a unit, bursts at the window's end and polls on for two windows.
func attack(ctx context.Context, s subject, window time.Duration, primed bool) (int, error) {
	key := fmt.Sprintf("attacked-%v", primed)
	poll := time.NewTicker(window / 400)
	defer poll.Stop()
	var admitted []attacks.Admission
	attempt := func() (bool, error) {
		before := time.Now()
		allowed, err := s.allow(ctx, key)
		if allowed && err == nil {
			admitted = append(admitted, attacks.Admission{After: before, Before: time.Now()})
		}
		return allowed, err
	}
	// attempts polls from one moment until another; a burst is what it does while units are left.
	attempts := func(from, until time.Time) error {
		<-time.After(time.Until(from))
		for time.Now().Before(until) {
			allowed, err := attempt()
			if err != nil {
				return err
			}
			if !allowed {
				<-poll.C
			}
		}
		return nil
	}

	begun := time.Now()
	if primed {
		if err := attempts(begun, begun.Add(window/20)); err != nil {
			return 0, err
		}
		<-time.After(time.Until(begun.Add(window * 21 / 20)))
		begun = time.Now()
	}
	if _, err := attempt(); err != nil { // opens a fixed window
		return 0, err
	}
	err := attempts(begun.Add(window*9/10), begun.Add(window*5/2))
	return attacks.MostIn(window, admitted), err
}
