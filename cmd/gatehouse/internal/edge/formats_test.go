package edge

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// evil are actors that a user may choose.
var evil = []string{
	`quo"te`, `'`, `\`, `\"`, "new\nline", "cr\rlf", "nul\x00", "brace}", "{", "a;b", "a # b", "#", "$remote_addr",
	"${remote_addr}", "default", "hostnames", "include", "volatile", "~.*", "~*^", `\default`, "*.example", ".example",
	"-f", "bad\xffutf8", "\u202eleft", "\u2028", "ü", "a b", " ", "0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1", "::/8",
	"203.0.113.7/8", "203.0.113.7 1;", "203.0.113.7\n0.0.0.0/0", "fe80::1%eth0", "fe80::1%\n", "::ffff:203.0.113.7",
	"203.0.113.007", "203.0.113.7/32", "2001:DB8::1", "BOB", "bob", "Bob", strings.Repeat("x", 96),
	`", timeout 1s } ; flush ruleset #`, "}\nflush ruleset\n",
}

// good are actors of keyfuncs.IP.
var good = []string{"203.0.113.7", "198.51.100.0/24", "2001:db8::/64", "2001:db8:1::5", "64:ff9b::cb00:7107"}

func bansOf(actors ...string) (all []ban) {
	for i, actor := range actors {
		all = append(all, ban{actor: actor, finish: int64(1000 - i), ends: time.Unix(1000-int64(i), 0)})
	}
	return all
}

// readers read a file as the program that it is for, and return the actors in it.
var readers = map[string]func(line string) (actor string, ok bool){
	"plain": func(line string) (string, bool) { return line, true },
	"nginx-map": func(line string) (string, bool) {
		match := regexp.MustCompile(`^"\\\\((?:[^"\\]|\\["\\])*)" 1;$`).FindStringSubmatch(line)
		if match == nil {
			return "", false
		}
		return regexp.MustCompile(`\\(.)`).ReplaceAllString(match[1], "$1"), true
	},
	"nginx-geo": func(line string) (string, bool) {
		text, ok := strings.CutSuffix(line, " 1;")
		network, err := netip.ParsePrefix(text)
		return strings.TrimSuffix(text, fmt.Sprintf("/%d", network.Addr().BitLen())), ok && err == nil
	},
	"haproxy-acl": func(line string) (string, bool) { return line, isNetwork(line) },
	"nft": func(line string) (string, bool) {
		match := regexp.MustCompile(`^  (\S+) timeout [1-9][0-9]*s,$`).FindStringSubmatch(line)
		if match == nil {
			return "", regexp.MustCompile(`^(flush set inet gatehouse banned[46]|` +
				`add element inet gatehouse banned[46] \{|\})$`).MatchString(line)
		}
		return match[1], isNetwork(match[1])
	},
}

func isNetwork(text string) bool {
	_, noPrefix := netip.ParsePrefix(text)
	_, noAddr := netip.ParseAddr(text)
	return noPrefix == nil || noAddr == nil
}

// inPage returns the actors in a page. It fails if a line is not an entry of an actor.
func inPage(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, form *format, text string) map[string]bool {
	t.Helper()
	actors := map[string]bool{}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		actor, ok := readers[form.name](line)
		if text != "" && !ok {
			t.Fatalf("%s: the line %q is no entry of\n%s", form.name, line, text)
		}
		if actor != "" {
			actors[actor] = true
		}
	}
	return actors
}

// TestNoActorIsMoreThanAnEntry: an actor that a user has chosen is written as itself, or not at all.
//
// Promise: No text of a banned actor changes the meaning of a file for a proxy or a firewall.
func TestNoActorIsMoreThanAnEntry(t *testing.T) {
	for i := range formats {
		form := &formats[i]
		check := func(t interface {
			Helper()
			Fatalf(format string, args ...any)
		}, actors []string) {
			t.Helper()
			all := bansOf(actors...)
			p := form.page(all, len(all)+1, time.Unix(0, 0))
			written := inPage(t, form, p.text)
			known := map[string]bool{}
			for _, actor := range actors {
				known[actor] = true
			}
			for actor := range written {
				if !known[actor] {
					t.Fatalf("%s: nobody banned %q, which is in\n%s", form.name, actor, p.text)
				}
			}
			if p.beyond != 0 || len(written)+p.unfit > len(all) {
				t.Fatalf("%s: %d written, %d unfit and %d beyond, of %d", form.name, len(written), p.unfit, p.beyond,
					len(all))
			}
		}
		t.Run(form.name, func(t *testing.T) {
			check(t, append(append([]string{}, evil...), good...))
			text := form.page(bansOf(append(append([]string{}, evil...), good...)...), 1000, time.Unix(0, 0)).text
			for _, actor := range good {
				if !inPage(t, form, text)[actor] {
					t.Errorf("%q is not in\n%s", actor, text)
				}
			}
			rapid.Check(t, func(t *rapid.T) {
				one := rapid.OneOf(rapid.SampledFrom(evil), rapid.SampledFrom(good), rapid.String(),
					rapid.StringMatching(`[0-9a-f:./]{1,20}`), rapid.StringMatching(`[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}`))
				check(t, rapid.SliceOfNDistinct(one, 0, 20, rapid.ID[string]).Draw(t, "actors"))
			})
		})
	}
}

