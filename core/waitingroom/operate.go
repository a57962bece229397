package waitingroom

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Status is how a room stands.
type Status struct {
	// State is "lobby", "open", "paused" or "closed". Text is shown to waiting visitors while it is closed.
	State string `json:"state"`
	Text  string `json:"text,omitempty"`
	// Capacity is how many visitors may be inside. Inside are there, and Called may enter and have not come
	// yet.
	Capacity int64 `json:"capacity"`
	Inside   int64 `json:"inside"`
	Called   int64 `json:"called"`
	// Waiting are those who wait and were seen in this or the last interval: after a draw none, until they have
	// asked again.
	Waiting int64 `json:"waiting"`
	// Given is how many numbers were given, Entered how many visitors have entered, and Missed how often one was
	// called who did not come in time.
	Given   int64 `json:"given"`
	Entered int64 `json:"entered"`
	Missed  int64 `json:"missed"`
	// Commitment is that of the seed of the draw, and Seed the seed, from the opening on.
	Commitment string `json:"commitment,omitempty"`
	Seed       string `json:"seed,omitempty"`
}

// Peek returns how the room stands.
func (g *Guard) Peek(ctx context.Context) (Status, error) {
	return kit.Look(ctx, &g.Base, "peek", core.Attempt{}, func() (Status, error) {
		p, err := g.ask(ctx, nil, nil)
		if err != nil {
			return Status{}, err
		}
		state, text := g.stands(p)
		s := Status{State: state, Text: script.Decode(text), Capacity: p.capacity(g.options.Capacity),
			Inside: p.inside, Called: p.called, Waiting: p.counts[len(p.counts)-1], Given: p.last - firstPlace + 1,
			Entered: p.entered, Missed: p.missed}
		if p.draws {
			s.Commitment = p.commitment
		}
		switch {
		case !p.lobby.is && state == open:
			s.State = "lobby"
		case p.draws && p.lobby.is:
			s.Seed = p.seed
		}
		return s, nil
	})
}

// SetCapacity sets how many visitors may be inside, 1 to 1,000,000, in all processes at once. 0 restores
// the capacity of Options. When it becomes less, nobody is thrown out, and nobody enters until there is
// room.
func (g *Guard) SetCapacity(ctx context.Context, capacity int64) error {
	if capacity < 0 || capacity > 1e6 {
		return kit.NewError(fmt.Sprintf("capacity is %d: give 1 to 1,000,000, or 0 for that of the options",
			capacity), core.ErrInvalid)
	}
	return g.Call(ctx, "set_capacity", core.Attempt{}, func() error {
		return g.set(ctx, "", "", strconv.FormatInt(capacity, 10))
	})
}

// Pause stops the line: nobody is called or enters until [Guard.Open].
func (g *Guard) Pause(ctx context.Context) error {
	return g.Call(ctx, "pause", core.Attempt{}, func() error { return g.set(ctx, paused, "", "") })
}

// Close closes the room: waiting visitors get the text when they ask next, and nobody comes in. Those
// inside stay until their passes end.
func (g *Guard) Close(ctx context.Context, text string) error {
	if len(text) > 500 {
		return kit.NewError("the text has more than 500 bytes", core.ErrInvalid)
	}
	return g.Call(ctx, "close", core.Attempt{}, func() error { return g.set(ctx, closed, text, "") })
}

// Open has the room go on after [Guard.Pause] or [Guard.Close]. All keep their places.
func (g *Guard) Open(ctx context.Context) error {
	return g.Call(ctx, "open", core.Attempt{}, func() error { return g.set(ctx, open, "", "") })
}

func (g *Guard) set(ctx context.Context, state, text, limit string) error {
	if _, err := g.run(ctx, setScript, state, script.Encode(text), limit); err != nil {
		return err
	}
	_, err := g.ask(ctx, nil, nil)
	return err
}

// Leave ends the pass or the wait of the visitor of a decision of this guard, as when they log out or have
// bought. Their place is free at once. Leave reads only the decision's Token, or the Token of its Attempt.
// Where the room's rule is not in front, nethttpmw.TokenOf finds it. Other processes hear of it within a
// second, and until then they accept a copy of the pass. A visitor who leaves a lobby and comes back with
// their ticket is an arrival for the length of Idle. Later, and after the draw, they have their place again.
func (g *Guard) Leave(ctx context.Context, d core.Decision) error {
	return g.Call(ctx, "leave", d.Attempt, func() error {
		text := d.Token
		if text == "" {
			text = d.Attempt.Token
		}
		t, ok := g.tickets.read(text)
		if !ok {
			return nil
		}
		p, err := g.look(ctx)
		for known := false; err == nil && !known; {
			known, err = g.leave(ctx, p, t)
			if err == nil {
				p, err = g.ask(ctx, nil, nil)
			}
			if err == nil && t.base != p.base {
				return nil // the room was lost, and the pass with it
			}
		}
		return err
	})
}

