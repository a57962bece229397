package adaptertest

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// The bodies that more than one refusal has.
var (
	limited   = limitedBy("limit")
	overLimit = exceeded("over_limit", "This request asks for more than the limit allows at all.", "limit", "")
	banned    = problemOf(abnormalUsage, "Abnormal Usage Detected", 429,
		"Too many requests were refused. Wait before you try again.",
		`"reason":"banned","violated-policies":["bans"]`)
	denied   = problem(403, "denied", "Access Denied", "You do not have access.", "")
	closed   = problem(409, "closed", "Closed", "This is closed.", "")
	done     = problem(409, "done", "Already Done", "This request was already completed.", "")
	conflict = problem(422, "conflict", "Operation ID In Use",
		"This operation ID belongs to a different request.", "")
	noKey     = problem(400, "no_key", "Missing Information", "The request lacks required information.", "")
	malformed = problem(400, "malformed", "Malformed Request", "The request contains a malformed value.", "")
	invalid   = problem(400, "invalid", "Invalid Request",
		"The request asks for something that is not possible.", "")
	soldOut = problem(409, "sold_out", "Sold Out", "Sold out.", "")
	rolled  = problem(503, "day_rolled", "New Period", "A new period is just beginning. Try again.", "")
	empty   = problem(409, "empty", "All Taken", "All shares have been taken.", "")
	notSure = problem(503, "unconfirmed", "Not Confirmed",
		"This has not been confirmed. Try again, as the same operation.", "")
	notReady  = problem(503, "not_ready", "Not Ready", "This is not ready.", "")
	undecided = problem(503, "unavailable", "Temporarily Unavailable",
		"The request cannot be processed now. Try again later.", "")
	unknown = problemOf("about:blank", "Forbidden", 403, "This request was refused.", `"reason":"members_only"`)
)

// lacks is the answer to a request without a field whose name clients know.
func lacks(field string) string {
	return problem(400, "no_key", "Missing Information", `The request lacks \"`+field+`\".`, "")
}

func limitedBy(policy string) string {
	return exceeded("limited", "Too many requests. Try again later.", policy, "")
}

func duplicate(more string) string {
	return problem(409, "duplicate", "Already Done", "You have already done this.", more)
}

func notOpen(more string) string {
	return problem(409, "not_open", "Not Open", "This is not open.", more)
}

// asAnn are the headers of a request by ann and nothing else.
var asAnn = []string{}

// withCost makes a rule take its cost from the header X-Cost.
func withCost(rule pipeline.Rule) pipeline.Rule {
	rule.Cost = func(r *keyfuncs.Request) (int64, error) {
		if text := r.Header.Get("X-Cost"); text != "" {
			return strconv.ParseInt(text, 10, 64)
		}
		return 1, nil
	}
	return rule
}

func limitOf(limits ...limit.Limit) func(*scene) pipeline.Rule {
	return func(s *scene) pipeline.Rule {
		return withCost(rate(limit.NewSlidingWindow(s.gate, "limit", limits[0], limits[1:]...)))
	}
}

func poll(p votes.Poll) func(*scene) pipeline.Rule {
	return func(s *scene) pipeline.Rule { return vote(votes.New(s.gate, "vote", votes.Options{Poll: p})) }
}

func quotaOf(items int) func(*scene) pipeline.Rule {
	return func(s *scene) pipeline.Rule { return vote(s.quota(items, period.Daily(time.UTC))) }
}

func sale(sale seckill.Sale) func(*scene) pipeline.Rule {
	return func(s *scene) pipeline.Rule { return withCost(claim(s.sale("sale", sale))) }
}

func packet(p redpacket.Packet) func(*scene) pipeline.Rule {
	return func(s *scene) pipeline.Rule { return withCost(claim(s.packet(p))) }
}

// bare makes a rule take operation IDs as they come.
func bare(rule func(*scene) pipeline.Rule) func(*scene) pipeline.Rule {
	return func(s *scene) pipeline.Rule {
		r := rule(s)
		r.BareID = true
		return r
	}
}

