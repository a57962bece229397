package keyfuncs

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
)

// A List is a set of addresses, networks and other texts in which a request's key is looked up: the keys
// that a rule denies, or lets pass uncounted. It is safe for concurrent use and can be changed at any time.
// A request sees a change wholly or not at all.
//
// An entry that is an address ("203.0.113.7") or a prefix ("10.0.0.0/8", "2001:db8::/32") matches the keys
// that are addresses or prefixes and lie wholly within it. Both are folded as in [IP]: IPv4-mapped
// addresses become IPv4, and zones are stripped. Bits behind the prefix do not matter. So "::/0" matches
// all of IPv6 and nothing of IPv4. Every other entry matches the key that is the same text, byte by byte.
//
// A list by [IP] looks up the client's address itself, not the network that it counts under. So a single
// IPv6 address may be an entry, whatever IPv6Prefix says:
//
//	keyfuncs.NewList(keyfuncs.IP(), "2001:db8:1:2::5", "192.0.2.0/24")
//
// A function of your own that calls IP finds the network, within which no single address lies. A key of
// [FirstOf] or [Join] is no address any more: give addresses and users separate lists.
//
// An entry that can never match is refused where it is given. For a list by IP that is whatever is neither an
// address nor a prefix. For all lists it is what was meant as addresses, such as "203.0.113.*",
// "203.0.113.7-203.0.113.9", "203.0.113.7:443" and "203.0.113.007".
//
// The time of a lookup grows with the number of different prefix lengths in the list, not with the number
// of entries. Add and Remove copy the list: pass many entries at once.
type List struct {
	key     Func
	about   about      // of key
	changes sync.Mutex // held while a change is made
	own     *listed    // without what is laid over it
	over    [2][]entry // added, removed
	entries atomic.Pointer[listed]
}

// listed holds the entries of a list. It never changes.
type listed struct {
	texts map[string]struct{}
	nets  map[netip.Prefix]struct{} // masked
	bits  [2][]int                  // the lengths that occur in nets, of IPv4 and of IPv6
}

// NewList makes a list of entries, which may be none, for the keys that the function finds. It panics
// without a function, and for an entry that [List.Set] would refuse.
func NewList(key Func, entries ...string) *List {
	if key == nil {
		misuse("NewList needs a function that finds the key to look up, such as IP()")
	}
	l := &List{key: key, about: aboutOf(key), own: newListed()}
	if err := l.Set(entries...); err != nil {
		panic(err)
	}
	return l
}

// Key returns the function that finds the key to look up.
func (l *List) Key() Func { return l.key }

// Accepts returns an error for an entry that the list refuses. Such an entry is empty, can never match, or
// is meant as a network and is none, such as "10.0.0.0/33" or "10.0.0.0/8 ". The error quotes the entry.
func (l *List) Accepts(text string) error {
	_, err := l.parse(text)
	return err
}

// Set replaces all entries of the list. If [List.Accepts] refuses an entry, so does Set, and nothing
// changes.
func (l *List) Set(entries ...string) error {
	return l.change(entries, func(*listed) *listed { return newListed() }, (*listed).add)
}

// Add adds entries to the present ones. It has the errors of [List.Set].
func (l *List) Add(entries ...string) error {
	return l.change(entries, (*listed).clone, (*listed).add)
}

// Remove removes entries, each as it was added; entries that are not there do not matter. Removing a
// network leaves the addresses within it that have entries of their own. Its errors are those of
// [List.Set].
func (l *List) Remove(entries ...string) error {
	return l.change(entries, (*listed).clone, (*listed).remove)
}

// Overlay lays added and removed entries over the entries of the list. The list then also has the added
// entries, and lacks the removed ones. [List.Set], Add and Remove change the entries below. An overlay
// replaces the former one, and no entries end it. It has the errors of [List.Set]. Package control calls
// it.
func (l *List) Overlay(added, removed []string) error {
	var over [2][]entry
	for i, texts := range [][]string{added, removed} {
		for _, text := range texts {
			e, err := l.parse(text)
			if err != nil {
				return err
			}
			over[i] = append(over[i], e)
		}
	}
	l.changes.Lock()
	defer l.changes.Unlock()
	l.over = over
	l.store(l.own)
	return nil
}

// store brings the entries of the list's own into force. The caller holds changes.
func (l *List) store(own *listed) {
	next := own
	if len(l.over[0])+len(l.over[1]) > 0 {
		next = own.clone()
	}
	for _, e := range l.over[0] {
		next.add(e)
	}
	for _, e := range l.over[1] {
		next.remove(e)
	}
	next.noteBits()
	l.own = own
	l.entries.Store(next)
}

