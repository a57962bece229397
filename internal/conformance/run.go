package conformance

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// check is one property that must hold.
type check struct {
	name string
	run  func(*scene)
	real bool // holds on a real server too: it moves no clock
}

var checks = []check{
	{"refusals are the same in every framework", refusalsAreGolden, false},
	{"a refused request gets no further", refusedGetsNoFurther, true},
	{"what a request took is settled by how it ended", endingsSettle, true},
	{"and over HTTP/2", endingsSettleOverHTTP2, false},
	{"what a request took is settled by its answer, whatever becomes of the connection", endingsOnTheWire,
		false},
	{"half-closed connections are counted", halfClosedConnectionsAreCounted, true},
	{"a timeout of the context does not oversell", timeoutsDoNotOversell, true},
	{"a slow body does not outlast the hold", slowBodiesDoNotOutlastTheHold, false},
	{"a client that writes slowly is served", slowWritersAreServed, false},
	{"an answer that cannot be confirmed is not given", unconfirmedAnswersAreNotGiven, false},
	{"a panic after a yes changes nothing", panicsAfterAYesChangeNothing, false},
	{"every answer says how much is left, however it ends", everyEndingHasHeaders, false},
	{"the framework's recoverer changes nothing", recoverersChangeNothing, false},
	{"a panic gets to an outer recoverer as it is", panicsPass, false},
	{"Failed gets the status", failedGetsTheStatus, false},
	{"only failed logins count, where a rule says so", onlyFailedLoginsCount, true},
	{"a guard that cannot settle does not change the answer", settlingErrorsAreSilent, false},
	{"rules are asked in order", rulesAreAskedInOrder, false},
	{"several rules are all or nothing", allOrNothing, true},
	{"limits that are asked together are all or nothing", limitsTogether, true},
	{"a burst of one user starves nobody", burstsStarveNobody, true},
	{"what earlier rules took is given back, the latest first", latestFirst, false},
	{"the figures of several middlewares add up", figuresAddUp, false},
	{"pages of other origins read the figures", pagesOfOtherOriginsRead, false},
	{"a forged preflight claims nothing and gets nothing", forgedPreflightsGetNothing, true},
	{"a rule says which figures are told", headersAsTheRuleSays, false},
	{"limits that decide inside the process have figures too", localFigures, false},
	{"who has no limit is let through without figures", unlimitedTiersPass, false},
	{"a refusal comes in the form that the client accepts", formsAsAccepted, false},
	{"a rule's own texts are said", textsOfTheRule, false},
	{"a rule's own answer is given, and its handler does not run", answersOfTheRule, false},
	{"an outage is answered as the rule says", outages, false},
	{"a request without a key", missingKeys, false},
	{"a refusal without a decision leaves a trace", refusalsLeaveATrace, false},
	{"a parameter that the route does not have is warned of", unknownParamsAreWarnedOf, false},
	{"lists are asked before anything else", listsGoFirst, false},
	{"a user who is refused too often is banned", bansFollowRefusals, true},
	{"forwarding headers of strangers change nothing", rotatingHeadersChangeNothing, true},
	{"what clients and proxies say about who calls", spoofedAddresses, false},
	{"what they say about it on the wire", spoofedAddressesOnTheWire, false},
	{"one spelling of a path is as good as another", spellingsAreOne, false},
	{"routes have budgets of their own where What says so", routesCount, false},
	{"a rule that is mounted twice has one budget", oneRuleOneBudget, false},
	{"a request that meets a rule twice is warned of", twiceIsWarnedOf, false},
	{"a route that is not known yet is warned of", unroutedIsWarnedOf, false},
	{"a limit around the application sees what no route matches", unmatchedCounts, false},
	{"handlers find the decisions of all middlewares", decisionsAreFound, true},
	{"a reservation that is taken waits for its Confirm", takenWaits, true},
	{"an operation ID makes a retry harmless", replays, true},
	{"an operation is done once, and its answer is replayed", operationsAreDoneOnce, true},
	{"an operation is kept or begins anew by how its request ended", operationsSettle, true},
	{"operations and claims agree", operationsAndClaimsAgree, true},
	{"a replay of what is done does not run the handler", replaysAreAnswered, false},
	{"one key makes one order", oneKeyMakesOneOrder, true},
	{"a purchase that is paid later can be asked for again", paidLaterIsAnsweredAgain, true},
	{"operation IDs of clients are their own", idsAreTheActors, true},
	{"a known item of a quota is free", knownItemsAreFree, true},
	{"a vote is changed where the poll allows it", votesAreChanged, true},
	{"buyers at the same moment never oversell", buyersNeverOversell, true},
	{"a permit is held while the request runs, and no longer", permitsAreHeld, true},
	{"a permit that is lost ends the context of the request", lostPermitsEndTheContext, true},
	{"what a request has cost is settled, however it ends", spentStaysSpent, false},
	{"an estimate is corrected by what a request has cost", costsAreSettled, true},
	{"costs that cannot be are errors", costsThatCannotBe, false},
	{"a lock is held while the request runs, and no longer", locksAreHeld, true},
	{"a lock that is lost ends the context of the request", lostLocksEndTheContext, true},
	{"a refused request runs later, where a rule says so", refusalsRunLater, true},
	{"what runs later is judged as it would have been at once", laterIsJudgedAlike, true},
	{"nothing is left over, however requests end", randomEndings, true},
	{"rules are rolled out by and by", rolloutsAreGradual, false},
	{"mistakes of set-up panic", setUpMistakesPanic, false},
}

// Run runs the suite on a framework: all of it on miniredis, and what needs no clock of its own on
// redis-server as well, if it is the first framework or redistest.All is wanted. The TestMain of the package
// must be redistest.Main.
func Run(t *testing.T, f Framework) {
	t.Run("miniredis", func(t *testing.T) {
		for _, c := range checks {
			t.Run(c.name, func(t *testing.T) { c.run(newScene(t, f, redistest.Mini)) })
		}
	})
	if f.Fast || !f.First && !redistest.All() {
		return
	}
	t.Run("redis", func(t *testing.T) {
		for _, c := range checks {
			if c.real {
				t.Run(c.name, func(t *testing.T) { c.run(newScene(t, f, redistest.Single)) })
			}
		}
	})
}
