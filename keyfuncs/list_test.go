package keyfuncs_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// says returns a key function that finds this text.
func says(text string) keyfuncs.Func {
	return func(*keyfuncs.Request) (string, error) { return text, nil }
}

// listed reports whether a list of these entries has the key.
func listed(t testing.TB, key string, entries ...string) bool {
	t.Helper()
	found, err := keyfuncs.NewList(says(key), entries...).Contains(nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestListContains(t *testing.T) {
	for _, c := range []struct {
		entry, key string
		want       bool
	}{
		{"203.0.113.7", "203.0.113.7", true},
		{"203.0.113.7", "203.0.113.70", false},
		{"203.0.113.7", "203.0.113.7/32", true},
		{"203.0.113.7/32", "203.0.113.7", true},
		{"10.0.0.0/8", "10.255.255.255", true},
		{"10.1.2.3/8", "10.9.9.9", true}, // what stands behind the prefix does not matter
		{"10.0.0.0/8", "11.0.0.0", false},
		{"10.0.0.0/9", "10.128.0.0", false},
		{"10.0.0.0/8", "10.1.0.0/16", true},
		{"10.0.0.0/8", "10.0.0.0/8", true},
		{"10.0.0.0/8", "10.0.0.0/7", false}, // only a part of the key
		{"0.0.0.0/0", "198.51.100.1", true},
		{"0.0.0.0/0", "2001:db8::1", false},
		{"::/0", "2001:db8::1", true},
		{"::/0", "198.51.100.1", false},
		{"2001:db8::/32", "2001:db8:1:2::/64", true},
		{"2001:db8:1:2::/64", "2001:db8:1:2::/64", true},
		{"2001:DB8:1:2:0:0:0:5", "2001:db8:1:2::5", true},
		{"2001:db8:1:2::5", "2001:db8:1:2::/64", false}, // the key groups wider than the entry
		{"2001:db8:1:2::/65", "2001:db8:1:2::/64", false},
		{"::ffff:203.0.113.7", "203.0.113.7", true},
		{"::ffff:203.0.113.0/120", "203.0.113.9", true},
		{"203.0.113.7", "::ffff:203.0.113.7", true},
		{"fe80::1%eth0", "fe80::1", true},
		{"fe80::1", "fe80::1%eth1", true},
		{"ann", "ann", true},
		{"ann", "Ann", false},
		{"ann ", "ann ", true},
		{"ann", "annie", false},
		{"/polls/:poll", "/polls/:poll", true},
		{"10.0.0.0/8", "1=10.1.2.3", false}, // what FirstOf finds
		{"1=10.1.2.3", "1=10.1.2.3", true},
		{"10.0.0", "10.0.0", true}, // a version, not an address
	} {
		if got := listed(t, c.key, "other", c.entry, "192.0.2.0/24", "2001:db8:ffff::/48"); got != c.want {
			t.Errorf("%q in a list of %q: %t", c.key, c.entry, got)
		}
	}
	if listed(t, "ann") || listed(t, "10.0.0.1") || listed(t, "10.0.0.1", "ann") {
		t.Error("an entry that is not there")
	}
}

func TestListOfRequests(t *testing.T) {
	r := from("[2001:db8:1:2::5]:50000", nil, nil)
	for name, c := range map[string]struct {
		key  keyfuncs.Func
		want bool
	}{
		"by IP":          {keyfuncs.IP(), true},
		"the address":    {keyfuncs.IP(keyfuncs.IPv6Prefix(128)), true},
		"nothing found":  {keyfuncs.Header("X-Missing"), false},
		"another's list": {keyfuncs.Const("ann"), false},
	} {
		if found, err := keyfuncs.NewList(c.key, "2001:db8:1:2::5").Contains(r); found != c.want || err != nil {
			t.Errorf("%s: %t, %v", name, found, err)
		}
	}
	none := keyfuncs.FirstOf(keyfuncs.Header("X-Missing"), keyfuncs.Header("X-Nothing"))
	if found, err := keyfuncs.NewList(none, "0=ann").Contains(r); found || err != nil {
		t.Errorf("none of two: %t, %v", found, err)
	}
	broken := errors.New("no answer")
	for _, want := range []error{keyfuncs.ErrMalformed, broken} {
		list := keyfuncs.NewList(func(*keyfuncs.Request) (string, error) {
			return "ann",
				fmt.Errorf("look: %w", want)
		}, "ann")
		if found, err := list.Contains(r); found || !errors.Is(err, want) {
			t.Errorf("%v: %t, %v", want, found, err)
		}
	}
}

func TestListChanges(t *testing.T) {
	key := ""
	list := keyfuncs.NewList(func(*keyfuncs.Request) (string, error) { return key, nil })
	want := func(after string, yes, no []string) {
		t.Helper()
		for _, c := range []struct {
			keys []string
			want bool
		}{{yes, true}, {no, false}} {
			for _, key = range c.keys {
				if found, err := list.Contains(nil); found != c.want || err != nil {
					t.Errorf("%s: %q is in the list: %t, %v", after, key, found, err)
				}
			}
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	all := []string{"ann", "bob", "10.0.0.1", "10.1.0.1", "192.0.2.1", "2001:db8::1"}
	want("at first", nil, all)
	do(list.Add("ann", "10.0.0.0/8", "10.1.0.1"))
	want("Add", []string{"ann", "10.0.0.1", "10.1.0.1"}, []string{"bob", "192.0.2.1", "2001:db8::1"})
	do(list.Add("ann", "2001:db8::/32"))
	want("Add, once more", []string{"ann", "10.0.0.1", "2001:db8::1"}, []string{"bob", "192.0.2.1"})
	// the network in another spelling, and what is not there
	do(list.Remove("10.255.0.0/8", "bob", "172.16.0.0/12", "10.0.0.1"))
	want("Remove", []string{"ann", "10.1.0.1", "2001:db8::1"}, []string{"bob", "10.0.0.1"})
	do(list.Set("bob", "192.0.2.0/24"))
	want("Set", []string{"bob", "192.0.2.1"}, []string{"ann", "10.1.0.1", "2001:db8::1"})

	for _, bad := range []string{
		"", "10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/", "10.0.0.0/8 ", " 10.0.0.1", "10.0.0.1\n", "2001:db8::/129",
		"fe80::%eth0/64",
		"::ffff:10.0.0.0/95", strings.Repeat(" ", 100) + "10.0.0.1",
	} {
		for name, change := range map[string]func(...string) error{"Set": list.Set, "Add": list.Add,
			"Remove": list.Remove} {
			err := change("ann", "bob", bad)
			if quoted := fmt.Sprintf("%q", bad[:min(len(bad), 64)]); err == nil ||
				!strings.Contains(err.Error(), quoted) {
				t.Errorf("%s(%q): %v, want it quoted", name, bad, err)
			}
		}
	}
	want("after errors", []string{"bob", "192.0.2.1"}, []string{"ann", "10.1.0.1"})
	do(list.Set())
	want("nothing left", nil, all)
}

func TestListSetUpMistakesPanic(t *testing.T) {
	for want, mistake := range map[string]func(){
		"such as IP()":  func() { keyfuncs.NewList(nil) },
		`"10.0.0.0/40"`: func() { keyfuncs.NewList(keyfuncs.IP(), "10.0.0.0/40") },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, want) ||
					!strings.HasPrefix(text, "keyfuncs: ") {
					t.Errorf("panic %q, want %q in it", text, want)
				}
			}()
			mistake()
		}()
	}
}

// TestListChangesAreSeenWhole: while one matching entry replaces another, every request finds one of them.
func TestListChangesAreSeenWhole(t *testing.T) {
	list := keyfuncs.NewList(keyfuncs.Const("10.0.0.1"), "10.0.0.1")
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		writers.Go(func() {
			for range 200 {
				if list.Add(fmt.Sprint("writer ", i)) != nil || list.Set("10.0.0.0/8") != nil ||
					list.Set("10.0.0.1") != nil {
					t.Error("a change has failed")
				}
			}
		})
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if found, err := list.Contains(nil); !found || err != nil {
					t.Errorf("between two entries: %t, %v", found, err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

// netOf parses a text as a network, by netip alone.
func netOf(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if addr, notAddr := netip.ParseAddr(text); err != nil && notAddr == nil &&
		!strings.Contains(addr.Zone(), "/") {
		p, err = addr.WithZone("").Prefix(addr.BitLen())
	}
	if err == nil && p.Addr().Is4In6() && p.Bits() >= 96 {
		p, err = p.Addr().Unmap().Prefix(p.Bits() - 96)
	}
	return p, err == nil
}

// FuzzList compares a list with a loop over its entries, one per line.
func FuzzList(f *testing.F) {
	for _, entries := range []string{
		"10.0.0.0/8\n10.1.2.3\nann", "::/0\n0.0.0.0/0", "2001:db8::/32\n2001:db8:1:2::/64\nfe80::1%eth0",
		"::ffff:10.0.0.0/104\n::ffff:0:0/90",
		"10.0.0.0/33\n \n\x00\n/a/b", "10.0.0.0/8\n10.0.0.0/16\n10.0.0.0/24\n10.0.0.0/32",
	} {
		for _, key := range []string{
			"10.1.2.3", "10.0.0.0/24", "2001:db8:1:2::/64", "::ffff:10.1.2.3", "::ffff:1.2.3.4/90", "ann", "",
			"fe80::1%eth1",
		} {
			f.Add(entries, key)
		}
	}
	f.Fuzz(func(t *testing.T, lines, key string) {
		list := keyfuncs.NewList(says(key))
		want := false
		for entry := range strings.SplitSeq(lines, "\n") {
			if list.Add(entry) != nil {
				continue
			}
			e, isNet := netOf(entry)
			k, keyIsNet := netOf(key)
			switch {
			case isNet:
				want = want || keyIsNet && e.Bits() <= k.Bits() && e.Contains(k.Addr())
			default:
				want = want || entry == key
			}
		}
		if got, err := list.Contains(nil); got != want || err != nil {
			t.Errorf("%q in %q: %t, %v, want %t", key, lines, got, err, want)
		}
		if list.Set("ann", lines) == nil && list.Remove(lines, "ann") == nil {
			if got, _ := list.Contains(nil); got {
				t.Errorf("%q is in a list that is empty", key)
			}
		}
	})
}

// TestAnOverlayLiesOverTheList: what the application changes below it is in force again when it ends.
//
// Promise (Control): Decisions lie over what the application changes in a list or a roll-out.
func TestAnOverlayLiesOverTheList(t *testing.T) {
	key := ""
	l := keyfuncs.NewList(func(*keyfuncs.Request) (string, error) { return key, nil }, "ann", "10.0.0.0/8")
	want := func(what string, in ...string) {
		t.Helper()
		for _, key = range []string{"ann", "bob", "cid", "10.1.2.3", "192.0.2.1"} {
			has, err := l.Contains(nil)
			if err != nil || has != slices.Contains(in, key) {
				t.Errorf("%s: %s is in it: %v, %v", what, key, has, err)
			}
		}
	}
	overlay := func(added, removed []string) {
		t.Helper()
		if err := l.Overlay(added, removed); err != nil {
			t.Fatal(err)
		}
	}
	want("at first", "ann", "10.1.2.3")
	overlay([]string{"bob", "192.0.2.0/24"}, []string{"ann", "10.0.0.0/8"})
	want("overlaid", "bob", "192.0.2.1")
	if err := l.Set("ann", "bob", "cid"); err != nil {
		t.Fatal(err)
	}
	want("set below", "bob", "cid", "192.0.2.1")
	if err := l.Overlay([]string{"10.0.0.0/33"}, nil); err == nil {
		t.Error("an entry that is none is no error")
	}
	want("a mistake", "bob", "cid", "192.0.2.1")
	overlay(nil, []string{"cid"})
	want("replaced", "ann", "bob")
	overlay(nil, nil)
	want("ended", "ann", "bob", "cid")
	if err := l.Remove("cid"); err != nil {
		t.Fatal(err)
	}
	want("changed afterwards", "ann", "bob")
}
