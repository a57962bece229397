package lives

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/core/votes/parts"
)

// The definition of a poll:
//   - it is a list of votes, by voter and choice. The tally is what the list has for each choice
//   - an attempt counts exactly if the poll is open and the voter has fewer votes than PerVoter, and none for
//     this choice. With Change another choice takes the place of the only vote. Earlier votes stay, whatever
//     the rules become
//   - the same ID for the same vote is the same operation: all who ask with it are told yes, once it counts
//   - a vote is taken back when all who were told yes have given it back, unless one of them has kept it
//   - what a vote had replaced stands again when that vote is given back, unless it was given back itself
//   - Retract takes the newest vote for a choice, Void those that the audit stream tells, for good
//   - a call that arrives twice counts once
//   - a guard's ID is known for ten minutes, a client's for Keep after the vote or the closing that it knew,
//     and the list for Keep after the last one. Then the poll begins with nothing
//   - without its tally or its audit stream, a poll takes no votes until Repair; all else goes by the list
var _ = explore(life{
	name: "votes", of: []string{"votes"},
	events: alphabet("ann-red ann-blue bob-red ann-id bob-id give-back give-first-back keep retract again",
		"one two change only-blue closes opens border horizon ends flush save failover"),
	same:  samePoll,
	world: pollsOf(core.WithRefusalMemory(time.Second)),
	row: row{
		over:      "`Keep` after the last vote or the closing; its keys are deleted.",
		remembers: "Nothing.",
		forgets:   "Votes, operations, the audit stream, what is lost.",
		back:      "A vote of an earlier life gives nothing back. Its ID votes anew.",
	},
})

// What operators do with a poll, and what Redis may lose of it.
var _ = explore(life{
	name: "votes-operated", of: []string{"votes"},
	events: alphabet("ann-red ann-blue bob-red give-back give-first-back retract void void-again repair "+
		"lose-tally lose-audit again", "two change horizon flush save failover"),
	same:  samePoll,
	world: pollsOf(core.WithRefusalMemory(time.Second)),
})

// A poll in parts is the same list, whatever number of parts its processes would begin with. One process
// begins with two, the other with three. Amy is in parts 1 and 3 of these, bob in 2 and 1. The event look is
// a tally, before whose second command ann votes.
var _ = explore(life{
	name: "parts", of: []string{"votes"},
	events: alphabet("ann-red ann-blue bob-red other-ann-red other-bob-red give-back give-first-back retract "+
		"look again", "two closes border minute ends flush save failover"),
	same: samePoll,
	world: func(p *place) world {
		w := &pollWorld{place: p, inParts: true, between: &between{}}
		p.rdb.AddHook(w.between)
		for n := 2; n <= 3; n++ {
			o := votes.Options{Find: w.find, Keep: time.Hour}
			w.guards = append(w.guards, parts.New(p.Engine(), "poll", n, o))
		}
		return w
	},
	row: row{
		over:      "As for votes.",
		remembers: "Nothing. A process remembers the number of parts for a minute; parts of another one say so.",
		forgets:   "What votes forget, and the number of parts.",
		back:      "As for votes.",
	},
})

// pollsOf makes a poll that one process serves.
func pollsOf(options ...core.Option) func(p *place) world {
	return func(p *place) world {
		w := &pollWorld{place: p}
		o := votes.Options{Find: w.find, Keep: time.Hour, Audit: true}
		w.guards = []ballots{votes.New(p.Engine(options...), "poll", o)}
		return w
	}
}

// samePoll: of two rules the later one counts; two failovers are one.
func samePoll(a, b string) bool {
	rules := []string{"one", "two", "change"}
	times := []string{"only-blue", "closes", "opens"}
	once := []string{"flush", "save", "failover", "only-blue", "opens", "closes", "repair"}
	switch {
	case slices.Contains(rules, a) && slices.Contains(rules, b), a == b && slices.Contains(once, a):
		return true
	case a == "flush" && b == "failover", a == "failover" && b == "flush":
		return true
	}
	return slices.Contains(rules, b) && slices.Contains(times, a) || // these commute
		slices.Contains(rules, a) && slices.Contains([]string{"flush", "save"}, b)
}

// ballots is a guard of polls in one slot, or in parts.
type ballots interface {
	core.Guard
	votes.Polls
	Retract(ctx context.Context, a core.Attempt) (core.Decision, error)
	Audit(ctx context.Context, poll, after string, count int) ([]votes.Event, string, error)
}

