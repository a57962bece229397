package rulefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/limit/lease"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/seckill/buckets"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/core/votes/parts"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Guard is a guard of a file.
type Guard struct {
	Kind string
	// Text is the guard as the file has it, without positions. Guards of equal text are the same.
	Text string
	// Make makes the guard. The source is nil unless Limits is set.
	Make func(e *core.Engine, name string, source *LimitSource) core.Guard
	// Limits is the limits of a rate limit, nil for other guards.
	Limits *LimitTable

	sample core.Guard // the guard on an engine that is never used
}

// LimitTable is the limits of a rate limit: by tier, or the same for all.
type LimitTable struct {
	by     key // without a function: the same for all
	tiers  map[string][]limit.Limit
	others []limit.Limit // of all actors whose tier is not in the table; none: unlimited
}

// LimitSource is what a guard with a function asks for its limits. The table changes with the file.
type LimitSource struct{ table atomic.Pointer[LimitTable] }

// Set changes the limits.
func (s *LimitSource) Set(t *LimitTable) { s.table.Store(t) }

// limits implements limit.Func. The tier of an attempt is its Item, which rate limits do not read.
func (s *LimitSource) limits(_ context.Context, a core.Attempt) ([]limit.Limit, error) {
	table := s.table.Load()
	if limits, ok := table.tiers[a.Item]; ok {
		return limits, nil
	}
	return table.others, nil
}

// list is what operators see of the limits: the tiers, with the others last.
func (s *LimitSource) list() []limit.Tier {
	table := s.table.Load()
	if table.by.find == nil {
		return []limit.Tier{{Limits: table.others}}
	}
	var all []limit.Tier
	for _, name := range slices.Sorted(maps.Keys(table.tiers)) {
		all = append(all, limit.Tier{Name: name, Limits: table.tiers[name]})
	}
	return append(all, limit.Tier{Name: otherTier, Limits: table.others})
}

// Tier is the Which of rules with tiers, or nil if the limits are the same for all. A request without a tier
// is one of the others.
func (t *LimitTable) Tier() keyfuncs.Func {
	if t.by.find == nil {
		return nil
	}
	return keyfuncs.Named("tier, by "+keyfuncs.NameOf(t.by.find), func(r *keyfuncs.Request) (string, error) {
		found, err := t.by.find(r)
		if noText(found, err) {
			return otherTier, nil
		}
		return found, err
	})
}

// otherTier is the name of the tier of requests that have none. No tier of a file has this name.
const otherTier = "*"

// guardKind is a kind of guard that a file can have.
type guardKind struct {
	name, doc string
	schema    schema
	read      func(d *reader, at string, n *yaml.Node) (*Guard, bool)
}

// simpleKind is a kind whose options are fields of a struct.
func simpleKind[O any, G core.Guard](
	name, doc string, f form[O], make func(*core.Engine, string, O) G,
) guardKind {
	return guardKind{name, doc, f.schema, func(d *reader, at string, n *yaml.Node) (*Guard, bool) {
		options, ok := f.read(d, at, n)
		return &Guard{Make: func(e *core.Engine, name string, _ *LimitSource) core.Guard {
			return make(e, name, options)
		}}, ok
	}}
}

// limitOptions are the members of a rate limit in a file.
type limitOptions struct {
	limits []limit.Limit
	tiers  *tierOptions
}

type tierOptions struct {
	by     key
	of     []Named[[]limit.Limit]
	others []limit.Limit
}

// limits is rate limits as text.
func limits(or string) form[[]limit.Limit] {
	return parsed(`limits, such as "10/s, 100/min"`+or, schema{"type": "string"},
		func(s string) ([]limit.Limit, error) {
			all, err := limit.ParseAll(s)
			if err != nil {
				err = errors.New(strings.TrimPrefix(err.Error(), "limit: "))
			}
			return all, err
		})
}

