package redpacket

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	redPacketCreateScript = core.NewScript("red_packet_create", lua.RedPacketCreate, core.Idempotent)
	redPacketGrabScript   = core.NewScript("red_packet_grab", lua.RedPacketGrab, core.Idempotent)
	redPacketRefundScript = core.NewScript("red_packet_refund", lua.RedPacketRefund, core.Idempotent)
	redPacketAuditScript  = core.NewScript("red_packet_audit", lua.RedPacketAudit, core.Idempotent)
)

// Packet is an amount of money that is to be split by luck. Amounts are in minor units, such as cents, and below 2^53.
type Packet struct {
	// Total is the sum of all shares.
	Total int64 `json:"total"`
	// Shares is how many users get one, 1 to 10,000.
	Shares int `json:"shares"`
	// Min is the least that a share has. Zero means 1.
	Min int64 `json:"min"`
	// Expires is when grabbing ends, to the millisecond. Required.
	Expires time.Time `json:"expires"`
}

// maxShares is how many shares a packet has at most, since one call makes them.
const maxShares = 10_000

// PacketAudit is what has become of a packet. The sum of Left, the sum of Grabbed and Refunded are the total, always.
type Verification struct {
	Packet Packet `json:"packet"`
	// Left are the shares that nobody has grabbed, the next one first: not for users, who could wait for a better one.
	Left []int64 `json:"left"`
	// Grabbed says who has what. A very long user, 1024 bytes once encoded, has the name by which he is kept: '#' and its
	// SHA-256 in unpadded base64url.
	Grabbed map[string]int64 `json:"grabbed"`
	// Refunded is what Refund has taken out.
	Refunded int64 `json:"refunded"`
}

// RedPacketOptions are what RedPacket may be told.
type Options struct {
	// Keep is how long a packet is kept after it has expired: for refunds, audits and users who ask again. Zero means 7 days.
	// After that it is unknown, and what has neither been grabbed nor refunded by then can not be told any more.
	Keep time.Duration
}

var (
	// ErrNoPacket is returned by Refund and Audit for a packet that is not there: never created, kept no longer, or lost with
	// its Redis.
	ErrNoPacket = core.NewError("redpacket: no such packet", core.ErrNotFound)
	// ErrPacketOpen is returned by Refund for a packet that has not expired.
	ErrPacketOpen = core.NewError("redpacket: the packet has not expired", core.ErrNotNow)
)

// RedPacket gives each user one share of a packet, as long as there are any: the Actor is the user, the Resource the packet,
// the ID the grab; the Cost is always 1. Each packet has to be made once, by Create; one that is not there is refused.
//
// What the shares are is decided by luck when the packet is created, with the operating system's random numbers, and each
// of them has the same chances: to come early or late makes no difference. What is left, what is grabbed and what is
// refunded add up to the packet's total before and after every script.
//
// What a user has grabbed is his, however his request ends: Settle does nothing. In a rule, put it last, so that no later rule
// refuses the request. Whoever pays it out should do so once for each packet and user, whatever Decision.Replayed says, since a
// process may end between the grab and the payment; Audit says what is owed to whom.
type Guard struct {
	core.Base
	options Options
}

// RedPacket makes a guard of red packets. It panics when the name is taken or not a name, or the options make no sense.
func New(e *core.Engine, name string, options Options) *Guard {
	e.NeedRedis("RedPacket", name)
	if options.Keep == 0 {
		options.Keep = 7 * 24 * time.Hour
	}
	if options.Keep < time.Second {
		panic(fmt.Sprintf("core: packets kept for %v are forgotten before anybody refunds what is left: "+
			"give Keep days (guard %q)", options.Keep, name))
	}
	scripts := []*core.Script{redPacketCreateScript, redPacketGrabScript, redPacketRefundScript, redPacketAuditScript}
	return &Guard{Base: e.Register("redpacket", name, scripts...), options: options}
}

// Traits implements Guard: a grab needs a packet, and stays when the request fails.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsResource: true, KeepsOnFailure: true, Outage: core.FailClosed}
}