type pollWorld struct {
	*place
	guards  []ballots
	inParts bool
	between *between

	name  string
	rules votes.Poll
	poll  polled
	told  []*ballotTold // each yes
	calls []pollCall    // that changed something
	made  int
	saved *savedPoll
}

// polled is what a poll is by its definition.
type polled struct {
	votes     map[string][]ballot
	ops       map[string]pollOp
	stream    []streamed
	lostTally bool
	lostAudit bool
	begun     bool      // something was counted
	until     time.Time // until when the list is kept at least
	over      time.Time // when it is surely forgotten
}

// ballot is a vote.
type ballot struct {
	n      int
	choice string
	voided bool
}

// pollOp is what is known of an ID.
type pollOp struct {
	voter, choice string
	n, old        int // the vote, and the one that it replaced, or 0
	oldChoice     string
	calls         []int // that were told yes and have not ended
	changed       bool
	kept          bool
	retracts      bool
	made          bool // by the guard
	at, until     time.Time
}

// streamed is an event of the audit stream.
type streamed struct {
	voter, choice string
	n             int
}

// ballotTold is a yes.
type ballotTold struct {
	d     core.Decision
	call  int
	ended bool
}

// pollCall is a call that may arrive once more.
type pollCall struct {
	sent int
	at   time.Time
	told *ballotTold // whose answer is the caller's, for votes
	redo func() bool // reports whether the definition lets it count
}

type savedPoll struct {
	snapshot
	poll polled
}

func (p *polled) clone() polled {
	c := *p
	c.votes, c.ops, c.stream = map[string][]ballot{}, map[string]pollOp{}, slices.Clone(p.stream)
	for voter, mine := range p.votes {
		c.votes[voter] = slices.Clone(mine)
	}
	for id, op := range p.ops {
		op.calls = slices.Clone(op.calls)
		c.ops[id] = op
	}
	return c
}

func newPolled() polled { return polled{votes: map[string][]ballot{}, ops: map[string]pollOp{}} }

const (
	pollKeep    = time.Hour
	pollHorizon = 10 * time.Minute // of the IDs that guards make; at most a quarter longer
)

func (w *pollWorld) find(context.Context, string) (votes.Poll, error) { return w.rules, nil }

func (w *pollWorld) begin(name string) {
	*w = pollWorld{place: w.place, guards: w.guards, inParts: w.inParts, between: w.between, name: name,
		poll: newPolled()}
	w.rules.Retract = true
}

func (w *pollWorld) actor(name string) string {
	if name == "ann" {
		return "amy"
	}
	return name
}

// forget lets go what is over. It is errImpossible at a moment for which the definition says nothing.
func (w *pollWorld) forget() error {
	now := w.Now()
	switch {
	case !w.poll.begun || !now.After(w.poll.until.Add(-5*time.Second)):
	case now.Before(w.poll.over):
		return errImpossible
	default:
		w.poll = newPolled()
	}
	for id, op := range w.poll.ops {
		age := now.Sub(op.at)
		switch {
		case op.made && age >= pollHorizon*5/4+5*time.Second:
			delete(w.poll.ops, id)
		case op.made && age > pollHorizon-5*time.Second, !op.made && now.After(op.until.Add(-5*time.Second)):
			return errImpossible
		}
	}
	return nil
}

func (w *pollWorld) do(event string) (string, error) {
	process := 0
	if rest, other := strings.CutPrefix(event, "other-"); other {
		event, process = rest, 1
	}
	switch event {
	case "ann-red", "ann-blue", "bob-red", "bob-blue":
		voter, choice, _ := strings.Cut(event, "-")
		return w.vote(process, voter, choice, "")
	case "ann-id", "bob-id":
		return w.vote(process, event[:3], "red", "1")
	case "give-back", "give-first-back", "keep":
		return w.settle(event)
	case "retract":
		return w.retract()
	case "void", "void-again":
		return w.void(event == "void-again")
	case "repair", "lose-tally", "lose-audit":
		return w.repair(event)
	case "look":
		return w.look()
	case "again":
		return w.again()
	}
	return "", w.silent(event)
}