// Contains reports whether the request's key is in the list. A request without the key, [ErrMissing], is in
// no list. Contains returns any other error of the key function.
func (l *List) Contains(r *Request) (bool, error) {
	var key string
	var addr netip.Addr
	var err error
	if l.about.address != nil {
		addr, err = l.about.address(r)
	} else {
		key, err = l.key(r)
	}
	switch {
	case errors.Is(err, ErrMissing) && !errors.Is(err, ErrMalformed):
		return false, nil
	case err != nil:
		return false, err
	case l.about.address != nil:
		return l.entries.Load().containsNet(netip.PrefixFrom(addr, addr.BitLen())), nil
	}
	return l.entries.Load().contains(key), nil
}

// change begins with what begin makes of the present entries, and changes it entry by entry.
func (l *List) change(entries []string, begin func(*listed) *listed, one func(*listed, entry)) error {
	parsed := make([]entry, len(entries))
	for i, text := range entries {
		var err error
		if parsed[i], err = l.parse(text); err != nil {
			return err
		}
	}
	l.changes.Lock()
	defer l.changes.Unlock()
	next := begin(l.own)
	for _, e := range parsed {
		one(next, e)
	}
	l.store(next)
	return nil
}

// entry is a network, or else a text.
type entry struct {
	net  netip.Prefix
	text string
}

// parse reads an entry, and refuses one that can never match.
func (l *List) parse(text string) (entry, error) {
	if text == "" {
		return entry{}, errors.New("keyfuncs: list entry \"\" is empty: leave it out")
	}
	refuse := func(why string) (entry, error) {
		return entry{}, fmt.Errorf("keyfuncs: list entry %s: %s", quote(text), why)
	}
	net, ok := parsePrefix(text)
	byAddress := l.about.address != nil
	switch {
	case ok && net.Addr().Is4In6():
		return refuse(shortMapped)
	case !ok && (byAddress || meantAsAddress(text)):
		return refuse("write an address such as \"192.0.2.1\" or a prefix such as \"10.0.0.0/8\"")
	case !byAddress && l.about.finds != nil && !l.about.finds(text):
		return refuse(l.about.name + " never finds it: write a text as the function finds it")
	case ok:
		return entry{net: net.Masked()}, nil
	}
	return entry{text: text}, nil
}

// meantAsAddress reports whether a text that is no network was meant as one, or as several: it begins with an
// address, and has a port, a second address or anything else behind it, blanks around it, zeros in front of
// its numbers, or a "*" in place of some.
func meantAsAddress(text string) bool {
	if _, host, ok := strings.Cut(text, "://"); ok {
		text = host
	}
	if strings.Contains(text, "*") && strings.Contains(text, ".") && strings.Trim(text, "0123456789.*") == "" {
		return true
	}
	separates := func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune(",;-/[]", c) }
	fields := strings.FieldsFunc(text, separates)
	if len(fields) == 0 {
		return false
	}
	first := strings.ReplaceAll(fields[0], ".*", ".0")
	_, isAddr := parsePrefix(strings.ReplaceAll(first, "*", ":"))
	_, err := netip.ParseAddrPort(first)
	return isAddr || err == nil || isQuad(first)
}

// isQuad reports whether a text is four numbers with dots between them, such as an address with zeros in
// front of its numbers.
func isQuad(text string) bool {
	parts := strings.Split(text, ".")
	return len(parts) == 4 && !slices.ContainsFunc(parts, func(part string) bool {
		return part == "" || strings.Trim(part, "0123456789") != ""
	})
}

func newListed() *listed {
	return &listed{texts: map[string]struct{}{}, nets: map[netip.Prefix]struct{}{}}
}

func (l *listed) clone() *listed {
	return &listed{texts: maps.Clone(l.texts), nets: maps.Clone(l.nets)}
}

func (l *listed) add(e entry) {
	if e.net.IsValid() {
		l.nets[e.net] = struct{}{}
	} else {
		l.texts[e.text] = struct{}{}
	}
}

func (l *listed) remove(e entry) {
	delete(l.nets, e.net)
	delete(l.texts, e.text)
}

// noteBits notes which prefix lengths occur.
func (l *listed) noteBits() {
	for net := range l.nets {
		if bits := &l.bits[family(net.Addr())]; !slices.Contains(*bits, net.Bits()) {
			*bits = append(*bits, net.Bits())
		}
	}
}

func (l *listed) contains(key string) bool {
	if _, ok := l.texts[key]; ok {
		return true
	}
	if len(l.nets) == 0 {
		return false
	}
	net, ok := parsePrefix(key)
	return ok && l.containsNet(net)
}

func (l *listed) containsNet(net netip.Prefix) bool {
	for _, bits := range l.bits[family(net.Addr())] {
		if bits > net.Bits() {
			continue
		}
		wider, _ := net.Addr().Prefix(bits) // bits are those of an address of the family
		if _, ok := l.nets[wider]; ok {
			return true
		}
	}
	return false
}

// family is the index of an address's family in listed.bits.
func family(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}
