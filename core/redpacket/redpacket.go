package redpacket

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	redPacketCreateScript = script.New("red_packet_create", lua.Source("redpacket/create"), script.Idempotent)
	redPacketGrabScript   = script.New("red_packet_grab", lua.Source("redpacket/grab"), script.Idempotent)
	redPacketRefundScript = script.New("red_packet_refund", lua.Source("redpacket/refund"), script.Idempotent)
	redPacketVerifyScript = script.New("red_packet_audit", lua.Source("redpacket/audit"), script.Idempotent)
)

// Packet is an amount of money to split at random. Amounts are in minor units, such as cents, and below 2^53.
type Packet struct {
	// Total is the sum of all shares.
	Total int64 `json:"total"`
	// Shares is the number of shares, one per user, 1 to 10,000.
	Shares int `json:"shares"`
	// Min is the smallest amount of a share. Zero means 1.
	Min int64 `json:"min"`
	// Expires is when grabbing ends, to the millisecond. Required.
	Expires time.Time `json:"expires"`
}

// maxShares bounds Packet.Shares, because one call creates them all.
const maxShares = 10_000

// Verification is the state of a packet at one moment. The amounts of Left, Grabbed and Refunded always add
// up to Packet.Total.
type Verification struct {
	Packet Packet `json:"packet"`
	// Left holds the amounts that nobody has grabbed, the next one first. Do not show it to users: they could
	// wait for a better share.
	Left []int64 `json:"left"`
	// Grabbed maps each user to the amount of their share. A user ID that is longer than 1024 bytes once
	// encoded has the name by which Redis keeps it: '#' and its SHA-256 in unpadded base64url.
	Grabbed map[string]int64 `json:"grabbed"`
	// Refunded is the amount that Refund took out.
	Refunded int64 `json:"refunded"`
}

// Options configure a [Guard]. The zero value is valid.
type Options struct {
	// Keep is how long a packet is kept after it expires, for refunds, verification and users who ask again,
	// at least one second. Zero means 7 days. After that the packet is unknown, and nobody can tell which
	// amounts were neither grabbed nor refunded.
	Keep time.Duration
}

var (
	// ErrNoPacket is returned by [Guard.Refund] and [Guard.Verify] for a packet that Redis does not have: it
	// was never created, its Keep is over, or Redis lost it.
	ErrNoPacket = kit.NewError("redpacket: no such packet", core.ErrNotFound)
	// ErrLost is wrapped by the errors of a packet that has lost a part of its data in Redis, for example by
	// eviction: the packet itself, shares, or grabs. [Guard.Create], [Guard.Check] and [Guard.Refund] then
	// change nothing, and [Guard.Verify] returns what is left, as far as the packet itself is there. Check
	// denies attempts for a packet that is lost itself with core.ReasonNotReady. The answers to operation IDs
	// are not counted: where they are lost, a user who asks again is denied with core.ReasonDuplicate, and
	// gets the amount.
	ErrLost = kit.NewError("redpacket: Redis has lost a part of the packet", core.ErrNotNow)
	// ErrPacketOpen is returned by [Guard.Refund] for a packet that has not expired.
	ErrPacketOpen = kit.NewError("redpacket: the packet has not expired", core.ErrNotNow)
)

// lost wraps a script's error that says what is lost in an ErrLost. It returns other errors unchanged.
func lost(err error) error {
	if err != nil && strings.Contains(err.Error(), "GATEHOUSE lost: ") {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// Guard gives each user one share of a packet, as long as shares are left. Make one with [New]. It is safe
// for concurrent use.
//
// # Attempts
//
// The Actor is the user, the Resource the packet, and the ID names the grab. The Cost is always 1.
// [Guard.Create] makes each packet once. An attempt for a packet that does not exist is denied with
// core.ReasonNotReady.
//
// # Shares
//
// Create draws the shares with the operating system's random numbers and shuffles them, so each place in the
// queue has the same chances. Every script preserves the sum: left + grabbed + refunded = total.
//
// # Payment
//
// A grabbed share stays with its user, however the request ends: [Guard.Settle] does nothing. In a rule,
// put this guard last, so that no later guard denies the request. Pay each packet and user once, whatever
// Decision.Replayed says, because a process may die between the grab and the payment. [Guard.Verify]
// returns the amount owed to each user.
type Guard struct {
	kit.Base
	options Options
}

// New makes a guard with the given name. It panics when the name is taken or malformed, when the options are
// invalid, or when the engine has no Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	kit.NeedRedis(e, "redpacket", name)
	if options.Keep == 0 {
		options.Keep = 7 * 24 * time.Hour
	}
	if options.Keep < time.Second {
		panic(fmt.Sprintf("redpacket: Keep is %v, which leaves no time to refund the rest: "+
			"set days, at least one second (guard %q)", options.Keep, name))
	}
	scripts := []*script.Script{redPacketCreateScript, redPacketGrabScript, redPacketRefundScript,
		redPacketVerifyScript}
	return &Guard{Base: kit.Register(e, "redpacket", name, scripts...), options: options}
}

// Traits implements [core.Guard]: an attempt needs a packet, and a failed request keeps its share.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsResource: true, KeepsOnFailure: true, Outage: core.FailClosed}
}

