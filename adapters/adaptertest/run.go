package adaptertest

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// Run tests an adapter: each check is a subtest with a Redis, or a prefix in yours, of its own.
func Run(t *testing.T, f Framework) {
	for _, c := range checks {
		if f.leavesOut(t, c.name) {
			continue
		}
		start := redistest.Mini
		if c.on == real && f.Redis != nil {
			start = f.server
		}
		t.Run(c.name, func(t *testing.T) { c.run(newScene(t, f, start)) })
	}
}

// runs reports whether a case of a long table runs: in make test each fourth does.
func runs(number int) bool { return redistest.All() || number%4 == 0 }

func (f Framework) server(t testing.TB) redistest.Backend {
	t.Helper()
	client, prefix := f.Redis(t)
	return redistest.Backend{Client: client, Prefix: prefix}
}

// check is one property that must hold.
type check struct {
	name string
	run  func(*scene)
	on   backends
}

// backends are where a check can run.
type backends bool

const (
	mini backends = false // it moves the clock
	real backends = true  // it moves no clock, so it holds on a real server too
)

// checks are about what an adapter does: writer, status, context, route and parameters, decisions. What the
// pipeline does, whatever the framework, is in the tests of this package.
var checks = []check{
	{"refusals are the same in every framework", refusalsAreGolden, mini},
	{"operators sign in as users of the framework do", operatorsSignIn, mini},
	{"a refused request gets no further", refusedGetsNoFurther, real},
	{"what a request took is settled by how it ended", endingsSettle, real},
	{"what a request took is settled by its answer, whatever becomes of the connection", endingsOnTheWire, mini},
	{"half-closed connections are counted", halfClosedConnectionsAreCounted, real},
	{"a timeout of the context does not oversell", timeoutsDoNotOversell, real},
	{"a slow body does not outlast the hold", slowBodiesDoNotOutlastTheHold, mini},
	{"a client that writes slowly is served", slowWritersAreServed, mini},
	{"an answer that cannot be confirmed is not given", unconfirmedAnswersAreNotGiven, mini},
	{"a panic after a yes changes nothing", panicsAfterAYesChangeNothing, mini},
	{"every answer says how much is left, however it ends", everyEndingHasHeaders, mini},
	{"the framework's recoverer changes nothing", recoverersChangeNothing, mini},
	{"a panic gets to an outer recoverer as it is", panicsPass, mini},
	{"Failed gets the status", failedGetsTheStatus, mini},
	{"rules are asked in order", rulesAreAskedInOrder, mini},
	{"the figures of several middlewares add up", figuresAddUp, mini},
	{"a refusal comes in the form that the client accepts", formsAsAccepted, mini},
	{"a rule's own answer is given, and its handler does not run", answersOfTheRule, mini},
	{"a request without a key", missingKeys, mini},
	{"a parameter that the route does not have is warned of", unknownParamsAreWarnedOf, mini},
	{"what clients and proxies say about who calls", spoofedAddresses, mini},
	{"one spelling of a path is as good as another", spellingsAreOne, mini},
	{"an escaped slash does what the framework says", slashesAreTold, mini},
	{"routes have budgets of their own where What says so", routesCount, mini},
	{"a rule that is mounted twice has one budget", oneRuleOneBudget, mini},
	{"a request that meets a rule twice is warned of", twiceIsWarnedOf, mini},
	{"a route that is not known yet is warned of", unroutedIsWarnedOf, mini},
	{"a limit around the application sees what no route matches", unmatchedCounts, mini},
	{"handlers find the decisions of all middlewares", decisionsAreFound, real},
	{"a reservation that is taken waits for its Confirm", takenWaits, real},
	{"an operation is done once, and its answer is replayed", operationsAreDoneOnce, real},
	{"a replay of what is done does not run the handler", replaysAreAnswered, mini},
	{"who clicks again is told of their reservation, and can pay", secondClicksCanPay, real},
	{"a permit that is lost ends the context of the request", lostPermitsEndTheContext, real},
	{"what a request has cost is settled, however it ends", spentStaysSpent, mini},
	{"a refused request runs later, where a rule says so", refusalsRunLater, real},
	{"nothing is left over, however requests end", randomEndings, real},
	{"who waits hears it as they have asked", waitingIsAnsweredAsAsked, real},
	{"a ticket keeps a place, and nothing else does", ticketsAreKept, real},
	{"apps keep tickets in a header field", appsKeepTicketsInAField, real},
	{"an answer with a pass is for one client", passesAreForOneClient, real},
	{"a pass outlasts a refusal by a rule inside", passesOutlastRefusals, real},
	{"the levels of a path are told apart", levelsAreToldApart, real},
	{"an application has its own page for who waits", pagesOfTheApplicationForWhoWaits, real},
	{"browsers on this machine keep tickets by HTTP", ticketsOnThisMachine, real},
	{"one line limits each address", oneLinePerAddress, mini},
	{"mistakes of set-up panic", setUpMistakesPanic, mini},
}
