package redpacket_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
)

// Each user gets one share, and the same amount again on each further attempt.
func ExampleNew() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(time.Minute)) // the default is 100 ms
	packets := redpacket.New(gate, "packets", redpacket.Options{})
	_, err = packets.Create(ctx, "party", redpacket.Packet{
		Total: 10_000, Shares: 2, Expires: time.Now().Add(24 * time.Hour),
	})
	if err != nil {
		log.Fatal(err)
	}

	var sum int64
	for _, user := range []string{"ann", "bob", "cid"} {
		d, err := packets.Check(ctx, core.Attempt{Actor: user, Resource: "party"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, d.Reason)
		sum += redpacket.Amount(d)
	}
	fmt.Println(sum)
	// Output:
	// ann ok
	// bob ok
	// cid empty
	// 10000
}