// silent is for events without an answer.
func (w *pollWorld) silent(event string) error {
	now := w.Now()
	switch event {
	case "one", "two", "change":
		w.rules.PerVoter, w.rules.Change = 1, event == "change"
		if event == "two" {
			w.rules.PerVoter = 2
		}
	case "only-blue":
		if w.rules.Choices == nil {
			w.rules.Choices = []string{"blue"}
		} else {
			w.rules.Choices = nil
		}
	case "closes":
		if w.rules.Closes.IsZero() {
			w.rules.Closes = now.Add(2 * time.Hour)
		} else {
			w.rules.Closes = time.Time{}
		}
	case "opens":
		if w.rules.Opens.IsZero() {
			w.rules.Opens = now.Add(time.Hour)
			if !w.rules.Closes.IsZero() {
				w.rules.Closes = now.Add(2 * time.Hour)
			}
		} else {
			w.rules.Opens = time.Time{}
		}
	case "border": // to just before the next one, and then to it
		for _, at := range []time.Time{w.rules.Opens, w.rules.Closes} {
			for _, at := range []time.Time{at.Add(-time.Millisecond), at} {
				if at.After(now) {
					w.PassUntil(at)
					return w.forget()
				}
			}
		}
		return errImpossible
	case "horizon":
		last := time.Time{}
		for _, op := range w.poll.ops {
			if op.made && op.at.After(last) {
				last = op.at
			}
		}
		return w.passTo(last.Add(pollHorizon-10*time.Second), last.Add(pollHorizon*5/4+5*time.Second))
	case "ends":
		if !w.poll.begun {
			return errImpossible
		}
		return w.passTo(w.poll.until.Add(-10*time.Second), w.poll.over)
	case "minute":
		w.Pass(time.Minute)
		return w.forget()
	case "flush":
		w.Flush()
		w.Pass(2 * time.Second) // a process remembers a duplicate for one
		w.poll = newPolled()
	case "save":
		w.saved = &savedPoll{w.Save(), w.poll.clone()}
	case "failover":
		if w.saved == nil {
			return errImpossible
		}
		w.Pass(2 * time.Second)
		w.Load(w.saved.snapshot)
		w.poll = w.saved.poll.clone()
		return w.forget()
	}
	return nil
}

// passTo moves the clock to the first of the moments that is to come.
func (w *pollWorld) passTo(moments ...time.Time) error {
	for _, at := range moments {
		if at.After(w.Now()) {
			w.PassUntil(at)
			return w.forget()
		}
	}
	return errImpossible
}

// has returns the voter's votes that count.
func (p *polled) has(voter string) (choices []string) {
	for _, v := range p.votes[voter] {
		if !v.voided {
			choices = append(choices, v.choice)
		}
	}
	return choices
}

// reasonLost stands for a votes.ErrLost.
const reasonLost core.Reason = "lost"

// decide says what an attempt gets, under the rules that it was sent with, and lets it count.
func (w *pollWorld) decide(
	rules votes.Poll, voter, choice, id string, made bool, call int,
) (reason core.Reason, replayed bool) {
	p, now := &w.poll, w.Now()
	if op, known := p.ops[id]; known {
		if reason = core.ReasonOK; op.changed {
			reason = core.ReasonChanged
		}
		switch {
		case op.retracts || op.voter != voter || op.choice != choice:
			return core.ReasonConflict, false
		case slices.Contains(op.calls, call):
			return reason, false
		case !op.kept:
			op.calls = append(op.calls, call)
			p.ops[id] = op
		}
		return reason, true
	}
	mine := p.votes[voter]
	had := slices.ContainsFunc(mine, func(v ballot) bool { return v.choice == choice })
	most := max(rules.PerVoter, 1)
	changes := rules.Change && len(mine) == 1 && !mine[0].voided && !had
	switch {
	case now.Before(rules.Opens):
		return core.ReasonNotOpen, false
	case !rules.Closes.IsZero() && !now.Before(rules.Closes):
		return core.ReasonClosed, false
	case !changes && (had || len(mine) >= most && most == 1):
		return core.ReasonDuplicate, false
	case !changes && len(mine) >= most:
		return core.ReasonQuota, false
	case p.lostTally || p.lostAudit:
		return reasonLost, false
	}
	w.made++
	until := now
	if rules.Closes.After(now) {
		until = rules.Closes
	}
	until = until.Add(pollKeep)
	op := pollOp{voter: voter, choice: choice, n: w.made, calls: []int{call}, made: made, at: now, until: until}
	reason = core.ReasonOK
	if changes {
		op.changed, op.old, op.oldChoice = true, mine[0].n, mine[0].choice
		mine, reason = nil, core.ReasonChanged
	}
	p.votes[voter] = append(slices.Clone(mine), ballot{n: op.n, choice: choice})
	p.ops[id], p.stream = op, append(p.stream, streamed{voter, choice, op.n})
	w.kept(until, true)
	return reason, false
}