// Create makes a packet and reports whether it did. A packet that exists with the same figures stays as it
// is, so a caller who got no answer can call again. Invalid figures, an expiry in the past, an empty ID, and
// an ID that exists with other figures are a core.ErrInvalid.
//
// Take the money from the giver first: users may grab shares as soon as the packet exists.
func (g *Guard) Create(ctx context.Context, id string, packet Packet) (bool, error) {
	return kit.Look(ctx, &g.Base, "create", core.Attempt{},
		func() (bool, error) { return g.create(ctx, id, packet) })
}

func (g *Guard) create(ctx context.Context, id string, p Packet) (bool, error) {
	if p.Min == 0 {
		p.Min = 1
	}
	if err := p.check(); err != nil {
		return false, err
	}
	if id == "" {
		return false, fmt.Errorf("%w: the packet has no ID: give it one", core.ErrInvalid)
	}
	args := []any{
		p.Total, p.Min, p.Expires.UnixMilli(), g.options.Keep.Milliseconds(), rand.Text()[:10],
		g.Engine().ScriptNow(time.Millisecond),
	}
	for _, amount := range split(secureRandom, p.Total, p.Shares, p.Min) {
		args = append(args, amount)
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), redPacketCreateScript, g.packetKeys(id),
		args...)
	if err != nil {
		return false, lost(err)
	}
	r := script.ReadReply(value, 1, 1)
	switch r.Text() {
	case "made":
		return true, nil
	case "exists":
		return false, nil
	case "other":
		return false, fmt.Errorf("%w: packet %.100q exists with other figures", core.ErrInvalid, id)
	case "expired":
		return false, fmt.Errorf("%w: packet %.100q expires at %v, which is in the past", core.ErrInvalid, id,
			p.Expires)
	}
	return false, cmp.Or(r.Err, fmt.Errorf("unexpected reply %.100q", fmt.Sprint(value)))
}

// check returns an error for figures that Create cannot use.
func (p *Packet) check() error {
	switch {
	case p.Shares < 1 || p.Shares > maxShares:
		return fmt.Errorf("%w: Shares is %d: set 1 to %d", core.ErrInvalid, p.Shares, maxShares)
	case p.Min < 1:
		return fmt.Errorf("%w: Min is %d: set 1 or more, or 0 for 1", core.ErrInvalid, p.Min)
	case p.Total > core.MaxAmount:
		return fmt.Errorf("%w: Total is %d: set at most 2^53-1", core.ErrInvalid, p.Total)
	case p.Total/int64(p.Shares) < p.Min: // the product of shares and minimum may overflow
		return fmt.Errorf("%w: Total is %d: %d shares of at least %d need more", core.ErrInvalid, p.Total, p.Shares,
			p.Min)
	case !schedule.Countable(p.Expires):
		return fmt.Errorf("%w: Expires is %v: set a time from 1970 to 2200", core.ErrInvalid, p.Expires)
	}
	return nil
}

// Check implements [core.Guard]: it grabs a share, whose amount [Amount] returns. A user who already has one
// is denied with core.ReasonDuplicate and gets the amount again. The operation ID of the grab replays
// core.ReasonOK for as long as the packet is kept.
//
// When Check returns an error, the grab may have happened, and it stays. Call Check again with the Attempt of
// the returned Decision to get its amount: that belongs to the same call, which has not been answered yet, so
// Replayed is not set. After an answer, another call with the same operation ID is a replay.
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
		return d, fmt.Errorf("%w: cost %d: set 1, because a user gets one share of a packet", core.ErrInvalid,
			a.Cost)
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), redPacketGrabScript, g.packetKeys(a.Resource),
		script.Encode(a.ID), script.EncodeUpTo(script.MaxRecord, a.Actor), a.Call(),
		g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return d, lost(err)
	}
	r := script.ReadReply(value, 5, 5)
	reason, replayed, amount, left, shares := r.Text(), r.Flag(), r.Number(), r.Number(), r.Number()
	if r.Err != nil {
		return d, r.Err
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.Attempt = a.WithoutCall() // it has been answered: a repeated attempt is another call
	d.SetClaim(share(amount))
	d.Allowed = d.Reason == core.ReasonOK
	d.Limit, d.Remaining = shares, left
	return d, nil
}