var limitRefusals = []refusal{
	{"limited", limitOf(limit.PerMinute(1)), [][]string{asAnn}, 0, asAnn, golden{429, "60", limited}},
	{"limited, Retry-After rounded up", limitOf(limit.PerMinute(1)), [][]string{asAnn}, 1500 * time.Millisecond,
		asAnn,
		golden{429, "59", limited}},
	{"limited for a microsecond more", limitOf(limit.PerMinute(1)), [][]string{asAnn},
		time.Minute - time.Microsecond, asAnn,
		golden{429, "1", limited}},
	{"limited by the second of two limits", limitOf(limit.PerSecond(9), limit.PerHour(1)), [][]string{asAnn},
		time.Minute, asAnn,
		golden{429, "3540", limitedBy("limit/1h")}},
	{"fewer left than asked for by a limit", limitOf(limit.PerMinute(3)), [][]string{{"X-Cost: 2"}}, 0,
		[]string{"X-Cost: 2"},
		golden{429, "60", limited}},
	{"over the limit", limitOf(limit.PerMinute(3)), nil, 0, []string{"X-Cost: 4"}, golden{429, "", overLimit}},
	{"a cost of nothing", limitOf(limit.PerMinute(3)), nil, 0, []string{"X-Cost: 0"}, golden{400, "", invalid}},
	{"a negative cost", limitOf(limit.PerMinute(3)), nil, 0, []string{"X-Cost: -2"}, golden{400, "", invalid}},
	{"a cost that is no number", limitOf(limit.PerMinute(3)), nil, 0, []string{"X-Cost: many"},
		golden{400, "", invalid}},
}

var voteRefusals = []refusal{
	{"voted before", poll(votes.Poll{}), [][]string{asAnn}, 0, []string{"X-Choice: blue"},
		golden{409, "", duplicate(`,"choices":["red"]`)}},
	{"voted before, for what would be markup", poll(votes.Poll{}), [][]string{{`X-Choice: <b>"&`}}, 0, asAnn,
		golden{409, "", duplicate(`,"choices":["\u003cb\u003e\"\u0026"]`)}},
	{"all choices used", poll(votes.Poll{PerVoter: 2}), [][]string{asAnn, {"X-Choice: blue"}}, 0,
		[]string{"X-Choice: green"},
		golden{429, "", exceeded("quota", "All that is allowed has been used.", "vote",
			`,"choices":["red","blue"]`)}},
	{"all votes of the day used", poll(votes.Poll{PerVoter: 5, PerChoice: 5, PerDay: 1}), [][]string{asAnn}, 0,
		asAnn,
		golden{429, noonToMidnight, exceeded("quota", "All that is allowed has been used.", "vote",
			`,"choices":["red"]`)}},
	{"one choice chosen as often as allowed", poll(votes.Poll{PerVoter: 5, PerChoice: 2}),
		[][]string{asAnn, asAnn}, 0, asAnn,
		golden{409, "", duplicate(`,"choices":["red","red"]`)}},
	{"chosen before, where votes may be changed", poll(votes.Poll{Change: true}),
		[][]string{asAnn, {"X-Choice: blue"}}, 0,
		[]string{"X-Choice: blue"}, golden{409, "", duplicate(`,"choices":["blue"]`)}},
	{"before the poll opens", poll(votes.Poll{Opens: noon.Add(90 * time.Second)}), nil, 100 * time.Millisecond,
		asAnn,
		golden{409, "90", notOpen("")}},
	{"no such poll", func(s *scene) pipeline.Rule {
		return vote(votes.New(s.gate, "vote", votes.Options{Find: polls{}.find}))
	}, nil, 0, asAnn, golden{409, "", notOpen("")}},
	{"after the poll has closed", poll(votes.Poll{Closes: noon.Add(time.Hour)}), nil, time.Hour, asAnn,
		golden{409, "", closed}},
	{"not a choice", poll(votes.Poll{Choices: []string{"red"}}), nil, 0, []string{"X-Choice: pink"},
		golden{400, "", invalid}},
	{"another's operation ID", bare(poll(votes.Poll{})), [][]string{{"Idempotency-Key: k1"}}, 0,
		[]string{"Idempotency-Key: k1", "X-User: bob"}, golden{422, "", conflict}},
	{"no choice", poll(votes.Poll{}), nil, 0, []string{"X-Choice:"}, golden{400, "", noKey}},
	{"nobody", poll(votes.Poll{}), nil, 0, []string{"X-User:"}, golden{400, "", noKey}},
	{"a malformed operation ID", poll(votes.Poll{}), nil, 0, []string{`Idempotency-Key: "k1`},
		golden{400, "", malformed}},
}

// noonToMidnight is the Retry-After of a day that is used up at noon.
const noonToMidnight = "43200"

