package main

import (
	"fmt"
	"strings"
)

// example is a bash command and its expected output.
type example struct{ expect, line string }

// examples are for a demo that has just started. Each builds on those before it. BASE is the demo's URL.
var examples = []example{
	{"100 requests per minute per address: the last of 101 gets 429, with the seconds to wait in Retry-After.",
		`for i in $(seq 101); do answer=$(curl -si BASE/hello); done; echo "$answer"`},
	{"A vote: 201.",
		`curl -i -H 'X-User: alice' -d choice=red BASE/polls/final/votes`},
	{"The same user again: 409, with the choice that counts.",
		`curl -i -H 'X-User: alice' -d choice=blue BASE/polls/final/votes`},
	{"The tally: one for red.",
		`curl BASE/polls/final`},
	{"An order sent twice with one Idempotency-Key: twice 201 with the same reservation; one ticket is sold.",
		`for i in 1 2; do curl -i -X POST -H 'X-User: buyer1' -H 'Idempotency-Key: "order-1"' BASE/sales/ticket/orders; done`},
	{"Another order by the same buyer: 409, because each buyer gets one ticket.",
		`curl -i -X POST -H 'X-User: buyer1' -H 'Idempotency-Key: "again"' BASE/sales/ticket/orders`},
	{"200 buyers at once for 100 tickets, buyer1 repeating the earlier order: 100 times 201, 100 times 409.",
		`seq 200 | xargs -P 50 -I{} curl -s -o /dev/null -w '%{http_code}\n' -X POST ` +
			`-H 'X-User: buyer{}' -H 'Idempotency-Key: "order-{}"' BASE/sales/ticket/orders | sort | uniq -c`},
	{"The sale: 100 sold, none left.",
		`curl BASE/sales/ticket`},
	{"Three exports at once, of which two may run at a time: twice 200, once 429.",
		`seq 3 | xargs -P 3 -I{} curl -s -o /dev/null -w '%{http_code}\n' ` +
			`-H 'X-User: user{}' BASE/export | sort | uniq -c`},
	{"Two users at once work on one report, of whom one may: once 200, once 409.",
		`seq 2 | xargs -P 2 -I{} curl -s -o /dev/null -w '%{http_code}\n' -X POST ` +
			`-H 'X-User: user{}' BASE/reports/may | sort | uniq -c`},
}

// welcome returns the text that the demo prints when it is ready. ownRedis: the user brings a Redis; goesOn:
// the Redis has the sale of an earlier start.
func welcome(base string, ownRedis, goesOn bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Open the Gatehouse demo at %s/ in a browser. Ctrl-C ends it.\n\n", base)
	switch {
	case !ownRedis:
		fmt.Fprint(&b, "Its Redis runs inside this process: votes and sales are lost when it ends.\n"+
			"Set REDIS_URL=redis://127.0.0.1:6379 to keep them in your own.\n")
	case goesOn:
		fmt.Fprint(&b, "The poll and the sale of an earlier start continue, so some answers will differ from "+
			"those below.\n"+
			"To start again from nothing, end the demo and delete its keys:\n\n"+
			"redis-cli -u \"$REDIS_URL\" --scan --pattern '"+prefix+":*' | xargs redis-cli -u \"$REDIS_URL\" unlink\n")
	default:
		fmt.Fprint(&b, "The poll and the sale are kept in your Redis, under "+prefix+
			":, and continue at the next start.\n")
	}
	fmt.Fprint(&b, "\nThe demo believes any user name in X-User or ?user=. Your application takes users from "+
		"its login.\n\n"+
		"Try these in bash, from top to bottom:\n")
	for _, e := range examples {
		fmt.Fprintf(&b, "\n# %s\n%s\n", e.expect, strings.ReplaceAll(e.line, "BASE", base))
	}
	return b.String()
}