// limitsOrNone is limits, or the word unlimited.
func limitsOrNone() form[[]limit.Limit] {
	const or = `, or "unlimited"`
	f := limits(or)
	return form[[]limit.Limit]{f.schema, func(d *reader, at string, n *yaml.Node) ([]limit.Limit, bool) {
		if n.Kind == yaml.ScalarNode && n.Value == "unlimited" {
			return nil, true
		}
		return f.read(d, at, n)
	}}
}

var tiersForm = object(
	must(in("by", "The key function that finds the tier of a request, such as {user: plan}.", anyKey(),
		func(o *tierOptions) *key { return &o.by })),
	must(in("of", `The limits of each tier, or "unlimited".`, tableOf("limits", limitsOrNone()),
		func(o *tierOptions) *[]Named[[]limit.Limit] { return &o.of })),
	must(in("others", "The limits of requests with no tier, or with one that is not in the table.",
		limitsOrNone(), func(o *tierOptions) *[]limit.Limit { return &o.others })),
)

var limitForm = object(
	in("limits", `Limits as text: units/window, such as "10/s, 100/min", with an optional /resolution.`,
		limits(""), func(o *limitOptions) *[]limit.Limit { return &o.limits }),
	in("tiers", "Limits that differ between clients, in place of limits.", pointer(tiersForm),
		func(o *limitOptions) **tierOptions { return &o.tiers }),
)

// limitKind is a kind of rate limit.
func limitKind[F, B core.Guard](
	name, doc string, fixed func(e *core.Engine, name string, first limit.Limit, more ...limit.Limit) F,
	by func(e *core.Engine, name string, by limit.Func) B,
) guardKind {
	return guardKind{name, doc, limitForm.schema, func(d *reader, at string, n *yaml.Node) (*Guard, bool) {
		o, ok := limitForm.read(d, at, n)
		limits, tiers := child(n, "limits"), child(n, "tiers")
		switch {
		case limits == nil && tiers == nil && ok:
			d.mistake(at, n, `it has no limits: set limits, such as "100/min", or tiers`)
			return nil, false
		case limits != nil && tiers != nil:
			d.mistake(join(at, "tiers"), tiers, "it has both limits and tiers: set one of them")
			return nil, false
		case !ok:
			return nil, false
		}
		check := func(at string, n *yaml.Node, all []limit.Limit) {
			if len(all) > 0 {
				ok = d.trial(at, n, func(e *core.Engine, name string) { fixed(e, name, all[0], all[1:]...) }) && ok
			}
		}
		table := &LimitTable{others: o.limits}
		if tiers == nil {
			check(join(at, "limits"), limits, o.limits)
		} else {
			table.by, table.others, table.tiers = o.tiers.by, o.tiers.others, map[string][]limit.Limit{}
			check(join(at, "tiers.others"), child(tiers, "others"), o.tiers.others)
			for _, tier := range o.tiers.of {
				table.tiers[tier.Name] = tier.Value
				check(tier.at, child(child(tiers, "of"), tier.Name), tier.Value)
			}
		}
		return &Guard{Limits: table,
			Make: func(e *core.Engine, name string, source *LimitSource) core.Guard {
				if source != nil {
					var g core.Guard = by(e, name, source.limits)
					if g, ok := g.(interface{ Tiers(func() []limit.Tier) }); ok {
						g.Tiers(source.list)
					}
					return g
				}
				return fixed(e, name, o.limits[0], o.limits[1:]...)
			}}, ok
	}}
}

// periodOptions are the members of a period.
type periodOptions struct {
	every func(*time.Location, time.Weekday) period.Period
	zone  *time.Location
	first time.Weekday
}

// zone is a time zone by its name.
func zone() form[*time.Location] {
	return parsed(`a time zone, such as "Europe/Berlin"`, schema{"type": "string"},
		func(name string) (*time.Location, error) {
			loc, err := time.LoadLocation(name)
			if err != nil || name == "Local" {
				return nil, fmt.Errorf("unknown time zone %s: want UTC, or a name of the time zone database, such as "+
					`"Europe/Berlin"`, quote(name))
			}
			return loc, nil
		})
}

