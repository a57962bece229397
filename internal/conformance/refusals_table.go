package conformance

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// The bodies that more than one refusal has.
var (
	limited   = problem(429, "limited", "Too Many Requests", "Too many requests. Try again later.", "")
	overLimit = problem(429, "over_limit", "Too Many Requests", "This request asks for more than the limit allows at all.", "")
	banned    = problem(429, "banned", "Too Many Requests", "Refused too often. Stop for a while.", "")
	denied    = problem(403, "denied", "Forbidden", "This is not open to you.", "")
	closed    = problem(409, "closed", "Conflict", "This is closed.", "")
	conflict  = problem(422, "conflict", "Unprocessable Entity", "This operation ID belongs to a different request.", "")
	noKey     = problem(400, "no_key", "Bad Request", "The request lacks something that this needs to know.", "")
	malformed = problem(400, "malformed", "Bad Request", "Something in the request that this needs to know is malformed.", "")
	invalid   = problem(400, "invalid", "Bad Request", "The request asks for something that does not exist.", "")
	soldOut   = problem(409, "sold_out", "Conflict", "Sold out.", "")
	rolled    = problem(503, "day_rolled", "Service Unavailable", "A new period is just beginning. Try again.", "")
	empty     = problem(409, "empty", "Conflict", "All shares have been taken.", "")
	notReady  = problem(503, "not_ready", "Service Unavailable", "This is not ready.", "")
	undecided = problem(503, "unavailable", "Service Unavailable", "This can not be decided right now. Try again later.", "")
	unknown   = problem(403, "members_only", "Forbidden", "This request was refused.", "")
)

func duplicate(more string) string {
	return problem(409, "duplicate", "Conflict", "This has been done before, as often as is allowed.", more)
}

func notOpen(more string) string {
	return problem(409, "not_open", "Conflict", "This is not open.", more)
}

// asAnn are the headers of a request that says nothing else.
var asAnn = []string{}

// withCost adds to a rule that the header X-Cost says how much is asked for.
func withCost(rule nethttpmw.Rule) nethttpmw.Rule {
	rule.Cost = func(r *keyfuncs.Request) (int64, error) {
		if text := r.Header.Get("X-Cost"); text != "" {
			return strconv.ParseInt(text, 10, 64)
		}
		return 1, nil
	}
	return rule
}

func limitOf(limits ...core.Limit) func(*scene) nethttpmw.Rule {
	return func(s *scene) nethttpmw.Rule {
		return withCost(limit(s.gate.SlidingWindow("limit", limits[0], limits[1:]...)))
	}
}

func poll(p core.Poll) func(*scene) nethttpmw.Rule {
	return func(s *scene) nethttpmw.Rule { return vote(s.gate.Votes("vote", core.VoteOptions{Poll: p})) }
}

func quotaOf(items int) func(*scene) nethttpmw.Rule {
	return func(s *scene) nethttpmw.Rule { return vote(s.quota(items, core.Daily(time.UTC))) }
}

func sale(sale core.Sale) func(*scene) nethttpmw.Rule {
	return func(s *scene) nethttpmw.Rule { return withCost(claim(s.sale("sale", sale))) }
}

func packet(p core.Packet) func(*scene) nethttpmw.Rule {
	return func(s *scene) nethttpmw.Rule { return withCost(claim(s.packet("packet", p))) }
}

var limitRefusals = []refusal{
	{"limited", limitOf(core.PerMinute(1)), [][]string{asAnn}, 0, asAnn, golden{429, "60", limited}},
	{"limited, Retry-After rounded up", limitOf(core.PerMinute(1)), [][]string{asAnn}, 1500 * time.Millisecond, asAnn,
		golden{429, "59", limited}},
	{"limited for a microsecond more", limitOf(core.PerMinute(1)), [][]string{asAnn}, time.Minute - time.Microsecond, asAnn,
		golden{429, "1", limited}},
	{"limited by the second of two limits", limitOf(core.PerSecond(9), core.PerHour(1)), [][]string{asAnn}, time.Minute, asAnn,
		golden{429, "3540", limited}},
	{"over the limit", limitOf(core.PerMinute(3)), nil, 0, []string{"X-Cost: 4"}, golden{429, "", overLimit}},
	{"a cost of nothing", limitOf(core.PerMinute(3)), nil, 0, []string{"X-Cost: 0"}, golden{400, "", invalid}},
	{"a negative cost", limitOf(core.PerMinute(3)), nil, 0, []string{"X-Cost: -2"}, golden{400, "", invalid}},
	{"a cost that is no number", limitOf(core.PerMinute(3)), nil, 0, []string{"X-Cost: many"}, golden{400, "", invalid}},
}