// share is the claim that a decision carries: the amount of the user's share.
type share int64

// Amount returns the amount of the user's share in minor units. For an allowed decision this attempt grabbed
// it; for a core.ReasonDuplicate an earlier one did. It is 0 for other decisions.
func Amount(d core.Decision) int64 {
	amount, _ := core.ClaimOf[share](d)
	return int64(amount)
}

// Settle implements [core.Guard]. It does nothing, because a grabbed share stays with its user.
func (g *Guard) Settle(context.Context, core.Decision, core.Ending) error { return nil }

// Refund takes the shares that nobody grabbed out of an expired packet and returns their sum. Later calls
// return the same amount and take out nothing, so pay it back once per packet. It returns [ErrPacketOpen]
// for a packet that has not expired, and [ErrNoPacket] for a packet that does not exist.
func (g *Guard) Refund(ctx context.Context, id string) (int64, error) {
	return kit.Look(ctx, &g.Base, "refund", core.Attempt{}, func() (int64, error) { return g.refund(ctx, id) })
}

func (g *Guard) refund(ctx context.Context, id string) (int64, error) {
	if id == "" { // without a hash tag, the keys would be in several slots
		return 0, ErrNoPacket
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), redPacketRefundScript,
		g.packetKeys(id)[:3],
		g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return 0, lost(err)
	}
	r := script.ReadReply(value, 2, 2)
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

// Verify returns the state of a packet at one moment, or [ErrNoPacket]. When its amounts do not add up,
// because Redis lost a part of it or something else changed its keys, Verify returns the state together with
// an [ErrLost].
func (g *Guard) Verify(ctx context.Context, id string) (Verification, error) {
	return kit.Look(ctx, &g.Base, "verify", core.Attempt{},
		func() (Verification, error) { return g.verify(ctx, id) })
}

func (g *Guard) verify(ctx context.Context, id string) (Verification, error) {
	if id == "" {
		return Verification{}, ErrNoPacket
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), redPacketVerifyScript,
		g.packetKeys(id)[:3])
	if err != nil {
		return Verification{}, lost(err)
	}
	r := script.ReadReply(value, 7, 7)
	p := Packet{Total: r.Number(), Min: r.Number()}
	p.Expires, p.Shares = time.UnixMilli(r.Number()), int(r.Number())
	refunded, left, grabbed := r.Number(), r.Texts(), r.Texts()
	if r.Err != nil {
		return Verification{}, r.Err
	}
	if p.Total == 0 {
		return Verification{}, ErrNoPacket
	}

	v := Verification{Packet: p, Grabbed: make(map[string]int64, len(grabbed)/2), Refunded: refunded}
	sum := refunded
	for _, text := range left {
		amount, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return Verification{}, fmt.Errorf("packet %.100q: %w", id, err)
		}
		v.Left = append(v.Left, amount)
		sum += amount
	}
	for pair := range slices.Chunk(grabbed, 2) {
		amount, err := strconv.ParseInt(pair[len(pair)-1], 10, 64)
		if err != nil {
			return Verification{}, fmt.Errorf("packet %.100q: %w", id, err)
		}
		v.Grabbed[script.Decode(pair[0])] = amount
		sum += amount
	}
	if sum != p.Total {
		return v, fmt.Errorf("%w: packet %.100q: left, grabbed and refunded add up to %d, but the total is %d",
			ErrLost, id, sum, p.Total)
	}
	return v, nil
}

// packetKeys returns the keys of a packet in the order of the scripts' KEYS. Some scripts take only the first
// three.
func (g *Guard) packetKeys(id string) []string {
	t := script.Encode(id)
	return []string{
		g.Key(t, "packet"), g.Key(t, "shares"), g.Key(t, "grabs"), g.Key(t, "operations"),
	}
}