// kept notes until when the list is kept. In parts, each part is kept by itself, and by whoever asks.
func (w *pollWorld) kept(until time.Time, counted bool) {
	p, over := &w.poll, until.Add(pollKeep/64+10*time.Second)
	if w.inParts {
		over = until.Add(pollKeep/64 + 5*time.Minute)
	}
	if counted && (!p.begun || until.After(p.until) != w.inParts) {
		p.until = until
	}
	p.over, p.begun = maxTime(p.over, over), p.begun || counted
}

// vote casts a vote.
func (w *pollWorld) vote(process int, voter, choice, id string) (string, error) {
	a := core.Attempt{Actor: w.actor(voter), Resource: w.name, Item: choice, ID: id}
	before, rules := w.Sent(), w.rules
	d, err := w.guards[process].Check(context.Background(), a)
	if rules.Choices != nil && !slices.Contains(rules.Choices, choice) {
		if !errors.Is(err, core.ErrInvalid) {
			return "", broken("A choice that the poll does not have is invalid", "%s, %v", d.Reason, err)
		}
		return "invalid", nil
	}
	if w.inParts {
		w.kept(maxTime(w.Now(), rules.Closes).Add(pollKeep), false)
	}
	told := &ballotTold{d: d, call: w.made + 1}
	w.made++
	op := w.poll.ops[d.Attempt.ID]
	want, replayed := w.decide(rules, voter, choice, d.Attempt.ID, id == "", told.call)
	if want == reasonLost {
		if !errors.Is(err, votes.ErrLost) {
			return "", broken("A poll that has lost something takes no votes", "%s, %v", d.Reason, err)
		}
		return "lost", nil
	}
	if err != nil || d.Reason != want || d.Replayed != replayed || d.Kept != (replayed && op.kept) {
		return "", broken("An attempt counts as the list says", "%s, replayed %t, kept %t, %v: want %s, %t, %t",
			d.Reason, d.Replayed, d.Kept, err, want, replayed, op.kept)
	}
	if mine := w.poll.votes[voter]; want != core.ReasonConflict &&
		(!slices.Equal(votes.Choices(d), w.poll.has(voter)) ||
			d.Remaining != int64(max(0, max(rules.PerVoter, 1)-len(mine)))) {
		return "", broken("A voter is told what they have", "%q, %d left: want %v", votes.Choices(d),
			d.Remaining, mine)
	}
	if d.Allowed {
		w.told = append(w.told, told)
		if w.Sent() > before {
			w.calls = append(w.calls, pollCall{w.Sent() - 1, w.Now(), told, func() bool {
				want, _ := w.decide(rules, voter, choice, d.Attempt.ID, id == "", told.call)
				return want == core.ReasonOK || want == core.ReasonChanged
			}})
		}
	}
	return fmt.Sprint(d.Reason, " ", w.poll.has(voter)), nil
}

// settle ends a request: the last one that has not ended, or the first.
func (w *pollWorld) settle(event string) (string, error) {
	open := slices.DeleteFunc(slices.Clone(w.told), func(t *ballotTold) bool { return t.ended })
	if len(open) == 0 || event == "give-first-back" && len(open) == 1 {
		return "", errImpossible
	}
	told, end := open[len(open)-1], core.Rollback
	if event == "give-first-back" {
		told = open[0]
	}
	if event == "keep" {
		end = core.Commit
	}
	before, id := w.Sent(), told.d.Attempt.ID
	if err := w.guards[0].Settle(context.Background(), told.d, end); err != nil {
		return "", broken("Settling is no error", "%v", err)
	}
	told.ended = true
	redo := func() bool { w.undo(id, told.call); return true }
	if event == "keep" {
		redo = func() bool {
			if op := w.poll.ops[id]; slices.Contains(op.calls, told.call) {
				op.kept, op.calls = true, nil
				w.poll.ops[id] = op
			}
			return true
		}
	}
	if w.Sent() > before {
		redo()
		w.calls = append(w.calls, pollCall{w.Sent() - 1, w.Now(), nil, redo})
	}
	return fmt.Sprint(w.poll.votes), nil
}

