package redistest

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Main runs a package's tests, inspects the keys that they left on the shared servers, stops the servers
// and exits. It is the body of TestMain:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// Every key on the shared server and the shared cluster must have a TTL and begin with the prefix of a
// [Backend] of the package. Otherwise Main prints the first 20 keys that do not, and exits with 1. (The
// keys on a miniredis are inspected likewise when its test ends.)
//
// Tests that call t.Parallel wait rather than compute here, so up to 8 of them run at once on fewer cores;
// the flag -parallel overrides that. rapid.Check runs 20 cases, 40 where [All] is wanted, and 400 in a [Soak]
// run, and 5 under the race detector; the flag -rapid.checks overrides that.
func Main(m *testing.M) {
	shared.underMain.Store(true)
	if parallel := flag.Lookup("test.parallel"); parallel != nil && runtime.GOMAXPROCS(0) < 8 {
		_ = parallel.Value.Set("8") // flags are parsed by m.Run, and win
	}
	if checks := flag.Lookup("rapid.checks"); checks != nil {
		cases := "20"
		switch {
		case raced && !Soak():
			cases = "5"
		case Soak():
			cases = "400"
		case All():
			cases = "40"
		}
		_ = checks.Value.Set(cases) // a number is valid; m.Run parses the flags, which win
	}
	// Package net makes what guards its resolver at the first look-up. In a bubble of testing/synctest nobody
	// outside could use it any more.
	_, _ = net.LookupHost("localhost")
	code := m.Run()
	shared.warming.Wait()
	if !inspectShared(os.Stderr) {
		code = max(code, 1)
	}
	for _, s := range shared.servers {
		if err := s.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "redistest: stopping the shared servers:", err)
		}
	}
	os.Exit(code)
}

// inspectShared prints what is wrong with the keys on the shared servers, and reports whether all is well.
func inspectShared(w io.Writer) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ok := true
	for _, s := range shared.servers {
		b := Backend{Client: s.client}
		err := b.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			bad, err := leftovers(ctx, c, prefixes.testOf)
			report(w, c.Options().Addr, bad)
			ok = ok && len(bad) == 0
			return err
		})
		if err != nil {
			_, _ = fmt.Fprintln(w, "redistest: looking for keys left behind:", err)
			ok = false
		}
	}
	return ok
}

func report(w io.Writer, where string, bad []string) {
	if len(bad) == 0 {
		return
	}
	text := fmt.Sprintf("redistest: %d bad keys left on %s:\n", len(bad), where)
	for _, what := range bad[:min(20, len(bad))] {
		text += "\t" + what + "\n"
	}
	_, _ = io.WriteString(w, text)
}

// leftovers describes every key on the server that has no TTL or belongs to no test.
func leftovers(
	ctx context.Context, c *redis.Client, testOf func(key string) (string, bool),
) ([]string, error) {
	var bad []string
	var cursor uint64
	for {
		keys, next, err := c.Scan(ctx, cursor, "", 1000).Result()
		if err != nil {
			return bad, err
		}
		ttls, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range keys {
				p.PTTL(ctx, key)
			}
			return nil
		})
		if err != nil {
			return bad, err
		}
		for i, key := range keys {
			expires := ttls[i].(*redis.DurationCmd).Val() != -1 // -2: it is gone by now
			if why := fault(key, expires, testOf); why != "" {
				bad = append(bad, why)
			}
		}
		if cursor = next; cursor == 0 {
			return bad, nil
		}
	}
}

// fault says what is wrong with a key that a test left behind, or "".
func fault(key string, expires bool, testOf func(key string) (string, bool)) string {
	test, known := testOf(key)
	switch {
	case !known:
		return fmt.Sprintf("%q does not begin with the Prefix of any Backend", key)
	case !expires:
		return fmt.Sprintf("%q of %s has no TTL", key, test)
	}
	return ""
}
