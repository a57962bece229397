package keyfuncs_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestAListLooksUpTheAddressBeforeItIsGrouped: an IPv6 address on a list by IP() denied nobody, because the
// text that was looked up was the /64.
//
// Promise: A list by `IP` looks up the address before it is grouped. An entry that can never match is
// refused.
func TestAListLooksUpTheAddressBeforeItIsGrouped(t *testing.T) {
	ip := keyfuncs.IP()
	behind := keyfuncs.IP(keyfuncs.TrustProxies("10.0.0.0/8"), keyfuncs.IPv6Prefix(48), keyfuncs.IPv4Prefix(24))
	for name, c := range map[string]struct {
		key         keyfuncs.Func
		peer, entry string
		want        bool
	}{
		"an IPv6 address":         {ip, "[2001:db8:1:2::5]:50000", "2001:db8:1:2::5", true},
		"its neighbour":           {ip, "[2001:db8:1:2::6]:50000", "2001:db8:1:2::5", false},
		"a /80":                   {ip, "[2001:db8:1:2::5]:50000", "2001:db8:1:2::/80", true},
		"the /64":                 {ip, "[2001:db8:1:2::5]:50000", "2001:db8:1:2::/64", true},
		"a /32":                   {ip, "[2001:db8:1:2::5]:50000", "2001:db8::/32", true},
		"an IPv4 address":         {ip, "203.0.113.7:50000", "203.0.113.7", true},
		"a mapped one":            {ip, "[::ffff:203.0.113.7]:50000", "203.0.113.7", true},
		"one of a grouped /24":    {behind, "203.0.113.7:50000", "203.0.113.7", true},
		"another of the /24":      {behind, "203.0.113.8:50000", "203.0.113.7", false},
		"one of a grouped /48":    {behind, "[2001:db8:1:2::5]:50000", "2001:db8:1:2::5", true},
		"required":                {keyfuncs.Require(ip), "[2001:db8:1:2::5]:50000", "2001:db8:1:2::5", true},
		"under a name of its own": {keyfuncs.Named("client", ip), "[2001:db8:1:2::5]:50000", "2001:db8:1:2::5", true},
	} {
		found, err := keyfuncs.NewList(c.key, c.entry).Contains(from(c.peer, nil, nil))
		if found != c.want || err != nil {
			t.Errorf("%s: %t, %v", name, found, err)
		}
	}
	unix := from("@", nil, nil)
	if found, err := keyfuncs.NewList(ip, "::/0", "0.0.0.0/0").Contains(unix); found || err != nil {
		t.Errorf("a peer without an address: %t, %v", found, err)
	}
	if _, err := keyfuncs.NewList(keyfuncs.Require(ip), "::/0").Contains(unix); err == nil {
		t.Error("a peer without an address, which is required: no error")
	}
}

// TestAnEntryThatCanNeverMatchIsRefused: a wildcard, a range with a dash, an address with a port and one with
// leading zeros were taken for texts, which no client's address equals.
func TestAnEntryThatCanNeverMatchIsRefused(t *testing.T) {
	ip, user, name := keyfuncs.IP(), keyfuncs.User("uid"), keyfuncs.Header("X-Name")
	either := keyfuncs.FirstOf(user, ip)
	meant := []string{"203.0.113.*", "203.0.*.*", "203.0.113.*/24", "2001:db8:*", "203.0.113.7-203.0.113.9",
		"203.0.113.7-9", "203.0.113.0 - 203.0.113.9", "2001:db8::1-2001:db8::9", "203.0.113.7:443",
		"[2001:db8::5]:443", "[2001:db8::5]", "203.0.113.007", "010.0.0.1", "010.0.0.0/8", "203.0.113.7,203.0.113.8",
		"203.0.113.7 203.0.113.8", "10.0.0.0/33", "http://203.0.113.7", "203.0.113.7/255.255.255.0"}
	for _, c := range []struct {
		key     keyfuncs.Func
		bad, ok []string
	}{
		{ip, append([]string{"ann", "10.0.0", "example.org", "2001:db8::zz"}, meant...),
			[]string{"203.0.113.7", "2001:db8::5", "10.0.0.0/8", "::ffff:203.0.113.7"}},
		{user, meant, []string{"ann", "10.0.0", "203.0.113.7", "a:b", "b-9", "a*", "1.2", "org/team", "007"}},
		{name, meant, []string{"v1.2.3.4", "1.2.3-4", "deadbeef-0000", "ab:cd"}},
		{either, append([]string{"203.0.113.7", "ann", "2=ann", "1=ann", "1=2001:db8::5", "1=203.0.113.0/24", "0="},
			meant...), []string{"0=ann", "1=203.0.113.7", "1=2001:db8:1:2::/64", "0=203.0.113.7"}},
		{keyfuncs.Join(user, ip), []string{"ann", "203.0.113.7", "ann|2001:db8::5", `ann\|203.0.113.7`, "a|b|c"},
			[]string{"ann|203.0.113.7", `a\|b|203.0.113.7`}},
		{keyfuncs.Hash(user), []string{"ann", "203.0.113.7"}, []string{strings.Repeat("A", 43)}},
		{keyfuncs.Host(), []string{"Example.org", "example.org:443", "example.org.", "https://example.org"},
			[]string{"example.org", "203.0.113.7", "10.0.0.0/8"}},
	} {
		list := keyfuncs.NewList(c.key)
		for _, entry := range c.bad {
			if err := list.Add(entry); err == nil || !strings.HasPrefix(err.Error(), "keyfuncs: list entry ") {
				t.Errorf("a list by %s takes %q: %v", keyfuncs.NameOf(c.key), entry, err)
			}
			if err := list.Overlay([]string{entry}, nil); err == nil {
				t.Errorf("a list by %s takes %q from operators", keyfuncs.NameOf(c.key), entry)
			}
		}
		for _, entry := range c.ok {
			if err := list.Add(entry); err != nil {
				t.Errorf("a list by %s does not take %q: %v", keyfuncs.NameOf(c.key), entry, err)
			}
		}
	}
}