// Create makes a packet, and reports whether it did: one that exists with the same figures stays as it is, so that a caller
// who did not hear the answer can ask again. Figures that make no sense, and an ID that exists with other figures, are an
// ErrInvalidAttempt. Take the money from whoever gives it before that: what is created is given away.
func (g *Guard) Create(ctx context.Context, id string, packet Packet) (bool, error) {
	return core.Look(ctx, &g.Base, "create", core.Attempt{}, func() (bool, error) { return g.create(ctx, id, packet) })
}

func (g *Guard) create(ctx context.Context, id string, p Packet) (bool, error) {
	if p.Min == 0 {
		p.Min = 1
	}
	if err := p.check(); err != nil {
		return false, err
	}
	if id == "" {
		return false, fmt.Errorf("%w: no packet: give it an ID", core.ErrInvalid)
	}
	args := []any{
		p.Total, p.Min, p.Expires.UnixMilli(), g.options.Keep.Milliseconds(), rand.Text()[:10], g.Engine().ScriptNow(time.Millisecond),
	}
	for _, amount := range split(secureRandom, p.Total, p.Shares, p.Min) {
		args = append(args, amount)
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), redPacketCreateScript, g.packetKeys(id), args...)
	if err != nil {
		return false, err
	}
	r := core.ReadReply(value, 1, 1)
	switch r.Text() {
	case "made":
		return true, nil
	case "exists":
		return false, nil
	case "other":
		return false, fmt.Errorf("%w: packet %.100q exists with other figures", core.ErrInvalid, id)
	case "expired":
		return false, fmt.Errorf("%w: packet %.100q would expire at %v, which is over", core.ErrInvalid, id, p.Expires)
	}
	return false, cmp.Or(r.Err, fmt.Errorf("unexpected reply %.100q", fmt.Sprint(value)))
}

// check finds packets that can not be made.
func (p *Packet) check() error {
	switch {
	case p.Shares < 1 || p.Shares > maxShares:
		return fmt.Errorf("%w: %d shares: give 1 to %d", core.ErrInvalid, p.Shares, maxShares)
	case p.Min < 1:
		return fmt.Errorf("%w: shares of %d at least: give them 1 or more", core.ErrInvalid, p.Min)
	case p.Total > core.MaxAmount:
		return fmt.Errorf("%w: a total of %d: give it 2^53-1 at most", core.ErrInvalid, p.Total)
	case p.Total/int64(p.Shares) < p.Min: // a product may overflow
		return fmt.Errorf("%w: a total of %d is not enough for %d shares of %d", core.ErrInvalid, p.Total, p.Shares, p.Min)
	case !schedule.Countable(p.Expires):
		return fmt.Errorf("%w: a packet that expires at %v: give it a time from 1970 to 2200", core.ErrInvalid, p.Expires)
	}
	return nil
}

// Check implements Guard: it grabs a share, whose amount the decision has. A user who has one hears of it as ReasonDuplicate,
// and as ReasonOK once more with the operation ID of his grab, for as long as the packet is kept.
//
// A grab whose answer did not come in time may have been made, and stays: asking again, with the Attempt of the Decision beside
// the error, tells its amount.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.grab(ctx, a) })
}

func (g *Guard) grab(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a, err := a.PrepareClaim("the packet")
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err != nil {
		return d, err
	}
	if a.Cost != 1 {
		return d, fmt.Errorf("%w: cost %d: a user gets one share of a packet", core.ErrInvalid, a.Cost)
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), redPacketGrabScript, g.packetKeys(a.Resource),
		core.Encode(a.ID), core.EncodeUpTo(core.MaxRecord, a.Actor), a.Call(), g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return d, err
	}
	r := core.ReadReply(value, 5, 5)
	reason, replayed, amount, left, shares := r.Text(), r.Flag(), r.Number(), r.Number(), r.Number()
	if r.Err != nil {
		return d, r.Err
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.SetClaim(share(amount))
	d.Allowed = d.Reason == core.ReasonOK
	d.Limit, d.Remaining = shares, left
	return d, nil
}