// every is the length of periods.
func every() form[func(*time.Location, time.Weekday) period.Period] {
	type calendar = func(*time.Location, time.Weekday) period.Period
	const want = `"day", "week", "month" or a duration`
	return parsed(want, schema{"type": "string"}, func(s string) (calendar, error) {
		switch s {
		case "day":
			return func(loc *time.Location, _ time.Weekday) period.Period { return period.Daily(loc) }, nil
		case "week":
			return period.Weekly, nil
		case "month":
			return func(loc *time.Location, _ time.Weekday) period.Period { return period.Monthly(loc) }, nil
		}
		length, err := time.ParseDuration(s)
		if err != nil || length < time.Second || length > kit.MaxTTL || length%time.Millisecond != 0 {
			return nil, fmt.Errorf(`found %s: want day, week, month, or a duration from 1s to %v, such as "6h"`,
				quote(s), kit.MaxTTL)
		}
		return func(*time.Location, time.Weekday) period.Period { return period.Every(length) }, nil
	})
}

var weekdays = []choice[time.Weekday]{
	{"monday", time.Monday}, {"tuesday", time.Tuesday}, {"wednesday", time.Wednesday},
	{"thursday", time.Thursday}, {"friday", time.Friday}, {"saturday", time.Saturday}, {"sunday", time.Sunday},
}

var periodFields = object(
	must(in("every", `day, week, month, or a duration such as "6h", counted from 1970 in UTC.`, every(),
		func(o *periodOptions) *func(*time.Location, time.Weekday) period.Period { return &o.every })),
	in("zone", `The time zone of days, weeks and months, such as "Europe/Berlin"; the default is UTC.`, zone(),
		func(o *periodOptions) **time.Location { return &o.zone }),
	in("week_begins", "The first day of weeks; the default is monday.", oneOf(weekdays...),
		func(o *periodOptions) *time.Weekday { return &o.first }),
)

// periods is the form of a period.
func periods() form[period.Period] {
	read := func(d *reader, at string, n *yaml.Node) (period.Period, bool) {
		o, ok := periodFields.read(d, at, n)
		if !ok {
			return nil, false
		}
		every, begins := child(n, "every").Value, child(n, "week_begins")
		switch {
		case o.zone == nil:
			o.zone = time.UTC
		case every != "day" && every != "week" && every != "month":
			d.mistake(join(at, "zone"), child(n, "zone"),
				"a duration is counted from 1970 in UTC: leave zone out, or set every to day, week or month")
			ok = false
		}
		switch {
		case begins == nil:
			o.first = time.Monday
		case every != "week":
			d.mistake(join(at, "week_begins"), begins,
				"only weeks have a first day: leave it out, or set every to week")
			ok = false
		}
		return o.every(o.zone, o.first), ok
	}
	return form[period.Period]{periodFields.schema, read}
}

var pollForm = object(
	in("per_voter", "Votes of each voter; the default is 1.", whole(1, 1000),
		func(p *votes.Poll) *int { return &p.PerVoter }),
	in("per_choice", "Votes of a voter for one choice; the default is 1.", whole(1, 1000),
		func(p *votes.Poll) *int { return &p.PerChoice }),
	in("per_day", "Votes of a voter per day; without it there is no cap.", whole(1, 1000),
		func(p *votes.Poll) *int { return &p.PerDay }),
	in("day", "The period of per_day; the default is a day in UTC.", periods(),
		func(p *votes.Poll) *period.Period { return &p.Day }),
	in("change", "A voter may replace their only vote.", boolean(),
		func(p *votes.Poll) *bool { return &p.Change }),
	in("retract", "A voter may take votes back.", boolean(), func(p *votes.Poll) *bool { return &p.Retract }),
	in("choices", "The valid choices; without them every choice is valid.", listOf(text("a choice"), false),
		func(p *votes.Poll) *[]string { return &p.Choices }),
	in("opens", "When the poll opens, as RFC 3339; without it, it is open.", instant(),
		func(p *votes.Poll) *time.Time { return &p.Opens }),
	in("closes", "When the poll closes, as RFC 3339; without it, never.", instant(),
		func(p *votes.Poll) *time.Time { return &p.Closes }),
)

