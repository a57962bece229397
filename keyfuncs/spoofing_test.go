package keyfuncs_test

import (
	"errors"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/spoofing"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestSpoofing: who says what about himself, and who it is. The adapters go through the same table.
func TestSpoofing(t *testing.T) {
	functions := spoofing.Functions()
	cases := spoofing.Cases()
	if len(cases) < 60 {
		t.Fatalf("only %d cases", len(cases))
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.Name] {
			t.Errorf("two cases are called %q", c.Name)
		}
		seen[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			got, err := functions[c.IP](&keyfuncs.Request{Request: c.Request()})
			check(t, got, err, c.Want, c.Err)
		})
	}
}

// TestSpoofedHeadersNeverMakeAnotherClient: whatever a stranger says in the table, it changes nothing of what he is without.
func TestSpoofedHeadersNeverMakeAnotherClient(t *testing.T) {
	for name, fn := range spoofing.Functions() {
		for _, c := range spoofing.Cases() {
			r := c.Request()
			r.RemoteAddr = "198.18.0.1:50000" // trusted by none
			if got, err := fn(&keyfuncs.Request{Request: r}); err != nil || got != "198.18.0.1" && got != "198.18.0.0/24" {
				t.Errorf("%s, %s: %q, %v", name, c.Name, got, err)
			}
			r.RemoteAddr = "@"
			if got, err := fn(&keyfuncs.Request{Request: r}); name != "unix" && name != "unix, cdn" && !errors.Is(err, keyfuncs.ErrMissing) {
				t.Errorf("%s, %s, on a Unix socket: %q, %v", name, c.Name, got, err)
			}
		}
	}
}
