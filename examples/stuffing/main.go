// Command stuffing attacks a poll and shows the result: thousands of tries from 50 addresses, with rotating
// devices, forged X-Forwarded-For headers and a whole IPv6 network, once by 3 accounts and once by 2,000,
// while honest people vote.
//
//	go run ./examples/stuffing                                    # 4,000 tries, on a Redis inside the process
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/stuffing   # 10,000, on your own Redis
//
// It prints one line for each set of rules: how many votes for red were counted, and how many the rules
// allow.
//
// The route, its rules and the reasons for their order are in app.go; the attacker is in attack.go.
//
// The rules have limits. An attacker with many accounts at many addresses has as many votes as the smaller
// number allows. Voters who share an address with an attacker share its caps.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/embedded"
)

func main() {
	logging.Disable() // of go-redis: failures come back as errors, and are reported once
	tries := flag.Int("tries", 0, "number of tries per attacker (0: 4,000, and 10,000 with REDIS_URL)")
	people := flag.Int("people", 300, "number of honest people who vote meanwhile")
	flag.Parse()
	redisURL := os.Getenv("REDIS_URL")
	if *tries == 0 {
		*tries = defaultTries(redisURL)
	}
	if err := run(context.Background(), os.Stdout, redisURL, *tries, *people); err != nil {
		fmt.Fprintln(os.Stderr, "stuffing:", err)
		os.Exit(1)
	}
}

// defaultTries is a number of tries that takes some seconds. The Redis inside the process is slow.
func defaultTries(redisURL string) int {
	if redisURL == "" {
		return 4_000
	}
	return 10_000
}

// cases are the sets of rules that are attacked.
var cases = []struct {
	name string
	on   rules
}{
	{"no rules", rules{}},
	{"20 votes per address", rules{address: true}},
	{"2 votes per device", rules{device: true}},
	{"1 vote per account", rules{account: true}},
	{"all of these, 60 tries per minute per address",
		rules{tries: true, address: true, device: true, account: true}},
}

// run attacks each case with few accounts and with many, and prints what was counted.
func run(ctx context.Context, out io.Writer, redisURL string, tries, people int) error {
	rdb, inside, err := embedded.Connect(redisURL)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	defer rdb.Close()
	if inside != nil {
		// Keys do not expire here: a miniredis looks at all keys per command, which with thousands of devices
		// would take minutes. The attacks are over long before any key would expire.
		inside.ClockTTL(false)
		defer inside.Close()
	}
	_, _ = fmt.Fprintf(out, "%d tries to vote for red from %d addresses, while %d people vote for blue and "+
		"click twice.\n"+
		"Votes counted, and in brackets how many for red the rules allow:\n\n", tries, addresses, people)
	const row = "%-48s %-15s %-18s %-11s %s\n"
	few := attack{tries: tries, accounts: 3, people: people, seed: 1}
	many := attack{tries: tries, accounts: 2000, people: people, seed: 2}
	_, _ = fmt.Fprintf(out, row, "rules", fmt.Sprintf("%d accounts", few.accounts),
		fmt.Sprintf("%d accounts", many.accounts),
		"blue", "answers to the attackers")
	for i, c := range cases {
		var red, blue, answers [2]string
		for j, k := range []attack{few, many} {
			// Each attack has its own application and votes.
			prefix := fmt.Sprintf("gatehouse-stuffing-%d-%d-%d", time.Now().UnixNano(), i, j)
			gate := core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(5*time.Second))
			res, err := k.run(ctx, newApp(gate, c.on))
			if err != nil {
				return err
			}
			red[j] = fmt.Sprintf("%d (%d)", res.red, c.on.allowed(k.tries, k.accounts, addresses, k.tries))
			blue[j], answers[j] = strconv.Itoa(res.blue), res.answers()
		}
		_, _ = fmt.Fprintf(out, row, c.name, red[0], red[1], blue[0]+", "+blue[1], answers[0]+"; "+answers[1])
	}
	return nil
}

// answers lists how often the attacker got each status.
func (r result) answers() string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(r.statuses)) {
		parts = append(parts, fmt.Sprintf("%d×%d", r.statuses[status], status))
	}
	return strings.Join(parts, " ")
}