// votesOptions are the members of votes in a file.
type votesOptions struct {
	votes.Options
	parts int // 0: in one slot, without package parts
	polls []Named[votes.Poll]
}

var votesForm = object(
	in("poll", "The rules of every poll.", pollForm, func(o *votesOptions) *votes.Poll { return &o.Poll }),
	in("polls", "The rules of each poll by its name, in place of poll; there are no others.",
		tableOf("polls", pollForm), func(o *votesOptions) *[]Named[votes.Poll] { return &o.polls }),
	in("keep", "How long votes are kept after the last one, or the closing; the default is 720h.",
		retention(time.Second), func(o *votesOptions) *time.Duration { return &o.Keep }),
	in("parts", "In how many parts, by voter, each poll is kept on a cluster; the default is one slot.",
		whole(1, 256), func(o *votesOptions) *int { return &o.parts }),
	in("audit", "Keep a stream of all changes of votes.", boolean(),
		func(o *votesOptions) *bool { return &o.Audit }),
)

// votesKind is simpleKind for votes, which have rules per poll.
func votesKind() guardKind {
	kind := simpleKind("votes", "Votes that count once.", votesForm,
		func(e *core.Engine, name string, o votesOptions) core.Guard {
			if o.polls != nil {
				polls := map[string]votes.Poll{}
				for _, p := range o.polls {
					polls[p.Name] = p.Value
				}
				o.Find = func(_ context.Context, poll string) (votes.Poll, error) {
					if found, ok := polls[poll]; ok {
						return found, nil
					}
					return votes.Poll{}, votes.ErrNoPoll
				}
			}
			if o.parts > 0 {
				return parts.New(e, name, o.parts, o.Options)
			}
			return votes.New(e, name, o.Options)
		})
	read := kind.read
	kind.read = func(d *reader, at string, n *yaml.Node) (*Guard, bool) {
		spec, ok := read(d, at, n)
		polls := child(n, "polls")
		if polls != nil && child(n, "poll") != nil {
			d.mistake(join(at, "polls"), polls, "it has both poll and polls: set one of them")
			ok = false
		}
		if !ok || polls == nil {
			return spec, ok
		}
		for i := 0; i+1 < len(polls.Content); i += 2 { // the guard itself checks a single poll only
			poll, _ := pollForm.read(d, at, polls.Content[i+1])
			ok = d.trial(join(at, "polls."+polls.Content[i].Value), polls.Content[i+1],
				func(e *core.Engine, name string) { votes.New(e, name, votes.Options{Poll: poll}) }) && ok
		}
		return spec, ok
	}
	return kind
}

// guardKinds returns the kinds of guards that a file can have.
func guardKinds() []guardKind {
	return []guardKind{
		limitKind("sliding_window", "A rate limit that is exact in any window; the default choice.",
			limit.NewSlidingWindow, limit.NewSlidingWindowBy),
		limitKind("leased_window", "A sliding window whose units each process fetches ahead: for a large limit.",
			func(e *core.Engine, name string, first limit.Limit, more ...limit.Limit) core.Guard {
				if len(more) > 0 {
					panic("limit: a leased window has one limit: give the others a guard and a rule of their own")
				}
				return lease.New(e, name, first)
			}, lease.NewBy),
		limitKind("fixed_window", "A rate limit whose window begins with its first unit.",
			limit.NewFixedWindow, limit.NewFixedWindowBy),
		limitKind("token_bucket", "A rate and bursts (GCRA).", limit.NewTokenBucket, limit.NewTokenBucketBy),
		votesKind(),
		simpleKind("seckill", "Flash sales that never oversell. A program opens each sale.", seckillForm,
			func(e *core.Engine, name string, o seckillOptions) core.Guard {
				o.NoOutbox = o.outbox != nil && !*o.outbox
				if o.buckets > 0 {
					return buckets.New(e, name, buckets.Options{Options: o.Options, Buckets: o.buckets})
				}
				return seckill.New(e, name, o.Options)
			}),
		simpleKind("quota", "Different items per period.", quotaForm, quota.New),
		simpleKind("redpacket", "One share of a packet per user. A program creates each packet.", redpacketForm,
			redpacket.New),
		simpleKind("idempotency", "An operation runs once, and repetitions get its answer.", idempotencyForm,
			func(e *core.Engine, name string, o idempotencyOptions) core.Guard {
				if o.body != nil {
					o.MaxBody = *o.body
					if o.MaxBody == 0 {
						o.MaxBody = -1 // keeps none, which 0 would not say
					}
				}
				return idempotency.New(e, name, o.Options)
			}),
		simpleKind("semaphore", "At most so many requests run at a time.", semaphoreForm, semaphore.New),
		simpleKind("lock", "One holder at a time.", lockForm, lock.New),
		simpleKind("bans", "Shuts out actors who are refused too often.", bansForm, bans.New),
		simpleKind("waitingroom", "Lets a crowd in at the rate that the application bears.", roomForm,
			waitingroom.New),
	}
}