var voteRefusals = []refusal{
	{"voted before", poll(core.Poll{}), [][]string{asAnn}, 0, []string{"X-Choice: blue"},
		golden{409, "", duplicate(`,"choices":["red"]`)}},
	{"voted before, for what would be markup", poll(core.Poll{}), [][]string{{`X-Choice: <b>"&`}}, 0, asAnn,
		golden{409, "", duplicate(`,"choices":["\u003cb\u003e\"\u0026"]`)}},
	{"all choices used", poll(core.Poll{PerVoter: 2}), [][]string{asAnn, {"X-Choice: blue"}}, 0, []string{"X-Choice: green"},
		golden{429, "", problem(429, "quota", "Too Many Requests", "All that is allowed has been used.",
			`,"choices":["red","blue"]`)}},
	{"all votes of the day used", poll(core.Poll{PerVoter: 5, PerChoice: 5, PerDay: 1}), [][]string{asAnn}, 0, asAnn,
		golden{429, noonToMidnight, problem(429, "quota", "Too Many Requests", "All that is allowed has been used.",
			`,"choices":["red"]`)}},
	{"one choice chosen as often as allowed", poll(core.Poll{PerVoter: 5, PerChoice: 2}), [][]string{asAnn, asAnn}, 0, asAnn,
		golden{409, "", duplicate(`,"choices":["red","red"]`)}},
	{"chosen before, where votes may be changed", poll(core.Poll{Change: true}), [][]string{asAnn, {"X-Choice: blue"}}, 0,
		[]string{"X-Choice: blue"}, golden{409, "", duplicate(`,"choices":["blue"]`)}},
	{"before the poll opens", poll(core.Poll{Opens: noon.Add(90 * time.Second)}), nil, 100 * time.Millisecond, asAnn,
		golden{409, "90", notOpen("")}},
	{"no such poll", func(s *scene) nethttpmw.Rule {
		return vote(s.gate.Votes("vote", core.VoteOptions{Find: polls{}.find}))
	}, nil, 0, asAnn, golden{409, "", notOpen("")}},
	{"after the poll has closed", poll(core.Poll{Closes: noon.Add(time.Hour)}), nil, time.Hour, asAnn, golden{409, "", closed}},
	{"not a choice", poll(core.Poll{Choices: []string{"red"}}), nil, 0, []string{"X-Choice: pink"}, golden{400, "", invalid}},
	{"another's operation ID", poll(core.Poll{}), [][]string{{"Idempotency-Key: k1"}}, 0,
		[]string{"Idempotency-Key: k1", "X-User: bob"}, golden{422, "", conflict}},
	{"no choice", poll(core.Poll{}), nil, 0, []string{"X-Choice:"}, golden{400, "", noKey}},
	{"nobody", poll(core.Poll{}), nil, 0, []string{"X-User:"}, golden{400, "", noKey}},
	{"a malformed operation ID", poll(core.Poll{}), nil, 0, []string{`Idempotency-Key: "k1`}, golden{400, "", malformed}},
}

// noonToMidnight is Retry-After for who has used a day up at noon.
const noonToMidnight = "43200"

var quotaRefusals = []refusal{
	{"all different things used", quotaOf(1), [][]string{asAnn, asAnn}, 0, []string{"X-Choice: blue"},
		golden{429, noonToMidnight, problem(429, "quota", "Too Many Requests", "All that is allowed has been used.", "")}},
	{"another's operation ID for a thing", quotaOf(2), [][]string{{"Idempotency-Key: k1"}}, 0,
		[]string{"Idempotency-Key: k1", "X-Choice: blue"}, golden{422, "", conflict}},
	{"no thing", quotaOf(1), nil, 0, []string{"X-Choice:"}, golden{400, "", noKey}},
	{"two of a thing", func(s *scene) nethttpmw.Rule { return withCost(quotaOf(1)(s)) }, nil, 0, []string{"X-Cost: 2"},
		golden{400, "", invalid}},
	{"a day that ends meanwhile", func(*scene) nethttpmw.Rule {
		return claim(&stub{name: "quota", check: func(a core.Attempt) (core.Decision, error) {
			return core.Decision{Attempt: a, Reason: core.ReasonDayRolled, RetryAfter: time.Second}, nil
		}})
	}, nil, 0, asAnn, golden{503, "1", rolled}},
}