var quotaRefusals = []refusal{
	{"all different things used", quotaOf(1), [][]string{asAnn, asAnn}, 0, []string{"X-Choice: blue"},
		golden{429, noonToMidnight, exceeded("quota", "All that is allowed has been used.", "quota", "")}},
	{"another's operation ID for a thing", quotaOf(2), [][]string{{"Idempotency-Key: k1"}}, 0,
		[]string{"Idempotency-Key: k1", "X-Choice: blue"}, golden{422, "", conflict}},
	{"no thing", quotaOf(1), nil, 0, []string{"X-Choice:"}, golden{400, "", noKey}},
	{"two of a thing", func(s *scene) pipeline.Rule { return withCost(quotaOf(1)(s)) }, nil, 0,
		[]string{"X-Cost: 2"},
		golden{400, "", invalid}},
	{"a day that ends meanwhile", func(*scene) pipeline.Rule {
		return claim(&stub{name: "quota", check: func(a core.Attempt) (core.Decision, error) {
			return core.Decision{Attempt: a, Reason: core.ReasonDayRolled, RetryAfter: time.Second}, nil
		}})
	}, nil, 0, asAnn, golden{503, "1", rolled}},
}

var saleRefusals = []refusal{
	{"sold out", sale(seckill.Sale{Stock: 1}), [][]string{asAnn}, 0, []string{"X-User: bob"},
		golden{409, "", soldOut}},
	{"fewer left than asked for", sale(seckill.Sale{Stock: 3, PerBuyer: 9}), [][]string{{"X-Cost: 2"}}, 0,
		[]string{"X-Cost: 2", "X-User: bob"}, golden{409, "", soldOut}},
	{"bought before", sale(seckill.Sale{Stock: 2}), [][]string{asAnn}, 0, asAnn, golden{409, "", duplicate("")}},
	{"before the sale opens", sale(seckill.Sale{Stock: 1, Opens: noon.Add(time.Minute)}), nil, time.Millisecond,
		asAnn,
		golden{429, "60", problem(429, "early", "Not Begun", "The sale has not begun yet.", "")}},
	{"after the sale has closed", sale(seckill.Sale{Stock: 1, Closes: noon.Add(time.Hour)}), nil, time.Hour,
		asAnn,
		golden{409, "", closed}},
	{"not on sale", func(s *scene) pipeline.Rule {
		return claim(seckill.New(s.gate, "sale", seckill.Options{}))
	}, nil, 0, asAnn, golden{503, "", notReady}},
	{"another's operation ID for a purchase", bare(sale(seckill.Sale{Stock: 2})),
		[][]string{{"Idempotency-Key: k1"}}, 0,
		[]string{"Idempotency-Key: k1", "X-User: bob"}, golden{422, "", conflict}},
	{"nobody has confirmed the reservation", func(s *scene) pipeline.Rule {
		// there is no replica
		g := seckill.New(s.gate, "sale", seckill.Options{Durability: seckill.Acked, AckWithin: time.Millisecond})
		if _, err := g.Open(s.Context(), "t1", seckill.Sale{Stock: 1}); !errors.Is(err, core.ErrUnconfirmed) {
			s.Errorf("Open: %v", err)
		}
		return claim(g)
	}, nil, 0, []string{"Idempotency-Key: k1"}, golden{503, "1", notSure}},
	{"a stock that its rule speaks of", func(s *scene) pipeline.Rule {
		rule := sale(seckill.Sale{Stock: 1})(s)
		rule.Headers.Unit = "pieces"
		return rule
	}, [][]string{asAnn}, 0, []string{"X-User: bob"}, golden{409, "", soldOut}},
	{"limited by a rule that hides its figures", func(s *scene) pipeline.Rule {
		rule := limitOf(limit.PerMinute(1))(s)
		rule.Headers.Hide = true
		return rule
	}, [][]string{asAnn}, 0, asAnn, golden{429, "60",
		strings.Replace(limited, `,"violated-policies":["limit"]`, "", 1)}},
	{"a quantity of nothing", sale(seckill.Sale{Stock: 1}), nil, 0, []string{"X-Cost: 0"},
		golden{400, "", invalid}},
	{"a negative quantity", sale(seckill.Sale{Stock: 1}), nil, 0, []string{"X-Cost: -1"},
		golden{400, "", invalid}},
	{"a quantity that no script can count", sale(seckill.Sale{Stock: 1}), nil, 0,
		[]string{"X-Cost: 9007199254740992"},
		golden{400, "", invalid}},
	{"the largest quantity", sale(seckill.Sale{Stock: 1}), nil, 0, []string{"X-Cost: 9223372036854775807"},
		golden{400, "", invalid}},
	{"a quantity beyond that", sale(seckill.Sale{Stock: 1}), nil, 0, []string{"X-Cost: 9223372036854775808"},
		golden{400, "", invalid}},
}