type seckillOptions struct {
	seckill.Options
	outbox  *bool
	buckets int
}

type idempotencyOptions struct {
	idempotency.Options
	body *int
}

var (
	seckillForm = object(
		in("keep", "How long a sale is kept after its last change or its closing; the default is 720h.",
			retention(time.Second), func(o *seckillOptions) *time.Duration { return &o.Keep }),
		in("outbox", "Keep a record of events; the default is true.", pointer(boolean()),
			func(o *seckillOptions) **bool { return &o.outbox }),
		in("durability", "fast, or acked: wait for replicas before a success; the default is fast.",
			oneOf(choice[seckill.Durability]{"fast", seckill.Fast},
				choice[seckill.Durability]{"acked", seckill.Acked}),
			func(o *seckillOptions) *seckill.Durability { return &o.Durability }),
		in("replicas", "How many replicas an acked sale waits for; the default is 1.", whole(1, 100),
			func(o *seckillOptions) *int { return &o.Replicas }),
		in("ack_within", "How long an acked sale waits; the default is half of the engine's deadline.",
			duration(time.Millisecond, time.Minute), func(o *seckillOptions) *time.Duration { return &o.AckWithin }),
		in("buckets", "Over how many slots of a cluster each sale is spread; the default is none but its own.",
			whole(2, 64), func(o *seckillOptions) *int { return &o.buckets }),
	)
	quotaForm = object(
		must(in("items", "Different items of each actor per period.", whole(1, 10_000),
			func(o *quota.Options) *int { return &o.Items })),
		must(in("period", "The periods that items count in.", periods(),
			func(o *quota.Options) *period.Period { return &o.Period })),
	)
	redpacketForm = object(
		in("keep", "How long a packet is kept after it expires; the default is 168h.", retention(time.Second),
			func(o *redpacket.Options) *time.Duration { return &o.Keep }),
	)
	idempotencyForm = object(
		in("lease", "How long an operation may run; the default is 1m.", duration(time.Millisecond, 24*time.Hour),
			func(o *idempotencyOptions) *time.Duration { return &o.Lease }),
		in("keep", "How long an answer is kept; the default is 24h.", retention(time.Second),
			func(o *idempotencyOptions) *time.Duration { return &o.Keep }),
		in("max_body", "Bytes of the longest body that is kept, 0 for none; the default is 65536.",
			pointer(whole(0, 960<<10)), func(o *idempotencyOptions) **int { return &o.body }),
		in("max_actor",
			"Bytes that one actor may store; the default is 4 MiB, or 4 times max_body if that is more.",
			whole(int64(4<<10), 1<<44), func(o *idempotencyOptions) *int64 { return &o.MaxActor }),
		in("max_stored",
			"Bytes that all actors may store; the default is 1 GiB, or 64 times max_actor if that is more.",
			whole(int64(64*4<<10), 1<<50), func(o *idempotencyOptions) *int64 { return &o.MaxStored }),
	)
	semaphoreForm = object(
		must(in("max", "Permits of each pool.", whole(int64(1), 10_000),
			func(o *semaphore.Options) *int64 { return &o.Max })),
		in("lease", "How long permits of a dead process stay held; the default is 10s.",
			duration(time.Second, time.Hour), func(o *semaphore.Options) *time.Duration { return &o.Lease }),
		in("wait", "How long a request waits for permits; without it, it is refused at once.",
			duration(time.Millisecond, time.Minute), func(o *semaphore.Options) *time.Duration { return &o.Wait }),
		in("waiters", "How many requests of one user wait at a time, in each process; the default is 10.",
			whole(int64(1), 10_000), func(o *semaphore.Options) *int64 { return &o.Waiters }),
	)
	lockForm = object(
		in("lease", "How long the lock of a dead process stays held; the default is 10s.",
			duration(time.Second, time.Hour), func(o *lock.Options) *time.Duration { return &o.Lease }),
		in("wait", "How long a request waits for the lock; without it, it is refused at once.",
			duration(time.Millisecond, time.Minute), func(o *lock.Options) *time.Duration { return &o.Wait }),
		in("waiters", "How many requests of one user wait at a time, in each process; the default is 10.",
			whole(int64(1), 10_000), func(o *lock.Options) *int64 { return &o.Waiters }),
	)
	bansForm = object(
		in("refusals", "How many refusals per period are allowed; the next one bans. The default is 10.",
			whole(int64(1), 1000), func(o *bans.Options) *int64 { return &o.Refusals }),
		in("period", "The window in which refusals count; the default is 1m.", retention(time.Millisecond),
			func(o *bans.Options) *time.Duration { return &o.Period }),
		in("first", "The length of the first ban; the default is 1m.", retention(time.Millisecond),
			func(o *bans.Options) *time.Duration { return &o.First }),
		in("longest", "The length of the longest ban; the default is 24h, or first if that is longer.",
			retention(time.Millisecond), func(o *bans.Options) *time.Duration { return &o.Longest }),
		in("decay", "How long it takes to forget a doubling; the default is that of longest.",
			retention(time.Millisecond), func(o *bans.Options) *time.Duration { return &o.Decay }),
	)
)

