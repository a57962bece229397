// Package warn holds all warnings about set-ups that look wrong but may be right. A set-up that is
// certainly wrong panics instead. A [Sample] says how often what requests cause is logged.
//
// A warning is logged once per subject in the life of a process, through [slog.Default] or the logger of the
// engine that it is about, with its code and the place that explains it. Strangers can provoke
// some of them, for example with a forged header, so once has to be enough, and the log line contains nothing
// that they send.
package warn

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
)

// explained is the page that explains the warnings; the anchor of each is its code in lower case.
const explained = "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/errors.md#"

// most is how many subjects a warning is logged for. Subjects are named at set-up, so there are few; more
// would be a mistake of ours, and must not fill the memory.
const most = 100

// A Warning is one kind of set-up that looks wrong. It is safe for concurrent use.
type Warning struct {
	code, anchor, text string

	telling sync.Mutex                          // held while a subject is added
	told    atomic.Pointer[map[string]struct{}] // the subjects; the map itself never changes
}

// The warnings. The meaning of a code never changes.
var (
	// Unread: forwarding headers arrive but no proxy is trusted, so all clients behind one proxy count as
	// one.
	Unread = &Warning{code: "GH001", anchor: "gh001",
		text: "forwarding headers arrive, but keyfuncs.IP trusts no proxy"}
	// Everybody: the trusted prefixes are so wide that they contain clients.
	Everybody = &Warning{code: "GH002", anchor: "gh002", text: "keyfuncs.TrustProxies trusts nearly everybody"}
	// OneBucket: proxies are trusted, and still many clients look like one.
	OneBucket = &Warning{code: "GH003", anchor: "gh003",
		text: "keyfuncs.IP finds the same inner address for different clients"}
	// Twice: a request passes the same rule twice.
	Twice = &Warning{code: "GH004", anchor: "gh004",
		text: "a rule is mounted twice on the way of a request, which counts twice"}
	// Unrouted: keyfuncs.Route runs before the router does.
	Unrouted = &Warning{code: "GH005", anchor: "gh005",
		text: "keyfuncs.Route is asked where no route is known yet"}
	// Untaken: Take or Spend has a name that no rule has.
	Untaken = &Warning{code: "GH006", anchor: "gh006",
		text: "Take or Spend names a guard that no rule around the handler has, so it has no effect"}
	// Unknown: keyfuncs.Param names a parameter that the route does not have.
	Unknown = &Warning{code: "GH007", anchor: "gh007",
		text: "keyfuncs.Param names a parameter that the route does not have"}
	// Nameless: a trusted proxy does not send the header that keyfuncs.IP reads.
	Nameless = &Warning{code: "GH008", anchor: "gh008",
		text: "a trusted proxy does not say who its client is, so keyfuncs.IP finds nobody"}
	// Unsigned: stored requests are not sealed.
	Unsigned = &Warning{code: "GH009", anchor: "gh009",
		text: "deferred.Options has no Secrets, so requests are readable in Redis, and its writers run some as " +
			"any user"}
	// Preflight: CORS preflights reach a rule whose guard makes claims.
	Preflight = &Warning{code: "GH010", anchor: "gh010",
		text: "a CORS preflight was refused: put the CORS middleware around rules whose guards make claims"}
	// Ticketless: clients do not send the tokens that they were given.
	Ticketless = &Warning{code: "GH011", anchor: "gh011",
		text: "visitors who wait come back without their tickets, so each request takes a number"}
	// Broader: a rule in front has a broader key than one behind it.
	Broader = &Warning{code: "GH012", anchor: "gh012",
		text: "a limit is in front of a narrower one, so one client's burst has others refused: swap the rules"}
	// Loginless: no request of a rule has had the user that its key function reads.
	Loginless = &Warning{code: "GH013", anchor: "gh013",
		text: "no request has had the user that a rule wants, so all are refused: put the login around the rule, " +
			"and have it store the user under that name"}
)

// All returns every warning.
func All() []*Warning {
	return []*Warning{Unread, Everybody, OneBucket, Twice, Unrouted, Untaken, Unknown, Nameless, Unsigned,
		Preflight, Ticketless, Broader, Loginless}
}

// Code returns the warning's code, such as "GH001".
func (w *Warning) Code() string { return w.code }

// Anchor returns the anchor in docs/guides/errors.md where the warning is explained.
func (w *Warning) Anchor() string { return w.anchor }

// Told reports whether the warning has been logged for the subject. It takes no lock and allocates nothing,
// so that callers can ask per request.
func (w *Warning) Told(subject string) bool {
	told := w.told.Load()
	if told == nil {
		return false
	}
	_, ok := (*told)[subject]
	return ok || len(*told) >= most
}

// Tell logs the warning, unless it has been logged for this subject: a name from the set-up, or "" where
// there is only one. A nil logger means slog's default. The attributes are further arguments of slog.
func (w *Warning) Tell(ctx context.Context, logger *slog.Logger, subject string, attrs ...any) {
	if w.Told(subject) || !w.add(subject) {
		return
	}
	if logger == nil {
		logger = slog.Default()
	}
	logger.WarnContext(ctx, "gatehouse: "+w.text,
		append([]any{"code", w.code, "see", explained + w.anchor}, attrs...)...)
}

// add notes the subject, and reports whether it is new.
func (w *Warning) add(subject string) bool {
	w.telling.Lock()
	defer w.telling.Unlock()
	if w.Told(subject) {
		return false
	}
	next := map[string]struct{}{subject: {}}
	if told := w.told.Load(); told != nil {
		maps.Copy(next, *told)
	}
	w.told.Store(&next)
	return true
}

// Forget lets the warning be logged again. It is for tests.
func (w *Warning) Forget() { w.told.Store(nil) }
