package script

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
)

// Delivery says how often a script may be sent for one call. A client that gets no reply cannot know whether
// the script ran. By default go-redis then resends the command, and a script that counts would count twice.
type Delivery int

const (
	// AtMostOnce means that the script is sent at most once. When the reply is lost, the call returns an error.
	AtMostOnce Delivery = iota
	// Idempotent means that a second run for the same call changes nothing and gives the same answer: the
	// script stores its answer under an operation ID, or only reads. The client may resend it as its options
	// say.
	Idempotent
)

// Script is a Lua script that an [Runner] can run: see [Runner.Run].
type Script struct {
	name     string
	source   string
	sha      string
	hash     any // the sha as an argument, so that no call has to make it one
	delivery Delivery
	shares   bool // see Shared
}

// New makes a script. The name appears in errors. The source must get all keys that it touches in KEYS.
// New panics on a malformed name or an empty source.
func New(name, source string, delivery Delivery) *Script {
	if err := CheckName("script's name", name); err != nil {
		panic(err)
	}
	if strings.TrimSpace(source) == "" {
		panic(fmt.Sprintf("core: script %q has no source", name))
	}
	sum := sha1.Sum([]byte(source)) // the name that Redis gives scripts; not for security
	sha := hex.EncodeToString(sum[:])
	return &Script{name: name, source: source, sha: sha, hash: sha, delivery: delivery}
}

// Shared returns the script with leave to share a pipeline with concurrent calls: see [WithoutSharedCalls].
// A lost connection loses the replies of all calls of its pipeline. The server may still run them a moment
// later, when their callers have gone on. So share a script if it does not matter when a call runs that has
// ended with an error, as in checks of limits. Or share a script of claims whose undo leaves a tombstone
// where the call may still arrive: after an error, and where [WatchSendings] says so. Only the first
// sending of a call shares a pipeline.
func (s *Script) Shared() *Script {
	shared := *s
	shared.shares = true
	return &shared
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Source returns the script's Lua source.
func (s *Script) Source() string { return s.source }

// SHA returns the hash by which Redis identifies the script: the SHA-1 of its source, in hex.
func (s *Script) SHA() string { return s.sha }