var roomForm = object(
	must(in("capacity", "How many visitors are inside at a time.", whole(1, 1_000_000),
		func(o *waitingroom.Options) *int { return &o.Capacity })),
	must(in("secrets_file", "A file with a secret of 16 bytes or more in each line; the first one signs.",
		secrets(),
		func(o *waitingroom.Options) *[][]byte { return &o.Secrets })),
	in("pass", "How long a visitor may stay; the default is 10m.", duration(time.Second, 24*time.Hour),
		func(o *waitingroom.Options) *time.Duration { return &o.Pass }),
	in("idle", "How long a visitor inside may be away; the default is 2m, or pass if that is shorter.",
		duration(time.Second, 24*time.Hour), func(o *waitingroom.Options) *time.Duration { return &o.Idle }),
	in("poll", "How often a visitor who waits asks; the default is 20s.", duration(time.Second, 5*time.Minute),
		func(o *waitingroom.Options) *time.Duration { return &o.Poll }),
	in("grace", "How long a place is kept for a visitor who was called; the default is 1.5 poll and 1s.",
		duration(time.Second, time.Hour), func(o *waitingroom.Options) *time.Duration { return &o.Grace }),
	in("away", "How long a visitor who waits keeps a place without asking; the default is 10 poll.",
		retention(time.Second), func(o *waitingroom.Options) *time.Duration { return &o.Away }),
	in("opens", "When the room opens, as RFC 3339; without it, it is open.", instant(),
		func(o *waitingroom.Options) *time.Time { return &o.Opens }),
	in("draw", "The order of all who came before the opening is drawn.", boolean(),
		func(o *waitingroom.Options) *bool { return &o.Draw }),
	in("keep", "How long Redis keeps the room after the last request; the default is 24h.",
		duration(time.Minute, 30*24*time.Hour), func(o *waitingroom.Options) *time.Duration { return &o.Keep }),
	in("framed", "Visitors see the site in a frame of another one.", boolean(),
		func(o *waitingroom.Options) *bool { return &o.Framed }),
	in("page_status", "The status of the page of people who wait; the default is 200.", whole(200, 599),
		func(o *waitingroom.Options) *int { return &o.PageStatus }),
	in("program_status", "The status of the answer to all others who wait, 202 or 429; the default is 429.",
		whole(202, 429), func(o *waitingroom.Options) *int { return &o.ProgramStatus }),
)

