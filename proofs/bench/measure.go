package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// config says how much to measure.
type config struct {
	full   bool          // also what needs programs that may not be there, and seconds
	units  int           // units of a key per window, which is a minute
	weighs []int         // units of the limits whose keys are weighed
	crowd  int           // claimants that are weighed together
	rounds int           // turns of each subject under each load
	turn   time.Duration // length of a turn
	page   time.Duration // length of a turn of a page
	attack time.Duration // the window of the limits under attack
	seed   uint64        // seed of the order in a round
}

// load is how a subject is called: by this many callers at once, each of which waits for one answer before
// its next call.
type load struct {
	callers int
	refused bool // all callers use one key that has no units left; otherwise each uses keys that have
}

var (
	allowedLoads = []load{{1, false}, {16, false}, {128, false}}
	allLoads     = slices.Concat(allowedLoads, []load{{1, true}, {16, true}, {128, true}})
)

// runner is a subject under measurement.
type runner struct {
	subject
	measured map[load]*series
	made     atomic.Int64 // number of keys
}

// series holds the measurements of one subject under one load: mostly a value per round.
type series struct {
	keys    []keySource // one for each caller
	perCall []float64   // nanoseconds of the turn per call of all callers
	p99     []float64   // microseconds that a caller waited for its answer, p99
	cpu     []float64   // microseconds of the server's CPU per call
	own     []float64   // microseconds of this process's CPU per call, callers and client together
	calls   int
	meant   int // calls that were answered as the load intends
}

// measure runs all loads on the subjects of the group. In each round each subject has its turn under each
// load, in random order, so that disturbances of the machine affect all alike. A warm-up round before the
// first does not count.
func (g group) measure(ctx context.Context, c config) ([]*runner, error) {
	var runners []*runner
	units := c.units
	if g.claims {
		units = 1
	}
	for _, s := range g.subjects(c.units, time.Minute) {
		runners = append(runners, &runner{subject: s})
	}
	order := rand.New(rand.NewPCG(c.seed, 0))
	for round := range c.rounds + 1 {
		if round <= 1 {
			for _, r := range runners {
				r.start(g.loads, units)
			}
		}
		for _, l := range g.loads {
			for _, i := range order.Perm(len(runners)) {
				if err := runners[i].turn(ctx, l, c.turn, g.redis); err != nil {
					return nil, fmt.Errorf("%s, %s, %d callers: %w", g.name, runners[i].name, l.callers, err)
				}
			}
		}
	}
	return runners, nil
}

// start discards the measurements, and gives the callers keys of this many units.
func (r *runner) start(loads []load, units int) {
	r.measured = map[load]*series{}
	for _, l := range loads {
		s := &series{keys: make([]keySource, l.callers)}
		for i := range s.keys {
			s.keys[i] = keySource{made: &r.made, keys: make([]string, activeKeys/l.callers), uses: max(units*9/10, 1)}
		}
		r.measured[l] = s
	}
}

// turn lets the callers call for the length of a turn.
func (r *runner) turn(ctx context.Context, l load, turn time.Duration, rdb *redis.Client) error {
	if l.refused && r.max > 0 {
		for { // units came back since the last turn
			if allowed, err := r.allow(ctx, hotKey); err != nil {
				return err
			} else if !allowed {
				break
			}
		}
	}
	s, callers := r.measured[l], make([]caller, l.callers)
	var stop atomic.Bool
	var running sync.WaitGroup
	before, err := costs(ctx, rdb)
	if err != nil {
		return err
	}
	begun := time.Now()
	timer := time.AfterFunc(turn, func() { stop.Store(true) })
	defer timer.Stop()
	for i := range callers {
		running.Go(func() { callers[i] = r.ask(ctx, l, &s.keys[i], &stop) })
	}
	running.Wait()
	elapsed := time.Since(begun)
	after, err := costs(ctx, rdb)

	calls, took := 0, []time.Duration(nil)
	for _, c := range callers {
		err = errors.Join(err, c.err)
		calls += c.calls
		s.meant += c.meant
		took = append(took, c.took...)
	}
	s.calls += calls
	s.perCall = append(s.perCall, float64(elapsed.Nanoseconds())/float64(calls))
	s.p99 = append(s.p99, float64(quantile(took, 0.99).Nanoseconds())/1e3)
	s.cpu = append(s.cpu, (after.cpu-before.cpu)/float64(calls))
	s.own = append(s.own, (after.own-before.own)/float64(calls))
	return err
}

const hotKey = "hot"

// caller is what one of the calling goroutines measured.
type caller struct {
	calls, meant int
	took         []time.Duration
	err          error
}

// ask calls until it is told to stop, at least once.
func (r *runner) ask(ctx context.Context, l load, keys *keySource, stop *atomic.Bool) (c caller) {
	// one call in this many is timed by itself; coprime to the number of keys, so that no key is special
	const sampled = 17
	want := !l.refused || r.max == 0
	for c.calls == 0 || !stop.Load() {
		key := hotKey
		if !l.refused {
			key = keys.next()
		}
		var begun time.Time
		if c.calls%sampled == 0 {
			begun = time.Now()
		}
		allowed, err := r.allow(ctx, key)
		if c.calls%sampled == 0 {
			c.took = append(c.took, time.Since(begun))
		}
		if err != nil {
			c.err = err
			return c
		}
		c.calls++
		if allowed == want {
			c.meant++
		}
	}
	return c
}

// activeKeys is how many keys are in use at once, divided among the callers.
const activeKeys = 128

// keySource gives one caller its keys in turn, and new ones before the units of these run out. So most
// calls meet a key that is in use, and none meets one that is used up.
type keySource struct {
	made  *atomic.Int64 // counts the keys of all sources, to name them
	keys  []string
	uses  int // uses per key
	calls int
}

func (k *keySource) next() string {
	i := k.calls % len(k.keys)
	if k.calls/len(k.keys)%k.uses == 0 {
		k.keys[i] = "key-" + strconv.FormatInt(k.made.Add(1), 10)
	}
	k.calls++
	return k.keys[i]
}

// cost is the CPU time that the server and this process have used since their start, in microseconds.
type cost struct{ cpu, own float64 }

// costs asks the system, and Redis if there is one.
func costs(ctx context.Context, rdb *redis.Client) (cost, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return cost{}, fmt.Errorf("getrusage: %w", err)
	}
	c := cost{own: float64(used.Utime.Nano()+used.Stime.Nano()) / 1e3}
	if rdb == nil {
		return c, nil
	}
	info, err := rdb.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return cost{}, err
	}
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			return cost{}, fmt.Errorf("INFO cpu: %s: %w", field, err)
		}
		c.cpu += seconds * 1e6
	}
	return c, nil
}

// quantile returns the value that a share of the values do not exceed, and zero without values.
func quantile[T cmp.Ordered](values []T, share float64) T {
	if len(values) == 0 {
		var none T
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(share*float64(len(sorted)-1))]
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// ratio is the median over the rounds of the value divided by the floor's value in the same round.
func ratio(values, floor []float64) float64 {
	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / floor[i]
	}
	return median(ratios)
}
