package main

import (
	"os"
	"path/filepath"
	"testing"
)

// rulesFile writes a file of rules and returns its path.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const someRules = `
keys:
  address: {ip: {trust_proxies: ["10.0.0.0/8"]}}
lists:
  staff: {key: {user: uid}, entries: [root]}
guards:
  site: {sliding_window: {limits: "3/min"}}
  plan: {sliding_window: {tiers: {by: {user: plan}, of: {gold: unlimited, paid: "9/min"}, others: "2/min"}}}
  poll: {votes: {}}
  sale: {seckill: {}}
rules:
  api:
    - {guard: site, who: address, allow: staff}
    - {guard: plan, who: {user: uid}, what: route}
  voting:
    - {guard: site, who: address}
    - {guard: poll, who: {user: uid}, what: {param: poll}, which: {form: choice}}
  shop:
    - {guard: sale, who: {user: uid}, what: {param: sku}, id: idempotency_key}
`