// mostSecrets is how long a file of secrets may be, in bytes.
const mostSecrets = 1 << 16

// secrets is the path of a file with a secret in each line. Secrets are no part of a file of rules, which
// many may read.
func secrets() form[[][]byte] {
	return parsed("the path of a file", schema{"type": "string", "minLength": 1},
		func(path string) ([][]byte, error) {
			if !filepath.IsAbs(path) {
				return nil, fmt.Errorf("the path %q is not absolute: begin it at the root", path)
			}
			f, err := os.Open(path)
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(io.LimitReader(f, mostSecrets+1))
			if err := errors.Join(err, f.Close()); err != nil {
				return nil, err
			}
			if len(text) > mostSecrets {
				return nil, fmt.Errorf("%s is longer than %d bytes: it has a secret in each line", path,
					mostSecrets)
			}
			var all [][]byte
			for line := range bytes.Lines(text) {
				if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
					all = append(all, line)
				}
			}
			return all, nil
		})
}

// anyGuard is the form of a guard: a mapping of one kind to its options.
func anyGuard() form[*Guard] {
	properties := schema{}
	var names []string
	for _, kind := range guardKinds() {
		properties[kind.name] = described(kind.doc, kind.schema)
		names = append(names, kind.name)
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false,
		"minProperties": 1, "maxProperties": 1}
	return form[*Guard]{s, func(d *reader, at string, n *yaml.Node) (*Guard, bool) {
		if n.Kind != yaml.MappingNode || len(n.Content) != 2 {
			d.mistake(at, n, "found %s: want a mapping with the kind of the guard alone, such as "+
				`{sliding_window: {limits: "100/min"}}`, foundMembers(n))
			return nil, false
		}
		kind := n.Content[0]
		which := slices.IndexFunc(guardKinds(), func(k guardKind) bool { return k.name == kind.Value })
		if which < 0 {
			d.mistake(join(at, kind.Value), kind, "%s", unknown("kind of guard", kind.Value, names))
			return nil, false
		}
		spec, ok := guardKinds()[which].read(d, join(at, kind.Value), n.Content[1])
		if !ok {
			return nil, false
		}
		spec.Kind, spec.Text = kind.Value, canonical(n)
		return spec, d.trial(at, n, func(e *core.Engine, name string) {
			spec.sample = spec.Make(e, name, spec.Source(e))
		})
	}}
}

// Source returns what a guard asks for its limits, or nil if it has them itself. On an engine without Redis
// what has been counted is in the guard, so limits may change only behind a function.
func (s *Guard) Source(e *core.Engine) *LimitSource {
	if s.Limits == nil || s.Limits.by.find == nil && e.HasRedis() {
		return nil
	}
	source := new(LimitSource)
	source.Set(s.Limits)
	return source
}

func foundMembers(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode {
		return fmt.Sprintf("a mapping with %d members", len(n.Content)/2)
	}
	return found(n)
}

// noText reports whether a key function has found nothing.
func noText(found string, err error) bool {
	if err == nil {
		return found == ""
	}
	return errors.Is(err, keyfuncs.ErrMissing) && !errors.Is(err, keyfuncs.ErrMalformed)
}

// canonical returns a value as text, without what does not matter: positions, comments, quotes, and the order
// of members.
func canonical(n *yaml.Node) string {
	var parts []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			parts = append(parts, canonical(n.Content[i])+":"+canonical(n.Content[i+1]))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ",") + "}"
	case yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, canonical(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	default:
		return fmt.Sprintf("%q", n.Value)
	}
}
