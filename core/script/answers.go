package script

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// verdict is what an error says that a server, or a proxy in front of it, has answered: about the server, and
// about what has become of the call.
type verdict struct {
	begins, has string // the text, without ERR: its beginning, and another part of it

	server  condition
	mayRun  bool // the call may have changed something; else it has certainly changed nothing
	again   repetition
	moved   bool // the key is on another server, or this one is no primary any more
	hangsUp bool // the server closes the connection, and has not read what came behind the call
}

// condition is what an answer says about the server that gave it.
type condition int

const (
	works    condition = iota // it works: the answer is about the call
	unserved                  // it cannot serve this call now, which says nothing about others
	fails                     // it cannot work now: one of the failures that open a breaker
	hopeless                  // every call, or every one that writes, gets it until somebody changes something
)

// repetition is whether the call may be sent again, and when.
type repetition int

const (
	never    repetition = iota // it would get the same answer
	anew                       // by another connection, as where no answer came
	soon                       // within the deadline: the cluster is changing its mind
	atTheKey                   // the same, while the slot of the keys moves
)

// answers are the answers that say more than that a command or a script has failed. The first match counts.
// Any other answer is about its call, and its script may have changed something.
//
// Where mayRun is not set, the answer comes before a command runs, or in place of the first command of a
// script that writes, and ends the script.
//
// A server says DENIED and "max number of clients" to a new connection, and closes it. go-redis takes it for
// the answer to its HELLO, so calls may hear no more than that the connection has ended.
var answers = []verdict{
	// Logins. A server that does not know a client reads no command of more than ten arguments, or with one of
	// more than 16 kB: it says so, and hangs up.
	{begins: "NOAUTH", server: hopeless},
	{begins: "WRONGPASS", server: hopeless},
	{begins: "DENIED", server: hopeless}, // protected mode
	{begins: "invalid password", server: hopeless},
	{begins: "AUTH <password> called without", server: hopeless},
	{begins: "Client sent AUTH", server: hopeless},
	{begins: "Protocol error: unauthenticated", server: hopeless, hangsUp: true},
	{begins: "Protocol error"},

	// The rights of the user. A script that has begun may have changed something.
	{begins: "NOPERM", has: "script: ", mayRun: true},
	{begins: "NOPERM", has: "run the 'eval", server: hopeless},
	{begins: "NOPERM"},
	{begins: "auth permission deny"}, // predixy
	{begins: "unknown command 'eval", server: hopeless},
	{begins: "unknown command `eval", server: hopeless}, // Redis before 6.2
	{begins: "unknown command"},
	{begins: "unsupported command 'eval", server: hopeless}, // envoy
	{begins: "unsupported command"},

	// The state of the server.
	{begins: "LOADING", server: hopeless, again: anew},
	{begins: "MASTERDOWN", server: hopeless, again: anew},
	{begins: "NOREPLICAS", server: hopeless, again: anew},
	{begins: "MISCONF", server: hopeless},
	{begins: "BUSY ", server: hopeless}, // BUSYGROUP and BUSYKEY are about a call
	{begins: "READONLY", server: hopeless, again: anew, moved: true},
	{begins: "REDIRECT ", server: hopeless, moved: true}, // Valkey, to clients that ask for it
	{begins: "max number of clients", server: fails, again: anew},
	{begins: "OOM"},

	// Where the keys are.
	{begins: "MOVED", again: atTheKey, moved: true},
	{begins: "ASK", again: atTheKey, moved: true},
	{begins: "TRYAGAIN", again: atTheKey},
	{begins: "CLUSTERDOWN Hash slot not served", server: unserved, again: soon},
	{begins: "CLUSTERDOWN", server: fails, again: soon},
	{begins: "CROSSSLOT"},

	{begins: "NOSCRIPT"},
	{begins: "EXECABORT"},

	// Proxies that have not sent the call: envoy, predixy, codis, twemproxy. A service that sells connections.
	{begins: "no upstream host", server: fails},
	{begins: "no server ", server: fails},
	{begins: "handle request, slot is not ready", server: fails},
	{begins: "Connection refused", server: fails},
	{begins: "max concurrent connections exceeded", server: fails},

	// Proxies that have sent the call and heard no answer, and requests that a service counts in scripts too.
	{begins: "upstream failure", server: fails, mayRun: true, again: anew},
	{begins: "upstream protocol error", server: fails, mayRun: true, again: anew},
	{begins: "server connection close", server: fails, mayRun: true, again: anew},
	{begins: "deliver request fail", server: fails, mayRun: true, again: anew},
	{begins: "handle response, backend conn reset", server: fails, mayRun: true, again: anew},
	{begins: "Connection timed out", server: fails, mayRun: true, again: anew},
	{begins: "Connection reset by peer", server: fails, mayRun: true, again: anew},
	{begins: "Broken pipe", server: fails, mayRun: true, again: anew},
	{begins: "max daily request limit exceeded", server: hopeless, mayRun: true},
	{begins: "max requests limit exceeded", server: hopeless, mayRun: true},
}

// verdictOn returns the table's entry for the answer in an error. If the error is no answer, or is not in
// the table, the call may have changed something.
func verdictOn(err error) verdict {
	var from redis.Error
	if !errors.As(err, &from) {
		return verdict{mayRun: true}
	}
	text := strings.TrimPrefix(from.Error(), "ERR ")
	if strings.HasPrefix(text, "Error running script") { // Redis 6: the answer to a command of it comes last
		if _, inner, ok := strings.Cut(text, ": -"); ok {
			text = inner
		}
	}
	for _, a := range answers {
		if strings.HasPrefix(text, a.begins) && strings.Contains(text, a.has) {
			return a
		}
	}
	return verdict{mayRun: true}
}

// isAnswer reports whether Redis answered with the error.
func isAnswer(err error) bool {
	var from redis.Error
	return errors.As(err, &from)
}

// isHopeless reports whether one such error is enough to open a breaker.
func isHopeless(err error) bool { return verdictOn(err).server == hopeless }

// isUnready reports whether a server says that it cannot work now, whatever the call, or not for this client.
func isUnready(err error) bool { return verdictOn(err).server != works }

// isFull reports whether a server has no memory left.
func isFull(err error) bool { return verdictOn(err).begins == "OOM" }

// isRefusal reports whether a call has certainly changed nothing.
func isRefusal(err error) bool { return errors.As(err, new(notSentError)) || !verdictOn(err).mayRun }

// refusedForNow reports whether a cluster refused a call because its slots are moving. Such a refusal comes
// before anything ran, and lasts only a moment. MOVED and ASK arrive here after go-redis has followed as many
// redirects as it may.
func refusedForNow(err error) bool { return verdictOn(err).again >= soon }

// isMoving reports whether a server refused a call because the keys are on another server, or on two.
func isMoving(err error) bool { return verdictOn(err).again == atTheKey }

// isElsewhere reports whether a call did not run because its server no longer has the key, or is no primary.
func isElsewhere(err error) bool { return verdictOn(err).moved || errors.Is(err, redis.ErrClosed) }

// ErrorKind sorts the errors that a server has answered: "unready" means that it cannot work now, or not for
// this client, "full" that it has no memory left, and "script" any other answer. It is empty for errors that
// are no answer. core.Event.ErrorKind has all kinds.
func ErrorKind(err error) string {
	switch {
	case isUnready(err):
		return "unready"
	case isFull(err):
		return "full"
	case isAnswer(err):
		return "script"
	}
	return ""
}
