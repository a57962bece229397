package main

import (
	"fmt"
	"strings"
)

// example is a line for bash, and what to expect of it.
type example struct{ expect, line string }

// examples are for a demo that has just been started; later ones need the earlier ones. BASE is the demo's URL.
var examples = []example{
	{
		"100 requests a minute from one address: of 101 the last gets 429, and in Retry-After the seconds to wait.",
		`for i in $(seq 101); do answer=$(curl -si BASE/hello); done; echo "$answer"`,
	},
	{
		"A vote: 201.",
		`curl -i -H 'X-User: alice' -d choice=red BASE/polls/final/votes`,
	},
	{
		"The same user again: 409, and the choice that stands.",
		`curl -i -H 'X-User: alice' -d choice=blue BASE/polls/final/votes`,
	},
	{
		"The tally: one for red.",
		`curl BASE/polls/final`,
	},
	{
		"An order that is sent twice with one Idempotency-Key: twice 201 with the same reservation; one ticket is sold.",
		`for i in 1 2; do curl -i -X POST -H 'X-User: buyer1' -H 'Idempotency-Key: "order-1"' BASE/sales/ticket/orders; done`,
	},
	{
		"Another order of the same buyer: 409, one ticket for each.",
		`curl -i -X POST -H 'X-User: buyer1' -H 'Idempotency-Key: "again"' BASE/sales/ticket/orders`,
	},
	{
		"200 buyers at once for 100 tickets, buyer1 with the order of before: 100 times 201, 100 times 409.",
		`seq 200 | xargs -P 50 -I{} curl -s -o /dev/null -w '%{http_code}\n' -X POST ` +
			`-H 'X-User: buyer{}' -H 'Idempotency-Key: "order-{}"' BASE/sales/ticket/orders | sort | uniq -c`,
	},
	{
		"The sale: 100 sold, none left.",
		`curl BASE/sales/ticket`,
	},
}

// welcome is what the demo says when it is ready. ownRedis: the Redis is the user's; goesOn: it has a sale of an earlier start.
func welcome(base string, ownRedis, goesOn bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The Gatehouse demo is at %s/ for browsers. Ctrl-C ends it.\n\n", base)
	switch {
	case !ownRedis:
		fmt.Fprint(&b, "Its Redis is inside this process: votes and sales are gone when it ends.\n"+
			"With REDIS_URL=redis://127.0.0.1:6379 they are kept in yours.\n")
	case goesOn:
		fmt.Fprint(&b, "The poll and the sale of an earlier start go on, so some answers will not be those described below.\n"+
			"To begin anew, end the demo and delete its keys:\n\n"+
			"redis-cli -u \"$REDIS_URL\" --scan --pattern '"+prefix+":*' | xargs redis-cli -u \"$REDIS_URL\" unlink\n")
	default:
		fmt.Fprint(&b, "The poll and the sale are kept in your Redis, below "+prefix+":, and go on at the next start.\n")
	}
	fmt.Fprint(&b, "\nUsers are who they say they are, by X-User or ?user=. That is for the demo only: take yours from your login.\n\n"+
		"To try in bash, from top to bottom:\n")
	for _, e := range examples {
		fmt.Fprintf(&b, "\n# %s\n%s\n", e.expect, strings.ReplaceAll(e.line, "BASE", base))
	}
	return b.String()
}