var packetRefusals = []refusal{
	{"grabbed before", packet(redpacket.Packet{Total: 300, Shares: 3, Min: 100, Expires: noon.Add(time.Hour)}),
		[][]string{asAnn}, 0, asAnn,
		golden{409, "", duplicate(`,"amount":100`)}},
	{"grabbed before, and the packet has expired",
		packet(redpacket.Packet{Total: 1<<53 - 1, Shares: 1, Expires: noon.Add(time.Hour)}),
		[][]string{asAnn}, time.Hour, asAnn, golden{409, "", duplicate(`,"amount":9007199254740991`)}},
	{"all shares grabbed", packet(redpacket.Packet{Total: 1, Shares: 1, Expires: noon.Add(time.Hour)}),
		[][]string{asAnn}, 0,
		[]string{"X-User: bob"}, golden{409, "", empty}},
	{"after the packet has expired", packet(redpacket.Packet{Total: 1, Shares: 1, Expires: noon.Add(time.Hour)}),
		nil, time.Hour, asAnn,
		golden{409, "", closed}},
	{"no such packet", func(s *scene) pipeline.Rule {
		return claim(redpacket.New(s.gate, "packet", redpacket.Options{}))
	}, nil, 0, asAnn, golden{503, "", notReady}},
	{"another's operation ID for a share",
		bare(packet(redpacket.Packet{Total: 2, Shares: 2, Expires: noon.Add(time.Hour)})),
		[][]string{{"Idempotency-Key: k1"}}, 0, []string{"Idempotency-Key: k1", "X-User: bob"},
		golden{422, "", conflict}},
	{"two shares at once", packet(redpacket.Packet{Total: 2, Shares: 2, Expires: noon.Add(time.Hour)}), nil, 0,
		[]string{"X-Cost: 2"},
		golden{400, "", invalid}},
}

var otherRefusals = []refusal{
	{"banned for a minute and a half", func(s *scene) pipeline.Rule {
		rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerMinute(9)))
		rule.Bans = bans.New(s.gate, "bans", bans.Options{})
		if err := rule.Bans.(*bans.Guard).Ban(s.Context(), core.Attempt{Actor: "ann"}, 90*time.Second); err != nil {
			s.Error(err)
		}
		return rule
	}, [][]string{{"X-User: bob"}}, 0, asAnn, golden{429, "90", banned}},
	{"denied by the list", func(s *scene) pipeline.Rule {
		rule := rate(limit.NewSlidingWindow(s.gate, "limit", limit.PerMinute(9)))
		rule.Deny = keyfuncs.NewList(keyfuncs.User(UserKey), "ann")
		return rule
	}, [][]string{{"X-User: bob"}}, 0, asAnn, golden{403, "", denied}},
	{"Redis is down", func(s *scene) pipeline.Rule {
		return claim(seckill.New(s.down(), "sale", seckill.Options{}))
	}, nil, 0, asAnn, golden{503, "1", undecided}},
	{"the poll cannot be looked up", func(s *scene) pipeline.Rule {
		find := polls{"t1": errors.New("dial tcp 127.0.0.1:5432: connect: connection refused")}.find
		return vote(votes.New(s.gate, "vote", votes.Options{Find: find}))
	}, nil, 0, asAnn, golden{503, "1", undecided}},
	{"an application's own reason", func(*scene) pipeline.Rule {
		return claim(&stub{name: "members", check: refusing("members", "members_only")})
	}, nil, 0, asAnn, golden{http.StatusForbidden, "", unknown}},
	{"a reservation that is over", func(*scene) pipeline.Rule {
		return claim(&stub{name: "own", check: refusing("own", core.ReasonGone)})
	}, nil, 0, asAnn, golden{409, "", problem(409, "gone", "Reservation Over", "The reservation is over.", "")}},
}

// figures are the values of the RateLimit fields of a refused answer.
type figures struct{ policy, limit string }

// figuresOf holds the refusals by rules that have figures for clients, by their names.
var figuresOf = map[string]figures{
	"limited":                         {`"limit";q=1;w=60`, `"limit";r=0;t=60`},
	"limited, Retry-After rounded up": {`"limit";q=1;w=60`, `"limit";r=0;t=59`},
	"limited for a microsecond more":  {`"limit";q=1;w=60`, `"limit";r=0;t=1`},
	"limited by the second of two limits": {`"limit/1s";q=9;w=1, "limit/1h";q=1;w=3600`,
		`"limit/1h";r=0;t=3540`},
	"fewer left than asked for by a limit": {`"limit";q=3;w=60`, `"limit";r=1;t=60`},
	"over the limit":                       {`"limit";q=3;w=60`, ""}, // nobody has asked what is left
	"all different things used":            {`"quota";q=1;qu="items";w=86400`, `"quota";r=0;t=43200`},
	"another's operation ID for a thing":   {`"quota";q=2;qu="items";w=86400`, `"quota";r=1;t=43200`},
	"a stock that its rule speaks of":      {`"sale";q=1;qu="pieces"`, `"sale";r=0`},
}
