package redpacket

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
)

func ExampleGuard() {
	ctx := context.Background()
	packets := New(core.New(client(), core.WithDeadline(time.Minute)), "packets", Options{})
	_, err := packets.Create(ctx, "new-year", Packet{
		Total:   2000, // cents
		Shares:  2,
		Min:     1000, // leaves nothing to chance, for the example
		Expires: time.Now().Add(24 * time.Hour),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"ann", "ann", "bob", "cid"} {
		d, err := packets.Check(ctx, core.Attempt{Actor: user, Resource: "new-year"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, d.Reason, Amount(d))
	}
	// Output:
	// ann ok 1000
	// ann duplicate 1000
	// bob ok 1000
	// cid empty 0
}

// client is a client of a Redis inside the process, which serves the example.
func client() *redis.Client {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		log.Fatal(err)
	}
	return redis.NewClient(&redis.Options{Addr: m.Addr()})
}
