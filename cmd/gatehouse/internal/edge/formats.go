package edge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
)

// format is a form of the file.
//
// Users may choose the actors of a guard, so no actor may become anything but an entry: not a second line,
// not a directive, and not a network that is wider than a client's. An actor that does not fit a format is
// left out. One entry that a proxy rejects would be worse: then it keeps the list of before, for all actors.
type format struct {
	name string
	// entry returns an actor as an entry, or false if it cannot be written.
	entry func(actor string) (entry, bool)
	write func(w *strings.Builder, all []entry, now time.Time)
	// timed formats have the ends of the bans in the file.
	timed bool
}

// entry is a ban in a file.
type entry struct {
	text    string
	same    string       // entries are the same if these texts are
	network netip.Prefix // of a format for addresses
	ban     ban
}

// page is a file.
type page struct {
	text     string
	identity string // differs if the file has to be written again
	beyond   int    // the number of bans beyond the most
	unfit    int    // the number of bans that the format cannot have
}

var formats = []format{
	{name: "plain", entry: plain, write: lines},
	{name: "nginx-map", entry: nginxMap, write: lines},
	{name: "nginx-geo", entry: nginxGeo, write: lines},
	{name: "haproxy-acl", entry: network, write: lines},
	{name: "nft", entry: network, write: nft, timed: true},
}

func formatNames() (names []string) {
	for i := range formats {
		names = append(names, formats[i].name)
	}
	return names
}

func formatNamed(name string) *format {
	for i := range formats {
		if formats[i].name == name {
			return &formats[i]
		}
	}
	return nil
}

// page writes the bans that end last, most of them at most. all are sorted by their ends.
func (f *format) page(all []ban, most int, now time.Time) page {
	var p page
	var kept []entry
	seen := map[string]bool{}
	for _, b := range all {
		one, ok := entry{}, false
		if !b.hashed {
			one, ok = f.entry(b.actor)
		}
		switch {
		case !ok:
			p.unfit++
		case seen[one.same]:
		case len(kept) == most:
			p.beyond++
		default:
			one.ban = b
			seen[one.same] = true
			kept = append(kept, one)
		}
	}
	var text, identity strings.Builder
	f.write(&text, kept, now)
	p.text, p.identity = text.String(), text.String()
	if f.timed {
		for _, one := range kept {
			fmt.Fprintf(&identity, "%s %d\n", one.text, one.ban.finish)
		}
		p.identity = identity.String()
	}
	return p
}

// lines writes an entry a line.
func lines(w *strings.Builder, all []entry, _ time.Time) {
	for _, one := range all {
		w.WriteString(one.text)
		w.WriteByte('\n')
	}
}

// isPrintable reports whether a text is one line of UTF-8 without characters that steer something.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r == unicode.ReplacementChar || !unicode.IsPrint(r)
	})
}

func plain(actor string) (entry, bool) { return entry{text: actor, same: actor}, isPrintable(actor) }

// nginxMap writes a line of a map block. The backslash in front makes nginx take every text as it is, also
// "default" and "~.*". nginx compares without regard to case, and rejects a map that has a text twice.
func nginxMap(actor string) (entry, bool) {
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(actor)
	return entry{text: `"\\` + quoted + `" 1;`, same: lowered(actor)}, isPrintable(actor)
}

// lowered is how nginx compares texts: it knows the letters of ASCII only.
func lowered(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}

// Networks that are wider than these are left out: only a guard whose actors are no addresses has them, and
// its users could ban everybody.
const widest4, widest6 = 8, 32

// network reads an address or a network that is written as keyfuncs.IP writes it.
func network(actor string) (entry, bool) {
	n, err := netip.ParsePrefix(actor)
	if err != nil {
		addr, err := netip.ParseAddr(actor)
		if err != nil || addr.Zone() != "" || addr.Is4In6() || addr.String() != actor {
			return entry{}, false
		}
		n = netip.PrefixFrom(addr, addr.BitLen())
	} else if n.Masked().String() != actor || n.Addr().Is4In6() || n.IsSingleIP() {
		return entry{}, false
	}
	least := widest6
	if n.Addr().Is4() {
		least = widest4
	}
	return entry{text: actor, same: actor, network: n}, n.Bits() >= least
}

// nginxGeo writes a line of a geo block.
func nginxGeo(actor string) (entry, bool) {
	one, ok := network(actor)
	one.text = one.network.String() + " 1;"
	return one, ok
}

// nft writes a script that replaces the elements of two sets in one transaction. The kernel forgets each of
// them at its end. It rejects networks that overlap.
func nft(w *strings.Builder, all []entry, now time.Time) {
	var sets [2][]entry
	for _, one := range withoutCovered(all) {
		of := 0
		if one.network.Addr().Is6() {
			of = 1
		}
		sets[of] = append(sets[of], one)
	}
	names := [2]string{"banned4", "banned6"}
	for _, name := range names {
		fmt.Fprintf(w, "flush set inet gatehouse %s\n", name)
	}
	for i, set := range sets {
		if len(set) == 0 {
			continue
		}
		fmt.Fprintf(w, "add element inet gatehouse %s {\n", names[i])
		for _, one := range set {
			fmt.Fprintf(w, "  %s timeout %ds,\n", one.text, max(seconds(one.ban.ends.Sub(now)), 1))
		}
		fmt.Fprintln(w, "}")
	}
}

// withoutCovered returns the entries that lie in no other one.
func withoutCovered(all []entry) (kept []entry) {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b entry) int { // a network stands in front of what lies in it
		if by := a.network.Addr().Compare(b.network.Addr()); by != 0 {
			return by
		}
		return a.network.Bits() - b.network.Bits()
	})
	for _, one := range sorted {
		if n := len(kept); n == 0 || !kept[n-1].network.Overlaps(one.network) {
			kept = append(kept, one)
		}
	}
	return kept
}
