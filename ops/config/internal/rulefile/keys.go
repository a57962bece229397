package rulefile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// maxKey is how many functions a key function may call.
const maxKey = 64

// anyKey is the form of a key function, wherever a file has one.
func anyKey() form[key] {
	return form[key]{schema{"$ref": "#/$defs/key"}, func(d *reader, at string, n *yaml.Node) (key, bool) {
		value, ok := d.key(at, n)
		if ok && value.size > maxKey {
			d.mistake(at, n, "it calls %d key functions for each request: use at most %d", value.size, maxKey)
			return value, false
		}
		return value, ok
	}}
}

// keyKinds returns the key functions that a file can name. It is a function, because they refer to
// themselves.
func keyKinds() []keyKind {
	return []keyKind{
		argumentKey("ip", "The client's address: keyfuncs.IP.", func() keyfuncs.Func { return keyfuncs.IP() },
			ipForm, ipOf),
		textKey("user", "What the login stored under this name: keyfuncs.User.", keyfuncs.User),
		textKey("header", "A header field, which clients choose: keyfuncs.Header.", keyfuncs.Header),
		textKey("cookie", "A cookie, which clients choose: keyfuncs.Cookie.", keyfuncs.Cookie),
		textKey("query", "A parameter of the query, which clients choose: keyfuncs.Query.", keyfuncs.Query),
		textKey("form", "A field of a form, which clients choose: keyfuncs.Form.", keyfuncs.Form),
		textKey("param", "A path parameter by its bare name: keyfuncs.Param.", keyfuncs.Param),
		textKey("const", "The same text for all requests: keyfuncs.Const.", keyfuncs.Const),
		argumentKey("json", "A member of the JSON body, which clients choose: keyfuncs.JSON.", nil, jsonForm,
			func(o bodyOptions) keyfuncs.Func { return keyfuncs.JSON(o.most, o.member...) }),
		bareKey("basic_auth", "The user name of HTTP Basic authentication: keyfuncs.BasicAuth.",
			keyfuncs.BasicAuth),
		bareKey("visitor", "The browser, of those without an account, for waiting rooms: keyfuncs.Visitor.",
			keyfuncs.Visitor),
		bareKey("route", "The pattern that the request matched: keyfuncs.Route.", keyfuncs.Route),
		bareKey("method", "The method: keyfuncs.Method.", keyfuncs.Method),
		bareKey("host", "The host that the client asked for: keyfuncs.Host.", keyfuncs.Host),
		bareKey("idempotency_key", "The Idempotency-Key header: keyfuncs.IdempotencyKey.", keyfuncs.IdempotencyKey),
		argumentKey("fingerprint", "What makes two requests the same: keyfuncs.Fingerprint.", keyfuncs.Fingerprint,
			fingerprintForm, func(o bodyOptions) keyfuncs.Func { return keyfuncs.FingerprintUpTo(o.most) }),
		severalKeys("join", "All of these texts as one: keyfuncs.Join.", keyfuncs.Join),
		severalKeys("first_of", "The first of these that finds a text: keyfuncs.FirstOf.", keyfuncs.FirstOf),
		wrappedKey("hash", "The SHA-256 of what it finds, for secrets: keyfuncs.Hash.", keyfuncs.Hash),
		wrappedKey("folded", "What it finds in one spelling, such as an account's name: keyfuncs.Folded.",
			keyfuncs.Folded),
		wrappedKey("require", "What it finds, or else a refusal with 400: keyfuncs.Require.", keyfuncs.Require),
	}
}

func bareKey(name, doc string, f func() keyfuncs.Func) keyKind {
	return keyKind{name: name, doc: doc, bare: f}
}

// argumentKey is a function with an argument. bare is nil if it needs one.
func argumentKey[O any](
	name, doc string, bare func() keyfuncs.Func, f form[O], make func(O) keyfuncs.Func,
) keyKind {
	return keyKind{name: name, doc: doc, bare: bare, argument: f.schema,
		read: func(d *reader, at string, n *yaml.Node) (key, bool) {
			argument, ok := f.read(d, at, n)
			if !ok {
				return key{}, false
			}
			return d.makeKey(at, n, func() keyfuncs.Func { return make(argument) })
		}}
}

// textKey is a function with one text as its argument.
func textKey(name, doc string, f func(string) keyfuncs.Func) keyKind {
	return argumentKey(name, doc, nil, text("the argument of "+name), f)
}