func TestWhatEachFormatLeavesOut(t *testing.T) {
	for name, want := range map[string]map[string]bool{
		"plain": {"a b": true, "ü": true, "new\nline": false, "bad\xffutf8": false, "\u202eleft": false, "nul\x00": false},
		"nginx-map": {`quo"te`: true, `\`: true, "default": true, "~.*": true, "new\nline": false,
			"bad\xffutf8": false},
		"nginx-geo": {"0.0.0.0/0": false, "::/8": false, "203.0.113.7/8": false, "fe80::1%eth0": false,
			"::ffff:203.0.113.7": false, "10.0.0.0/8": true},
		"haproxy-acl": {"ann": false, "2001:DB8::1": false, "2001:db8::/32": true},
		"nft":         {"0.0.0.0/1": false, "203.0.113.7/32": false, "203.0.113.7": true},
	} {
		for actor, fits := range want {
			p := formatNamed(name).page(bansOf(actor), 10, time.Unix(0, 0))
			if got := inPage(t, formatNamed(name), p.text)[actor]; got != fits || (p.unfit == 0) != fits {
				t.Errorf("%s: %q is in the file: %t, unfit: %d", name, actor, got, p.unfit)
			}
		}
	}
	hashed := ban{actor: "#hash", hashed: true, finish: 1, ends: time.Unix(1, 0)}
	if p := formatNamed("plain").page([]ban{hashed}, 10, time.Unix(0, 0)); p.text != "" || p.unfit != 1 {
		t.Errorf("an actor of whom only a hash is known: %+v", p)
	}
}

// TestTheTextOfEachFormat is what programs read, byte by byte.
func TestTheTextOfEachFormat(t *testing.T) {
	now := time.Unix(1000, 0)
	in := func(actor string, left time.Duration) ban { return ban{actor: actor, ends: now.Add(left)} }
	lists := map[string][]ban{
		"none": nil,
		"one":  {in("203.0.113.7", time.Hour)},
		"many": {in("2001:db8::/64", 366*24*time.Hour), in("198.51.100.0/24", 90*time.Second),
			in("203.0.113.7", 1500*time.Millisecond), in("198.51.100.9", time.Second),
			in("2001:db8:1::5", time.Second)},
		"over":    {in("203.0.113.7", -time.Hour)}, // while the file was made
		"hostile": {in("}\nflush ruleset\n", time.Hour), in("1.2.3.4;", time.Hour), in("ann", time.Hour)},
	}
	const flushed = "flush set inet gatehouse banned4\nflush set inet gatehouse banned6\n"
	for name, want := range map[string]map[string]string{
		"plain": {"none": "", "one": "203.0.113.7\n", "over": "203.0.113.7\n", "hostile": "1.2.3.4;\nann\n",
			"many": "2001:db8::/64\n198.51.100.0/24\n203.0.113.7\n198.51.100.9\n2001:db8:1::5\n"},
		"nginx-map": {"none": "", "one": "\"\\\\203.0.113.7\" 1;\n", "hostile": "\"\\\\1.2.3.4;\" 1;\n\"\\\\ann\" 1;\n"},
		"nginx-geo": {"none": "", "one": "203.0.113.7/32 1;\n", "hostile": "", "many": "2001:db8::/64 1;\n" +
			"198.51.100.0/24 1;\n203.0.113.7/32 1;\n198.51.100.9/32 1;\n2001:db8:1::5/128 1;\n"},
		"haproxy-acl": {"none": "", "one": "203.0.113.7\n", "over": "203.0.113.7\n", "hostile": "",
			"many": "2001:db8::/64\n198.51.100.0/24\n203.0.113.7\n198.51.100.9\n2001:db8:1::5\n"},
		"nft": {"none": flushed, "hostile": flushed,
			"one":  flushed + "add element inet gatehouse banned4 {\n  203.0.113.7 timeout 3600s,\n}\n",
			"over": flushed + "add element inet gatehouse banned4 {\n  203.0.113.7 timeout 1s,\n}\n",
			"many": flushed + "add element inet gatehouse banned4 {\n  198.51.100.0/24 timeout 90s,\n" +
				"  203.0.113.7 timeout 2s,\n}\nadd element inet gatehouse banned6 {\n" +
				"  2001:db8::/64 timeout 31622400s,\n  2001:db8:1::5 timeout 1s,\n}\n"},
	} {
		for list, text := range want {
			if p := formatNamed(name).page(lists[list], 10, now); p.text != text {
				t.Errorf("%s, %s:\n%swant\n%s", name, list, p.text, text)
			}
		}
	}
}

// TestTheMostThatEndLast: actors that do not fit take no place of others.
func TestTheMostThatEndLast(t *testing.T) {
	all := bansOf("new\nline", "a", "b", "c", "d")
	byEnd(all)
	p := formatNamed("plain").page(all, 2, time.Unix(0, 0))
	if p.text != "a\nb\n" || p.beyond != 2 || p.unfit != 1 {
		t.Errorf("%+v", p)
	}
	// nginx compares without case, and rejects a second line for the same text
	p = formatNamed("nginx-map").page(bansOf("Bob", "bob", "Ü", "ü"), 9, time.Unix(0, 0))
	if want := "\"\\\\Bob\" 1;\n\"\\\\Ü\" 1;\n\"\\\\ü\" 1;\n"; p.text != want {
		t.Errorf("%q, want %q", p.text, want)
	}
}

// TestNetworksThatOverlap: nft rejects them. The narrow one is written when the wide one has ended.
func TestNetworksThatOverlap(t *testing.T) {
	form := formatNamed("nft")
	all := bansOf("2001:db8::5", "2001:db8::/64", "2001:db8::/48", "10.0.0.1", "10.0.0.0/24", "10.0.1.0")
	written := inPage(t, form, form.page(all, 9, time.Unix(0, 0)).text)
	if len(written) != 3 || !written["2001:db8::/48"] || !written["10.0.0.0/24"] || !written["10.0.1.0"] {
		t.Errorf("%v", written)
	}
	before, after := form.page(all, 9, time.Unix(0, 0)), form.page(all[:2], 9, time.Unix(0, 0))
	if before.identity == after.identity || !strings.Contains(after.text, "2001:db8::/64 timeout") {
		t.Errorf("%+v", after)
	}
	later := form.page(all, 9, time.Unix(100, 0))
	if later.text == before.text || later.identity != before.identity {
		t.Error("the rest of a ban makes the file differ")
	}
}

// TestWhatARecordSays: where the clock of the server was set back, a ban begins again, as lua/bans/ban.lua has it.
func TestWhatARecordSays(t *testing.T) {
	sent := time.Unix(1000, 0)
	for record, left := range map[string]time.Duration{
		"1000000 3000000 0": time.Second,
		"1000000 2000001 5": time.Microsecond,
		"1000000 2000000 0": 0,
		"5000000 9000000 0": 4 * time.Second, // it would begin in three seconds
		"":                  0,
		"1000000 3000000":   0,
		"1000000 x 0":       0,
	} {
		m := newMirror(nil, "p:{", time.Second)
		m.keep("p:{a%0A}", "0 9000000000 0", sent, 2_000_000) // what it was before
		m.keep("p:{a%0A}", record, sent, 2_000_000)
		all := m.current(sent).all
		if left == 0 && len(all) == 0 {
			continue
		}
		if len(all) != 1 || all[0].actor != "a\n" || all[0].ends.Sub(sent) != left {
			t.Errorf("%q: %+v, want %v", record, all, left)
		}
	}
}

// TestAFileIsReplacedAsAWhole: a reader sees one file or the other, and the file keeps its mode.
func TestAFileIsReplacedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	texts := []string{strings.Repeat("203.0.113.7 1;\n", 10_000), strings.Repeat("2001:db8::/64 1;\n", 5_000),
		""}
	if err := os.WriteFile(file, []byte(texts[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	path, err := target(link)
	if err != nil {
		t.Fatal(err)
	}
	done, times := make(chan error), 300
	if !redistest.All() {
		times = 30
	}
	go func() {
		for i := range times {
			if err := replace(path, texts[i%len(texts)]); err != nil {
				done <- err
				return
			}
		}
		close(done)
	}()
	for reads, ended := 0, false; !ended; reads++ {
		select {
		case err := <-done:
			if ended = true; err != nil {
				t.Error(err)
			}
			t.Logf("%d reads", reads)
		default:
		}
		data, err := os.ReadFile(link)
		if text := string(data); err != nil || text != texts[0] && text != texts[1] && text != texts[2] {
			t.Fatalf("read %d bytes, %v", len(data), err)
		}
	}
	info, err := os.Stat(file)
	names, _ := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || info.Mode().Perm() != 0o600 || len(names) > 0 {
		t.Errorf("%v, %v, left behind: %q", info.Mode(), err, names)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().IsRegular() {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	if err := replace(filepath.Join(dir, "none", "file"), ""); err == nil {
		t.Error("a file in no folder was written")
	}
}