// undo takes back a vote, if this was the last of those who were told.
func (w *pollWorld) undo(id string, call int) {
	op, known := w.poll.ops[id]
	at := slices.Index(op.calls, call)
	if !known || op.retracts || op.kept || at < 0 {
		return
	}
	if op.calls = slices.Delete(op.calls, at, at+1); len(op.calls) > 0 {
		w.poll.ops[id] = op
		return
	}
	delete(w.poll.ops, id)
	mine := w.poll.votes[op.voter]
	if at := slices.IndexFunc(mine, func(v ballot) bool { return v.n == op.n }); at >= 0 && !mine[at].voided {
		mine = slices.Delete(mine, at, at+1)
		if op.old != 0 {
			mine = slices.Insert(mine, at, ballot{n: op.old, choice: op.oldChoice})
		}
		w.poll.votes[op.voter] = mine
	}
	for other, later := range w.poll.ops {
		if later.old == op.n {
			later.old, later.oldChoice = op.old, op.oldChoice
			w.poll.ops[other] = later
		}
	}
}

// retract takes back the newest red vote of ann.
func (w *pollWorld) retract() (string, error) {
	rules := w.rules
	a := core.Attempt{Actor: w.actor("ann"), Resource: w.name, Item: "red"}
	d, err := w.guards[0].Retract(context.Background(), a)
	if w.inParts {
		w.kept(maxTime(w.Now(), rules.Closes).Add(pollKeep), false)
	}
	w.made++
	call := w.made
	redo := func() core.Reason {
		if _, known := w.poll.ops[d.Attempt.ID]; known {
			return core.ReasonOK
		}
		if !rules.Closes.IsZero() && !w.Now().Before(rules.Closes) {
			return core.ReasonClosed
		}
		mine := w.poll.votes["ann"]
		for i, v := range slices.Backward(mine) {
			if v.choice == "red" && !v.voided {
				w.poll.votes["ann"] = slices.Delete(mine, i, i+1)
				w.poll.ops[d.Attempt.ID] = pollOp{voter: "ann", choice: "red", n: v.n, retracts: true, made: true,
					at: w.Now(), until: w.Now().Add(pollKeep), calls: []int{call}}
				return core.ReasonOK
			}
		}
		return core.ReasonGone
	}
	want := redo()
	if err != nil || d.Reason != want {
		return "", broken("Retract takes the newest vote for the choice", "%s, %v: want %s", d.Reason, err, want)
	}
	if !slices.Equal(votes.Choices(d), w.poll.has("ann")) {
		return "", broken("A voter is told what they have", "%q, want %q", votes.Choices(d), w.poll.has("ann"))
	}
	if d.Allowed {
		w.calls = append(w.calls, pollCall{w.Sent() - 1, w.Now(), nil,
			func() bool { return redo() == core.ReasonOK }})
	}
	return string(d.Reason), nil
}

// void voids what ann has cast, by the stream.
func (w *pollWorld) void(again bool) (string, error) {
	o := votes.VoidOptions{VoteAgain: again}
	o.Match = func(e votes.Event) bool { return e.Voter == w.actor("ann") }
	got, err := w.guards[0].Void(context.Background(), w.name, o)
	if w.poll.lostAudit {
		if !errors.Is(err, votes.ErrLost) {
			return "", broken("Void needs the stream", "%+v, %v", got, err)
		}
		return "lost", nil
	}
	matched, voided := int64(0), int64(0)
	for _, e := range w.poll.stream {
		if e.voter != "ann" {
			continue
		}
		matched++
		mine := w.poll.votes["ann"]
		at := slices.IndexFunc(mine, func(v ballot) bool { return v.n == e.n })
		if at < 0 || mine[at].voided {
			continue
		}
		voided++
		if mine[at].voided = true; again {
			w.poll.votes["ann"] = slices.Delete(mine, at, at+1)
		}
	}
	if err != nil || got.Matched != matched || got.Voided != voided {
		return "", broken("Void takes what the stream tells and stands", "%+v, %v: want %d of %d", got, err, voided,
			matched)
	}
	return fmt.Sprint(voided), nil
}

// repair repairs the poll, or loses something of it.
func (w *pollWorld) repair(event string) (string, error) {
	ctx, p := context.Background(), &w.poll
	if event == "repair" {
		r, err := w.guards[0].Repair(ctx, w.name)
		if err != nil || !p.loses(r) {
			return "", broken("Repair tells what was lost", "%v, %v: want tally %t, audit %t", r.Lost, err,
				p.lostTally, p.lostAudit)
		}
		p.lostTally, p.lostAudit = false, false
		return fmt.Sprint(r.Lost), nil
	}
	keys := w.guards[0].(interface{ Keys(poll string) []string }).Keys(w.name)
	key, lost := keys[1], &p.lostTally
	if event == "lose-audit" {
		key, lost = keys[3], &p.lostAudit
	}
	if w.raw.Del(ctx, key).Val() == 0 {
		return "", errImpossible
	}
	if *lost = true; event == "lose-audit" {
		p.stream = nil
	}
	return "", nil
}