// leave gives a pass or a place back. It reports whether the picture was good enough.
func (g *Guard) leave(ctx context.Context, p *picture, t ticket) (known bool, err error) {
	place := p.place(t)
	value, err := g.run(ctx, leaveScript, p.lobby.String(), t.base, place, t.name(), t.mark())
	if err != nil {
		return false, err
	}
	g.mu.Lock()
	delete(g.seen, place)
	delete(g.used, t.member(place))
	g.calls[place] = call{place: place, until: p.now + g.options.Away.Milliseconds(), used: true}
	g.mu.Unlock()
	r := script.ReadReply(value, 1, 1)
	return r.Number() >= 0, r.Err
}

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description {
	simple := func(name string, run func(context.Context) error) kit.Operation {
		return kit.Operation{Name: name, Changes: true, Reversible: true,
			Run: func(ctx context.Context, _ kit.Input) (any, error) { return nil, run(ctx) }}
	}
	return kit.Description{
		Kind: "waitingroom",
		Settings: []kit.Detail{{Name: "capacity", Value: g.options.Capacity},
			{Name: "pass", Value: g.options.Pass.String()}, {Name: "idle", Value: g.options.Idle.String()},
			{Name: "poll", Value: g.options.Poll.String()}, {Name: "grace", Value: g.options.Grace.String()}},
		Answers: g.answers(),
		Operations: []kit.Operation{
			{Name: "peek", Run: func(ctx context.Context, _ kit.Input) (any, error) { return g.Peek(ctx) }},
			{Name: "set-capacity", Changes: true, Reversible: true,
				Fields: []kit.Field{{Name: "capacity", Kind: kit.FieldNumber, Required: true,
					Hint: "how many may be inside; 0: what the program says"}},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return nil, g.SetCapacity(ctx, in.Number("capacity"))
				}},
			simple("pause", g.Pause),
			{Name: "close", Changes: true, Reversible: true,
				Fields: []kit.Field{{Name: "text", Hint: "what those who wait are told, such as sold out"}},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return nil, g.Close(ctx, in.Text("text"))
				}},
			simple("open", g.Open),
		},
		Ops: []string{"check", "peek", "set_capacity", "pause", "close", "open", "leave"},
	}
}

// away says how long a visitor keeps a place without asking, rounded down.
func (o *Options) away(minute, second string) string {
	n, unit := int64(o.Away/time.Minute), minute
	if n < 2 {
		n, unit = int64(o.Away/time.Second), second
	}
	if unit == "minute" || unit == "second" {
		unit += "s"
	}
	return strconv.FormatInt(n, 10) + " " + unit
}

// answers are the answers to visitors who wait, or cannot come in any more.
func (g *Guard) answers() []kit.Answer {
	const types = "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#"
	waiting := kit.Answer{
		Reason: ReasonWaiting, Status: g.options.ProgramStatus, Title: "Waiting", Expected: true,
		Detail: "You are in line. Ask again after the time in Retry-After.", Type: types + "waiting",
		PageTitle: "You are in line", PageStatus: g.options.PageStatus, Waits: true,
		PageDetail: "You keep your place while this page is open, and for " + g.options.away("minute", "second") +
			" without it. It goes on by itself.",
		Pages: []kit.PageText{{Lang: "zh-Hans", Title: "您正在排队",
			Detail: "请保持此页面打开，您的位置会一直保留，轮到您时会自动进入。离开此页面超过 " + g.options.away("分钟", "秒") +
				"，您需要重新排队。"}},
	}
	elsewhere := waiting
	elsewhere.Reason, elsewhere.Type = ReasonElsewhere, types+"elsewhere"
	elsewhere.Detail = "The ticket belongs to another client. You have a place of your own in line."
	elsewhere.PageDetail = "Your ticket is in use in another browser, so you have a place of your own here."
	elsewhere.Pages = []kit.PageText{{Lang: "zh-Hans", Title: "您正在排队",
		Detail: "您的排队凭证正在另一个浏览器中使用，因此您在这里有一个新的位置。"}}
	over, _ := kit.StandardAnswer(core.ReasonClosed)
	over.PageStatus = g.options.PageStatus
	over.Pages = []kit.PageText{{Lang: "zh-Hans", Title: "已关闭", Detail: "目前无法进入。"}}
	return []kit.Answer{over, waiting, elsewhere}
}
