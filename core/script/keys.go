package script

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// This file builds every key. A key looks like
//
//	prefix:kind:name:{tag}:field|field
//
// Redis Cluster hashes the tag, so the keys of one script call share it. Names come from the developer and
// are checked at set-up. Users' text is encoded, so that it can neither end a field nor open or close a tag.

// MaxPlain is the longest encoded text in a key, in bytes. Longer text is hashed.
const MaxPlain = 96

// Encode makes users' text safe inside keys and records. Letters, digits and a few marks stay, every other
// byte becomes %XX, and text that is longer than [MaxPlain] when encoded becomes '#' and its SHA-256.
// Different texts have different results, short of a collision of SHA-256. No result contains a brace, a
// space, a '|' or a '='.
func Encode(text string) string { return EncodeUpTo(MaxPlain, text) }

// MaxRecord is how many bytes of an encoded choice a record holds. It is more than MaxPlain because choices
// are shown to users again.
const MaxRecord = 1024

// EncodeUpTo is [Encode] with another limit, in bytes of encoded text.
func EncodeUpTo(limit int, text string) string {
	encodedLen := 0
	for i := range len(text) {
		if plain[text[i]] {
			encodedLen++
		} else {
			encodedLen += 3
		}
		if encodedLen > limit {
			sum := sha256.Sum256([]byte(text))
			return "#" + base64.RawURLEncoding.EncodeToString(sum[:])
		}
	}
	if encodedLen == len(text) {
		return text
	}
	var b strings.Builder
	b.Grow(encodedLen)
	for i := range len(text) {
		if c := text[i]; plain[c] {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

const hexDigits = "0123456789ABCDEF"

// plain marks the bytes that Encode leaves unchanged.
var plain = func() (set [256]bool) {
	for _, c := range []byte(nameRunes + "~:/@+,") {
		set[c] = true
	}
	return set
}()

// Decode returns the text that [Encode] encoded. Hashed text stays hashed.
func Decode(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			high, low := strings.IndexByte(hexDigits, text[i+1]), strings.IndexByte(hexDigits, text[i+2])
			if high >= 0 && low >= 0 {
				b = append(b, byte(high<<4|low))
				i += 2
				continue
			}
		}
		b = append(b, text[i])
	}
	return string(b)
}

// JoinTag joins encoded texts to one tag, by '|'. Encoded text contains no '|', so different lists give
// different tags.
func JoinTag(encoded ...string) string { return strings.Join(encoded, "|") }

// Keyspace builds the keys of one guard: see [Runner.Keyspace].
type Keyspace struct{ prefix string }

// Key returns a key with the given tag. The parts of the tag and the fields must be encoded.
func (k Keyspace) Key(tag string, fields ...string) string {
	if len(fields) == 0 {
		return k.prefix + "{" + tag + "}"
	}
	return k.prefix + "{" + tag + "}:" + strings.Join(fields, "|")
}

const nameRunes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

// CheckName returns an error for a name that does not belong in keys, a mistake of the developer: names have
// letters, digits, '.', '_' and '-', 64 at most. The text begins with what the name is of.
func CheckName(what, name string) error {
	if name == "" {
		return fmt.Errorf("core: the %s is empty: name it, in letters, digits, '.', '_' and '-'", what)
	}
	if len(name) > 64 {
		return fmt.Errorf("core: the %s %q is longer than 64 bytes: shorten it", what, name)
	}
	for _, c := range name {
		if !strings.ContainsRune(nameRunes, c) {
			return fmt.Errorf("core: the %s %q has %q in it: use letters, digits, '.', '_' and '-'", what, name, c)
		}
	}
	return nil
}

// errSlots is returned for a call whose keys are in several slots, which a Redis Cluster would reject.
var errSlots = errors.New("core: the keys of one call must have the same {tag}: make them with Key " +
	"and one tag")

// checkTag returns errSlots unless all keys have the same non-empty hash tag.
func checkTag(keys []string) error {
	first := ""
	for i, key := range keys {
		tag := tagIn(key)
		if tag == "" || i > 0 && tag != first {
			return errSlots
		}
		first = tag
	}
	return nil
}

// tagIn returns the hash tag of a key, or "" if it has none.
func tagIn(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !closed {
		return ""
	}
	return tag
}
