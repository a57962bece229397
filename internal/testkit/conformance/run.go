package conformance

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// check is one property that must hold.
type check struct {
	name string
	run  func(*scene)
	on   backends
	of   part
}

// backends are where a check can run.
type backends bool

const (
	mini backends = false // it moves the clock
	real backends = true  // it moves no clock, so it holds on a real server too
)

// part is what a check is about.
type part bool

const (
	shared  part = false // what all frameworks share
	adapter part = true  // what an adapter does: writer, status, context, route and parameters, decisions
)

var checks = []check{
	{"refusals are the same in every framework", refusalsAreGolden, mini, adapter},
	{"operators sign in as users of the framework do", operatorsSignIn, mini, adapter},
	{"a refused request gets no further", refusedGetsNoFurther, real, adapter},
	{"what a request took is settled by how it ended", endingsSettle, real, adapter},
	{"and over HTTP/2", endingsSettleOverHTTP2, mini, shared},
	{"what a request took is settled by its answer, whatever becomes of the connection", endingsOnTheWire, mini,
		adapter},
	{"half-closed connections are counted", halfClosedConnectionsAreCounted, real, shared},
	{"a timeout of the context does not oversell", timeoutsDoNotOversell, real, adapter},
	{"a slow body does not outlast the hold", slowBodiesDoNotOutlastTheHold, mini, shared},
	{"a client that writes slowly is served", slowWritersAreServed, mini, adapter},
	{"an answer that cannot be confirmed is not given", unconfirmedAnswersAreNotGiven, mini, adapter},
	{"a panic after a yes changes nothing", panicsAfterAYesChangeNothing, mini, adapter},
	{"every answer says how much is left, however it ends", everyEndingHasHeaders, mini, adapter},
	{"the framework's recoverer changes nothing", recoverersChangeNothing, mini, adapter},
	{"a panic gets to an outer recoverer as it is", panicsPass, mini, adapter},
	{"Failed gets the status", failedGetsTheStatus, mini, adapter},
	{"only failed logins count, where a rule says so", onlyFailedLoginsCount, real, shared},
	{"a guard that cannot settle does not change the answer", settlingErrorsAreSilent, mini, shared},
	{"rules are asked in order", rulesAreAskedInOrder, mini, adapter},
	{"several rules are all or nothing", allOrNothing, real, shared},
	{"limits that are asked together are all or nothing", limitsTogether, real, shared},
	{"a burst of one user starves nobody", burstsStarveNobody, real, shared},
	{"what earlier rules took is given back, the latest first", latestFirst, mini, shared},
	{"the figures of several middlewares add up", figuresAddUp, mini, adapter},
	{"pages of other origins read the figures", pagesOfOtherOriginsRead, mini, shared},
	{"a forged preflight claims nothing and gets nothing", forgedPreflightsGetNothing, real, shared},
	{"a rule says which figures are told", headersAsTheRuleSays, mini, shared},
	{"limits that decide inside the process have figures too", localFigures, mini, shared},
	{"who has no limit is let through without figures", unlimitedTiersPass, mini, shared},
	{"a refusal comes in the form that the client accepts", formsAsAccepted, mini, adapter},
	{"a rule's own texts are said", textsOfTheRule, mini, shared},
	{"a rule's own answer is given, and its handler does not run", answersOfTheRule, mini, adapter},
	{"an outage is answered as the rule says", outages, mini, shared},
	{"a request without a key", missingKeys, mini, adapter},
	{"a refusal without a decision leaves a trace", refusalsLeaveATrace, mini, shared},
	{"a parameter that the route does not have is warned of", unknownParamsAreWarnedOf, mini, adapter},
	{"lists are asked before anything else", listsGoFirst, mini, shared},
	{"a user who is refused too often is banned", bansFollowRefusals, real, shared},
	{"forwarding headers of strangers change nothing", rotatingHeadersChangeNothing, real, shared},
	{"what clients and proxies say about who calls", spoofedAddresses, mini, adapter},
	{"what they say about it on the wire", spoofedAddressesOnTheWire, mini, shared},
	{"one spelling of a path is as good as another", spellingsAreOne, mini, adapter},
	{"an escaped slash does what the framework says", slashesAreTold, mini, adapter},
	{"routes have budgets of their own where What says so", routesCount, mini, adapter},
	{"a rule that is mounted twice has one budget", oneRuleOneBudget, mini, adapter},
	{"a request that meets a rule twice is warned of", twiceIsWarnedOf, mini, adapter},
	{"a route that is not known yet is warned of", unroutedIsWarnedOf, mini, adapter},
	{"a limit around the application sees what no route matches", unmatchedCounts, mini, adapter},
	{"handlers find the decisions of all middlewares", decisionsAreFound, real, adapter},
	{"a reservation that is taken waits for its Confirm", takenWaits, real, adapter},
	{"an operation ID makes a retry harmless", replays, real, shared},
	{"an operation is done once, and its answer is replayed", operationsAreDoneOnce, real, adapter},
	{"an operation is kept or begins anew by how its request ended", operationsSettle, real, shared},
	{"operations and claims agree", operationsAndClaimsAgree, real, shared},
	{"a replay of what is done does not run the handler", replaysAreAnswered, mini, adapter},
	{"one key makes one order", oneKeyMakesOneOrder, real, shared},
	{"a purchase that is paid later can be asked for again", paidLaterIsAnsweredAgain, real, shared},
	{"who clicks again is told of their reservation, and can pay", secondClicksCanPay, real, adapter},
	{"operation IDs of clients are their own", idsAreTheActors, real, shared},
	{"a known item of a quota is free", knownItemsAreFree, real, shared},
	{"a vote is changed where the poll allows it", votesAreChanged, real, shared},
	{"buyers at the same moment never oversell", buyersNeverOversell, real, shared},
	{"a permit is held while the request runs, and no longer", permitsAreHeld, real, shared},
	{"a permit that is lost ends the context of the request", lostPermitsEndTheContext, real, adapter},
	{"what a request has cost is settled, however it ends", spentStaysSpent, mini, adapter},
	{"an estimate is corrected by what a request has cost", costsAreSettled, real, shared},
	{"costs that cannot be are errors", costsThatCannotBe, mini, shared},
	{"a lock is held while the request runs, and no longer", locksAreHeld, real, shared},
	{"a lock that is lost ends the context of the request", lostLocksEndTheContext, real, shared},
	{"a refused request runs later, where a rule says so", refusalsRunLater, real, adapter},
	{"what runs later is judged as it would have been at once", laterIsJudgedAlike, real, shared},
	{"nothing is left over, however requests end", randomEndings, real, shared},
	{"who waits hears it as they have asked", waitingIsAnsweredAsAsked, real, adapter},
	{"who waits hears it with the status of the options", waitingStatuses, real, shared},
	{"a crawler before a room is not told to drop the page", crawlersKeepThePage, real, shared},
	{"the page of a closed room asks again for those in line", theLineGoesOn, real, shared},
	{"tickets come back in frames of other sites if the room says so", ticketsInFrames, real, shared},
	{"a ticket keeps a place, and nothing else does", ticketsAreKept, real, adapter},
	{"apps keep tickets in a header field", appsKeepTicketsInAField, real, adapter},
	{"an answer with a pass is for one client", passesAreForOneClient, real, adapter},
	{"a pass outlasts a refusal by a rule inside", passesOutlastRefusals, real, adapter},
	{"a closed room says why", closedRoomsSayWhy, real, shared},
	{"who came before the opening can check the draw", drawsCanBeChecked, real, shared},
	{"the levels of a path are told apart", levelsAreToldApart, real, adapter},
	{"a room in the shadow sets nothing", roomsInTheShadowSetNothing, real, shared},
	{"an application has its own page for who waits", pagesOfTheApplicationForWhoWaits, real, adapter},
	{"browsers on this machine keep tickets by HTTP", ticketsOnThisMachine, real, adapter},
	{"rules are rolled out by and by", rolloutsAreGradual, mini, shared},
	{"one line limits each address", oneLinePerAddress, mini, adapter},
	{"mistakes of set-up panic", setUpMistakesPanic, mini, adapter},
}

// Run runs the suite on a framework. Where redistest.All is wanted, that is all of it on miniredis, and what
// needs no clock of its own on redis-server as well. Else each check runs once, on redis-server if it can: on
// the first framework all of them, on the others those about adapters. The TestMain of the package must be
// redistest.Main.
func Run(t *testing.T, f Framework) {
	t.Run("miniredis", func(t *testing.T) {
		f.run(t, redistest.Mini, func(c check) bool { return redistest.AlsoMini() || c.on == mini })
	})
	if f.Fast && redistest.All() {
		return
	}
	t.Run("redis", func(t *testing.T) {
		f.run(t, redistest.Single, func(c check) bool { return c.on == real })
	})
}

func (f Framework) run(
	t *testing.T, start func(testing.TB) redistest.Backend, belongs func(check) bool,
) {
	for _, c := range checks {
		if belongs(c) && (redistest.All() || f.First || c.of == adapter) {
			t.Run(c.name, func(t *testing.T) { c.run(newScene(t, f, start)) })
		}
	}
}