// severalKeys is a function of other functions.
func severalKeys(name, doc string, f func(...keyfuncs.Func) keyfuncs.Func) keyKind {
	s := schema{"type": "array", "minItems": 1, "items": schema{"$ref": "#/$defs/key"}}
	return keyKind{name: name, doc: doc, argument: s,
		read: func(d *reader, at string, n *yaml.Node) (key, bool) {
			keys, ok := atMost(maxKey, listOf(anyKey(), false)).read(d, at, n)
			if !ok {
				return key{}, false
			}
			all := key{size: 1}
			var fns []keyfuncs.Func
			for _, k := range keys {
				fns = append(fns, k.find)
				all.size += k.size
				all.needs = cmp.Or(all.needs, k.needs)
			}
			all.find = f(fns...)
			return all, true
		}}
}

// wrappedKey is a function of one other function.
func wrappedKey(name, doc string, f func(keyfuncs.Func) keyfuncs.Func) keyKind {
	return keyKind{name: name, doc: doc, argument: schema{"$ref": "#/$defs/key"},
		read: func(d *reader, at string, n *yaml.Node) (key, bool) {
			inner, ok := anyKey().read(d, at, n)
			if !ok {
				return key{}, false
			}
			return key{f(inner.find), inner.size + 1, inner.needs}, true
		}}
}

// ipOptions are the arguments of ip.
type ipOptions struct {
	proxies       []string
	unixSocket    bool
	v4, v6        int
	forwarded     bool
	header        string
	proxyIsClient bool
}

var ipForm = object(
	in("trust_proxies", "Addresses and prefixes of your own proxies: keyfuncs.TrustProxies.",
		listOf(text(`a prefix, such as "10.0.0.0/8"`), true), func(o *ipOptions) *[]string { return &o.proxies }),
	in("trust_unix_socket", "Trust peers on a Unix socket: keyfuncs.TrustUnixSocket.", boolean(),
		func(o *ipOptions) *bool { return &o.unixSocket }),
	in("ipv4_prefix", "How many bits of an IPv4 address make one client; the default is 32.", whole(1, 32),
		func(o *ipOptions) *int { return &o.v4 }),
	in("ipv6_prefix", "How many bits of an IPv6 address make one client; the default is 64.", whole(1, 128),
		func(o *ipOptions) *int { return &o.v6 }),
	in("read_forwarded", "Read Forwarded (RFC 7239), not X-Forwarded-For: keyfuncs.ReadForwarded.", boolean(),
		func(o *ipOptions) *bool { return &o.forwarded }),
	in("read_header", "Read the header of a CDN, such as CF-Connecting-IP: keyfuncs.ReadHeader.",
		text("the name of a header field"), func(o *ipOptions) *string { return &o.header }),
	in("proxy_may_be_client", "A proxy that names no client counts itself: keyfuncs.ProxyMayBeClient.",
		boolean(), func(o *ipOptions) *bool { return &o.proxyIsClient }),
)

func ipOf(o ipOptions) keyfuncs.Func {
	var options []keyfuncs.IPOption
	add := func(wanted bool, option func() keyfuncs.IPOption) {
		if wanted {
			options = append(options, option())
		}
	}
	add(o.proxies != nil, func() keyfuncs.IPOption { return keyfuncs.TrustProxies(o.proxies...) })
	add(o.unixSocket, keyfuncs.TrustUnixSocket)
	add(o.v4 != 0, func() keyfuncs.IPOption { return keyfuncs.IPv4Prefix(o.v4) })
	add(o.v6 != 0, func() keyfuncs.IPOption { return keyfuncs.IPv6Prefix(o.v6) })
	add(o.forwarded, keyfuncs.ReadForwarded)
	add(o.header != "", func() keyfuncs.IPOption { return keyfuncs.ReadHeader(o.header) })
	add(o.proxyIsClient, keyfuncs.ProxyMayBeClient)
	return keyfuncs.IP(options...)
}

// bodyOptions are the arguments of functions that read the body.
type bodyOptions struct {
	member []string
	most   int
}

var (
	jsonForm = object(
		must(in("member", "The name of the member, or the names that lead to one inside others.",
			listOf(text("the name of a member"), true), func(o *bodyOptions) *[]string { return &o.member })),
		must(in("max_bytes", "The size of the largest body; larger ones are answered with 413.",
			whole(1, 64<<20), func(o *bodyOptions) *int { return &o.most })),
	)
	fingerprintForm = object(
		must(in("max_bytes", "The size of the largest body; larger ones are answered with 413.",
			whole(1, 64<<20), func(o *bodyOptions) *int { return &o.most })),
	)
)

// makeKey calls a constructor, whose panics are mistakes of the file.
func (d *reader) makeKey(at string, n *yaml.Node, f func() keyfuncs.Func) (key, bool) {
	k := key{size: 1}
	ok := d.try(at, n, func() { k.find = f() })
	return k, ok
}