// share is what a user has got.
type share int64

// Amount returns what the user has got of the packet, in minor units: by this attempt when allowed, by an earlier one when refused as
// ReasonDuplicate. It is 0 for other decisions.
func Amount(d core.Decision) int64 {
	amount, _ := core.ClaimOf[share](d)
	return int64(amount)
}

// Settle implements Guard: it does nothing, since what was grabbed is the user's.
func (g *Guard) Settle(context.Context, core.Decision, core.Ending) error { return nil }

// Refund takes what nobody has grabbed out of a packet that has expired, and returns the amount. Later calls return it again,
// and take nothing out: who pays it back should do so once for each packet. A packet that has not expired is an
// ErrPacketOpen, one that is not there an ErrNoPacket.
func (g *Guard) Refund(ctx context.Context, id string) (int64, error) {
	return core.Look(ctx, &g.Base, "refund", core.Attempt{}, func() (int64, error) { return g.refund(ctx, id) })
}

func (g *Guard) refund(ctx context.Context, id string) (int64, error) {
	if id == "" { // without a tag, the keys would be in several slots
		return 0, ErrNoPacket
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), redPacketRefundScript, g.packetKeys(id)[:3],
		g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return 0, err
	}
	r := core.ReadReply(value, 2, 2)
	reason, amount := core.Reason(r.Text()), r.Number()
	switch {
	case r.Err != nil:
		return 0, r.Err
	case reason == core.ReasonNotReady:
		return 0, ErrNoPacket
	case reason == core.ReasonEarly:
		return 0, ErrPacketOpen
	}
	return amount, nil
}

// Audit returns what has become of a packet, as it is at one moment, or ErrNoPacket. A packet that does not add up, because
// somebody has meddled with its keys, is an error as well, and is returned as it is.
func (g *Guard) Verify(ctx context.Context, id string) (Verification, error) {
	return core.Look(ctx, &g.Base, "audit", core.Attempt{}, func() (Verification, error) { return g.audit(ctx, id) })
}

func (g *Guard) audit(ctx context.Context, id string) (Verification, error) {
	if id == "" {
		return Verification{}, ErrNoPacket
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), redPacketAuditScript, g.packetKeys(id)[:3])
	if err != nil {
		return Verification{}, err
	}
	r := core.ReadReply(value, 7, 7)
	p := Packet{Total: r.Number(), Min: r.Number()}
	p.Expires, p.Shares = time.UnixMilli(r.Number()), int(r.Number())
	refunded, left, grabbed := r.Number(), r.Texts(), r.Texts()
	if r.Err != nil {
		return Verification{}, r.Err
	}
	if p.Total == 0 {
		return Verification{}, ErrNoPacket
	}

	audit := Verification{Packet: p, Grabbed: make(map[string]int64, len(grabbed)/2), Refunded: refunded}
	sum := refunded
	for _, text := range left {
		amount, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return Verification{}, fmt.Errorf("packet %.100q: %w", id, err)
		}
		audit.Left = append(audit.Left, amount)
		sum += amount
	}
	for pair := range slices.Chunk(grabbed, 2) {
		amount, err := strconv.ParseInt(pair[len(pair)-1], 10, 64)
		if err != nil {
			return Verification{}, fmt.Errorf("packet %.100q: %w", id, err)
		}
		audit.Grabbed[core.Decode(pair[0])] = amount
		sum += amount
	}
	if sum != p.Total {
		return audit, fmt.Errorf("packet %.100q: left, grabbed and refunded are %d, and the total is %d", id, sum, p.Total)
	}
	return audit, nil
}

// packetKeys are the keys of one packet; scripts that do not need the operations take the others only.
func (g *Guard) packetKeys(id string) []string {
	t := core.Encode(id)
	return []string{
		g.Key(t, "packet"), g.Key(t, "shares"), g.Key(t, "grabs"), g.Key(t, "operations"),
	}
}
