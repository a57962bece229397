package docs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// A poll with one vote per user and day for thirty days. Users may take votes back, and an audit stream keeps
// all changes.
func Example_votesADay() {
	gate := core.New(client(), core.WithDeadline(30*time.Second))
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}

	ballots := votes.New(gate, "poll", votes.Options{
		Poll: votes.Poll{
			PerVoter:  30,
			PerChoice: 30,
			PerDay:    1,
			Day:       period.Daily(berlin),
			Retract:   true,
		},
		Audit: true,
	})
	vote := ratelimit.Rule{
		Guard:  ballots,
		Who:    keyfuncs.User("uid"),
		What:   keyfuncs.Param("poll"),
		Which:  keyfuncs.Form("choice"),
		Origin: keyfuncs.IP(),
	}

	_ = ratelimit.HTTP(vote)
}

// Example_votesStuffed finds votes that came from one address, and takes them out.
func Example_votesStuffed() {
	ctx := context.Background()
	gate := core.New(client(), core.WithDeadline(30*time.Second))
	ballots := votes.New(gate, "poll", votes.Options{Audit: true})
	for _, a := range []core.Attempt{
		{Actor: "ann", Resource: "final", Item: "red", Origin: "192.0.2.1"},
		{Actor: "bot1", Resource: "final", Item: "blue", Origin: "198.51.100.7"},
		{Actor: "bot2", Resource: "final", Item: "blue", Origin: "198.51.100.7"},
	} {
		if _, err := ballots.Check(ctx, a); err != nil {
			log.Fatal(err)
		}
	}

	stuffed := votes.VoidOptions{
		Match:  func(e votes.Event) bool { return e.Origin == "198.51.100.7" },
		DryRun: true, // look first
	}
	result, err := ballots.Void(ctx, "final", stuffed)
	fmt.Println("would void", result.Voided, result.Weights, err)

	stuffed.DryRun = false
	_, err = ballots.Void(ctx, "final", stuffed)
	top, err2 := ballots.Top(ctx, "final", 3)
	fmt.Println(top, err, err2)

	verified, err := ballots.Verify(ctx, "final")
	fmt.Print(verified)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// would void 2 map[blue:2] <nil>
	// [{red 1}] <nil> <nil>
	// poll "final": consistent
	//                                           records            tally
	// "red"                                           1                1
	// votes: 1, voided: 2, voters: 3
}