// key reads a key function: a name, or a mapping of one name to its argument.
func (d *reader) key(at string, n *yaml.Node) (key, bool) {
	const want = "a key function, such as ip, or {user: uid}"
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 {
		return d.keyWith(at, n.Content[0], n.Content[1])
	}
	if n.Kind == yaml.MappingNode {
		d.mistake(at, n, "a mapping with %d members: want %s", len(n.Content)/2, want)
		return key{}, false
	}
	name, ok := d.scalar(at, n, want, "!!str")
	if !ok {
		return key{}, false
	}
	if own := d.program.Keys[name]; own != nil {
		return key{find: own, size: 1}, true
	}
	if k, ok := d.keys[name]; ok {
		return d.named(at, n, name, k)
	}
	for _, kind := range d.keyKinds() {
		if kind.name != name {
			continue
		}
		if kind.bare == nil {
			d.mistake(at, n, "%s needs an argument: write {%s: ...}", name, name)
			return key{}, false
		}
		k, ok := d.makeKey(at, n, kind.bare)
		k.needs = d.lacking(name, nil)
		return k, ok
	}
	d.mistake(at, n, "%s", unknown("key function", name, d.keyNames(true)))
	return key{}, false
}

// keyWith reads a function with its argument.
func (d *reader) keyWith(at string, name, argument *yaml.Node) (key, bool) {
	at = join(at, name.Value)
	for _, kind := range d.keyKinds() {
		switch {
		case kind.name != name.Value:
			continue
		case kind.read == nil:
			d.mistake(at, argument, "%s takes no argument: write %s alone", kind.name, kind.name)
			return key{}, false
		}
		k, ok := kind.read(d, at, argument)
		k.needs = cmp.Or(k.needs, d.lacking(kind.name, argument))
		return k, ok
	}
	if _, own := d.keys[name.Value]; own || d.program.Keys[name.Value] != nil {
		d.mistake(at, argument, "%s takes no argument: write %s alone", name.Value, name.Value)
		return key{}, false
	}
	d.mistake(at, name, "%s", unknown("key function", name.Value, d.keyNames(false)))
	return key{}, false
}

// keyKinds returns the key functions that a file can name, made once for each file.
func (d *reader) keyKinds() []keyKind {
	if d.kinds == nil {
		d.kinds = keyKinds()
	}
	return d.kinds
}

// keyNames returns what may stand for a key function, alone or in front of an argument.
func (d *reader) keyNames(alone bool) []string {
	var names []string
	for _, kind := range keyKinds() {
		switch {
		case !alone && kind.read != nil, alone && kind.bare != nil:
			names = append(names, kind.name)
		case alone:
			names = append(names, "{"+kind.name+": ...}")
		}
	}
	if alone {
		for name := range d.keys {
			names = append(names, name)
		}
		for name := range d.program.Keys {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	return names
}

// named resolves the name of a key function of the section keys.
func (d *reader) named(at string, n *yaml.Node, name string, k *namedKey) (key, bool) {
	switch k.state {
	case 0:
		k.state = 1
		k.value, k.correct = anyKey().read(d, k.at, k.node)
		k.state = 2
	case 1:
		d.mistake(at, n, "the key function %s refers to itself", quote(name))
		return key{}, false
	}
	return k.value, k.correct
}

// readKeys reads the section keys.
func (d *reader) readKeys(n *yaml.Node) {
	if n == nil {
		return
	}
	nodes := form[*yaml.Node]{read: func(_ *reader, _ string, n *yaml.Node) (*yaml.Node, bool) {
		return n, true
	}}
	entries, _ := tableOf("key functions", nodes).read(d, "keys", n)
	var builtIn []string
	for _, kind := range keyKinds() {
		builtIn = append(builtIn, kind.name)
	}
	for _, e := range entries {
		if slices.Contains(builtIn, e.Name) || d.program.Keys[e.Name] != nil {
			d.mistake(e.at, e.node, "%s is the name of a key function already: choose another one", quote(e.Name))
			continue
		}
		d.keys[e.Name] = &namedKey{node: e.Value, at: e.at}
	}
	for _, e := range entries {
		if k := d.keys[e.Name]; k != nil && k.state == 0 {
			d.named(e.at, e.Value, e.Name, k)
		}
	}
}

// CheckKeyName returns an error for a name that a file could not have.
func CheckKeyName(name string) error {
	for _, kind := range keyKinds() {
		if kind.name == name {
			return fmt.Errorf("config: %q is the name of a built-in key function: choose another one", name)
		}
	}
	if !CheckName(name) || strings.Trim(name, "0123456789.") == "" {
		return fmt.Errorf("config: the name %q: use letters, digits, '.', '_' and '-', at most 64", name)
	}
	return nil
}