var saleRefusals = []refusal{
	{"sold out", sale(core.Sale{Stock: 1}), [][]string{asAnn}, 0, []string{"X-User: bob"}, golden{409, "", soldOut}},
	{"fewer left than asked for", sale(core.Sale{Stock: 3, PerBuyer: 9}), [][]string{{"X-Cost: 2"}}, 0,
		[]string{"X-Cost: 2", "X-User: bob"}, golden{409, "", soldOut}},
	{"bought before", sale(core.Sale{Stock: 2}), [][]string{asAnn}, 0, asAnn, golden{409, "", duplicate("")}},
	{"before the sale opens", sale(core.Sale{Stock: 1, Opens: noon.Add(time.Minute)}), nil, time.Millisecond, asAnn,
		golden{429, "60", problem(429, "early", "Too Many Requests", "The sale has not begun yet.", "")}},
	{"after the sale has closed", sale(core.Sale{Stock: 1, Closes: noon.Add(time.Hour)}), nil, time.Hour, asAnn,
		golden{409, "", closed}},
	{"not on sale", func(s *scene) nethttpmw.Rule {
		return claim(s.gate.Seckill("sale", core.SeckillOptions{}))
	}, nil, 0, asAnn, golden{503, "", notReady}},
	{"another's operation ID for a purchase", sale(core.Sale{Stock: 2}), [][]string{{"Idempotency-Key: k1"}}, 0,
		[]string{"Idempotency-Key: k1", "X-User: bob"}, golden{422, "", conflict}},
	{"a quantity of nothing", sale(core.Sale{Stock: 1}), nil, 0, []string{"X-Cost: 0"}, golden{400, "", invalid}},
}

var packetRefusals = []refusal{
	{"grabbed before", packet(core.Packet{Total: 300, Shares: 3, Min: 100, Expires: noon.Add(time.Hour)}), [][]string{asAnn}, 0, asAnn,
		golden{409, "", duplicate(`,"amount":100`)}},
	{"grabbed before, and the packet has expired", packet(core.Packet{Total: 1<<53 - 1, Shares: 1, Expires: noon.Add(time.Hour)}),
		[][]string{asAnn}, time.Hour, asAnn, golden{409, "", duplicate(`,"amount":9007199254740991`)}},
	{"all shares grabbed", packet(core.Packet{Total: 1, Shares: 1, Expires: noon.Add(time.Hour)}), [][]string{asAnn}, 0,
		[]string{"X-User: bob"}, golden{409, "", empty}},
	{"after the packet has expired", packet(core.Packet{Total: 1, Shares: 1, Expires: noon.Add(time.Hour)}), nil, time.Hour, asAnn,
		golden{409, "", closed}},
	{"no such packet", func(s *scene) nethttpmw.Rule {
		return claim(s.gate.RedPacket("packet", core.RedPacketOptions{}))
	}, nil, 0, asAnn, golden{503, "", notReady}},
	{"another's operation ID for a share", packet(core.Packet{Total: 2, Shares: 2, Expires: noon.Add(time.Hour)}),
		[][]string{{"Idempotency-Key: k1"}}, 0, []string{"Idempotency-Key: k1", "X-User: bob"}, golden{422, "", conflict}},
	{"two shares at once", packet(core.Packet{Total: 2, Shares: 2, Expires: noon.Add(time.Hour)}), nil, 0, []string{"X-Cost: 2"},
		golden{400, "", invalid}},
}

var otherRefusals = []refusal{
	{"banned for a minute and a half", func(s *scene) nethttpmw.Rule {
		rule := limit(s.gate.SlidingWindow("limit", core.PerMinute(9)))
		rule.Bans = s.gate.Bans("bans", core.BanOptions{})
		if err := rule.Bans.Ban(s.Context(), core.Attempt{Actor: "ann"}, 90*time.Second); err != nil {
			s.Error(err)
		}
		return rule
	}, [][]string{{"X-User: bob"}}, 0, asAnn, golden{429, "90", banned}},
	{"denied by the list", func(s *scene) nethttpmw.Rule {
		rule := limit(s.gate.SlidingWindow("limit", core.PerMinute(9)))
		rule.Deny = keyfuncs.NewList(keyfuncs.User(UserKey), "ann")
		return rule
	}, [][]string{{"X-User: bob"}}, 0, asAnn, golden{403, "", denied}},
	{"Redis is down", func(s *scene) nethttpmw.Rule {
		return claim(s.down().Seckill("sale", core.SeckillOptions{}))
	}, nil, 0, asAnn, golden{503, "1", undecided}},
	{"the poll can not be looked up", func(s *scene) nethttpmw.Rule {
		find := polls{"t1": errors.New("dial tcp 127.0.0.1:5432: connect: connection refused")}.find
		return vote(s.gate.Votes("vote", core.VoteOptions{Find: find}))
	}, nil, 0, asAnn, golden{503, "1", undecided}},
	{"an application's own reason", func(*scene) nethttpmw.Rule {
		return claim(&stub{name: "members", check: refusing("members", "members_only")})
	}, nil, 0, asAnn, golden{http.StatusForbidden, "", unknown}},
	{"a reservation that is over", func(*scene) nethttpmw.Rule {
		return claim(&stub{name: "own", check: refusing("own", core.ReasonGone)})
	}, nil, 0, asAnn, golden{409, "", problem(409, "gone", "Conflict", "The reservation is over.", "")}},
}
