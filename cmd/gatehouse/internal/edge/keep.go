package edge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/connect"
)

// keeper keeps a file as the bans are.
type keeper struct {
	*flags
	e        *cli.Env
	version  int       // of the bans in the file
	next     time.Time // when the next ban ends; zero if none does
	identity *string   // of the page in the file; nil: none is written
	told     page      // whose bans that were left out were told
	trouble  string    // the mistake with the file that was told
	away     bool      // whether it was told that Redis is away
	reader   reader
}

// keep keeps the file until the context ends.
func (f *flags) keep(ctx context.Context, e *cli.Env, m *mirror) error {
	following, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { m.follow(following) })
	defer all.Wait()
	defer stop()
	k := keeper{flags: f, e: e, reader: startReader(e, f.exec, min(f.every, execApart))}
	defer k.reader.end()
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for begun := false; ; {
		select {
		case <-ctx.Done():
			if f.clearsAtEnd {
				return k.write(f.form.page(nil, f.most, time.Now()))
			}
			return nil
		case <-tick.C:
		}
		s := m.state()
		if !begun && s.err != nil {
			return fmt.Errorf("the Redis at %s does not say who is banned: %w%s", f.Address, s.err, remedy(s.err))
		}
		if begun = begun || s.complete; begun { // before, the file of an earlier run knows more
			k.report(s)
			k.update(m)
		}
	}
}

// remedy says what to do when Redis refuses what -follow needs.
func remedy(err error) string {
	untracked := (*connect.UntrackedError)(nil)
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		return " (docs/running-on.md has the ACL lines that allow it)"
	case errors.As(err, &untracked):
		return " (run the command without -follow from time to time: that needs no CLIENT TRACKING)"
	}
	return ""
}

// report tells when Redis is away, and when it is back.
func (k *keeper) report(s snapshot) {
	switch {
	case s.err != nil && !k.away:
		k.away = true
		k.e.Tell("gatehouse bans: the Redis at %s is away: %v%s: the bans known now stay until they end\n",
			k.Address, s.err, remedy(s.err))
	case s.complete && k.away:
		k.away = false
		k.e.Tell("gatehouse bans: the Redis at %s is back\n", k.Address)
	}
}

// update writes the file if that changes it.
func (k *keeper) update(m *mirror) {
	now := time.Now()
	if k.reader.isDue(now) {
		k.identity = nil // so that the file is written: nft reads in it how long bans last from now on
	}
	ended := !k.next.IsZero() && !now.Before(k.next)
	if k.identity != nil && !ended && m.state().version == k.version {
		return
	}
	s := m.current(now)
	p := k.form.page(s.all, k.most, now)
	if k.identity == nil || *k.identity != p.identity {
		if err := k.write(p); err != nil {
			if k.trouble != err.Error() {
				k.trouble = err.Error()
				k.e.Tell("gatehouse bans: %s: it is tried again\n", k.trouble)
			}
			return
		}
	}
	k.trouble, k.version, k.next = "", s.version, time.Time{}
	if n := len(s.all); n > 0 {
		k.next = s.all[n-1].ends
		for _, b := range s.all {
			if b.ends.Before(k.next) {
				k.next = b.ends
			}
		}
	}
	if p.beyond != k.told.beyond || p.unfit != k.told.unfit {
		k.told = page{beyond: p.beyond, unfit: p.unfit}
		k.tellLeftOut(k.e, p)
	}
}

func (k *keeper) write(p page) error {
	if err := replace(k.out, p.text); err != nil {
		return err
	}
	k.identity = &p.identity
	k.reader.changed()
	return nil
}

const (
	execLasts = time.Minute      // how long the command of -exec may take
	execAgain = time.Second      // when it runs again after a failure; each further failure doubles that
	execRests = time.Minute      // ... up to this
	execApart = 10 * time.Second // how far apart its runs begin, at most; else it is -every
)

// reader makes the proxy read the file: it runs a command after changes, one at a time.
type reader struct {
	due     chan struct{} // has a place for one change
	running *sync.WaitGroup
	again   *atomic.Pointer[time.Time] // when to run a command that has failed; nil: it has not
}

// startReader starts a reader that runs a command, or nothing if there is none. Between the beginnings of two
// runs a time passes, also before the last one: HAProxy 2.6 forgets a signal that arrives while it reloads.
func startReader(e *cli.Env, command string, apart time.Duration) reader {
	r := reader{make(chan struct{}, 1), new(sync.WaitGroup), new(atomic.Pointer[time.Time])}
	r.running.Go(func() {
		told, pause, begun := "", execAgain, time.Time{}
		for range r.due {
			if command == "" {
				continue
			}
			wait(context.Background(), apart-time.Since(begun))
			begun = time.Now()
			trouble := shell(command, execLasts)
			if trouble == "" {
				if told != "" {
					e.Tell("gatehouse bans: -exec: it works again\n")
				}
				told, pause = "", execAgain
				r.again.Store(nil)
				continue
			}
			if told != trouble {
				told = trouble
				e.Tell("gatehouse bans: -exec: %s: it is tried again\n", trouble)
			}
			at := time.Now().Add(pause)
			r.again.Store(&at)
			pause = min(2*pause, execRests)
		}
	})
	return r
}

// changed says that the file has changed.
func (r reader) changed() {
	r.again.Store(nil)
	select {
	case r.due <- struct{}{}:
	default: // the command has yet to run for an earlier change
	}
}

// isDue reports whether the command has failed and should run again.
func (r reader) isDue(now time.Time) bool {
	at := r.again.Load()
	return at != nil && now.After(*at)
}

// end waits until the command has run for the last change.
func (r reader) end() {
	close(r.due)
	r.running.Wait()
}

// shell runs a command, and returns what went wrong. It outlives the signal that ends the follower, so that
// the proxy gets the last change.
func shell(command string, lasts time.Duration) (trouble string) {
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	var output bytes.Buffer
	sh := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	sh.Stdout, sh.Stderr, sh.WaitDelay = &output, &output, time.Second
	grouped(sh)
	err := sh.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // a daemon that it has started has the output
		return ""
	case ctx.Err() != nil:
		err = fmt.Errorf("killed after %v", lasts)
	}
	said := strings.TrimSpace(output.String())
	return fmt.Sprintf("%v: %s", err, cmp.Or(said[max(0, len(said)-1024):], "it wrote nothing"))
}