// loses reports whether a verification tells what the poll has lost.
func (p *polled) loses(r votes.Verification) bool {
	return slices.Contains(r.Lost, "tally") == p.lostTally && slices.Contains(r.Lost, "audit") == p.lostAudit
}

// again lets the call before last arrive once more.
func (w *pollWorld) again() (string, error) {
	if len(w.calls) == 0 {
		return "", errImpossible
	}
	c := w.calls[max(0, len(w.calls)-2)]
	if w.Now().Sub(c.at) > 2*time.Minute || c.told != nil && c.told.ended {
		return "", errImpossible
	}
	err := w.Again(c.sent)
	may := w.inParts || w.poll.lostTally || w.poll.lostAudit
	if err != nil && strings.Contains(err.Error(), "GATEHOUSE lost: ") && may {
		return "lost", nil // the caller asks again, as in any attempt
	}
	if err != nil {
		return "", broken("A call that arrives twice is no error", "%v", err)
	}
	return fmt.Sprint(c.redo()), nil
}

// look reads the tally while ann votes: it is that of before, or that of after.
func (w *pollWorld) look() (seen string, err error) {
	earlier, once := w.poll.sums(), sync.OnceFunc(func() { seen, err = w.vote(0, "ann", "red", "") })
	w.between.f = once
	w.between.left.Store(2)
	calls := w.calls
	tally, wrong := w.guards[1].Tally(context.Background(), w.name)
	w.between.left.Store(0)
	once()
	if w.calls = calls; err != nil { // which of those that were sent meanwhile was the vote is not known
		return seen, err
	}
	maps.DeleteFunc(tally, func(_ string, sum int64) bool { return sum == 0 })
	if wrong != nil || !maps.Equal(tally, earlier) && !maps.Equal(tally, w.poll.sums()) {
		return seen, broken("A tally that is read while somebody votes is that of before or after",
			"%v, %v: want %v or %v", tally, wrong, earlier, w.poll.sums())
	}
	return seen, nil
}

// between does something before a command.
type between struct {
	left atomic.Int64 // until then
	f    func()
}

func (b *between) count() {
	if b.left.Load() > 0 && b.left.Add(-1) == 0 {
		b.f()
	}
}

// DialHook implements redis.Hook.
func (*between) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { b.count(); return next(ctx, cmd) }
}

// ProcessPipelineHook implements redis.Hook.
func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { b.count(); return next(ctx, cmds) }
}

// sums returns the tally of the list.
func (p *polled) sums() map[string]int64 {
	sums := map[string]int64{}
	for _, mine := range p.votes {
		for _, v := range mine {
			if !v.voided {
				sums[v.choice]++
			}
		}
	}
	return sums
}

// end compares what the poll tells with the list.
func (w *pollWorld) end() error {
	ctx := context.Background()
	sums := w.poll.sums()
	count, voters, voided := int64(0), int64(0), int64(0)
	for _, mine := range w.poll.votes {
		for _, v := range mine {
			if v.voided {
				voided++
			} else {
				count++
			}
		}
		if len(mine) > 0 {
			voters++
		}
	}
	r, err := w.guards[len(w.guards)-1].Verify(ctx, w.name)
	if err != nil || !maps.Equal(r.Records, sums) || r.Votes != count || r.Voters != voters ||
		r.Voided != voided || r.Damaged != 0 || !w.poll.loses(r) || !r.Consistent() && len(r.Lost) == 0 {
		return broken("The records are the list", "%v\n%v, want %v, %d votes of %d, %d voided", err, r, sums, count,
			voters, voided)
	}
	tally, err := w.guards[0].Tally(ctx, w.name)
	if w.poll.lostTally {
		if !errors.Is(err, votes.ErrLost) {
			return broken("A tally that is lost is told as that", "%v, %v", tally, err)
		}
		return nil
	}
	maps.DeleteFunc(tally, func(_ string, sum int64) bool { return sum == 0 })
	if err != nil || !maps.Equal(tally, sums) {
		return broken("The tally is the list", "%v, %v: want %v", tally, err, sums)
	}
	return nil
}
