// Package warn is the one home of the warnings about set-ups that look wrong but can not be known to be: what is known to be wrong
// panics when it is set up.
//
// A warning is told once in the life of a process for each subject, through [slog.Default] or the logger of
// the engine that it is about, with its code and where the README explains it. What it is about may be
// brought about by strangers, with a forged header say, so once has to be enough, and nothing of what they
// send is in it.
package warn

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
)

// explained is where the README has its section about warnings; the code is the anchor, in lower case.
const explained = "https://github.com/gatehouse-go/gatehouse#"

// most is how many subjects a warning is told of. Subjects are named at set-up, so there are few; more would be a mistake of ours,
// and should not fill the memory.
const most = 100

// Warning is one kind of set-up that looks wrong. Its methods may be called from many goroutines at once.
type Warning struct {
	code, anchor, text string

	telling sync.Mutex                          // held while a subject is added
	told    atomic.Pointer[map[string]struct{}] // the subjects; a map is never changed
}

// The warnings. A code is never used for another meaning.
var (
	// Unread: forwarding headers arrive, and no proxy is trusted, so all who come through it are one client.
	Unread = &Warning{code: "GH001", anchor: "gh001", text: "forwarding headers arrive, but keyfuncs.IP trusts no proxy"}
	// Everybody: proxies are trusted at so many addresses that clients are among them.
	Everybody = &Warning{code: "GH002", anchor: "gh002", text: "keyfuncs.TrustProxies trusts nearly everybody"}
	// OneBucket: proxies are trusted, and still many clients look like one.
	OneBucket = &Warning{code: "GH003", anchor: "gh003", text: "keyfuncs.IP finds the same inner address for different clients"}
	// Twice: a request comes through the same rule twice.
	Twice = &Warning{code: "GH004", anchor: "gh004", text: "a rule is mounted twice on the way of a request, which counts twice"}
	// Unrouted: keyfuncs.Route is asked before the router was.
	Unrouted = &Warning{code: "GH005", anchor: "gh005", text: "keyfuncs.Route is asked where no route is known yet"}
)

// All returns every warning there is.
func All() []*Warning { return []*Warning{Unread, Everybody, OneBucket, Twice, Unrouted} }

// Code is what the warning is known by: "GH001".
func (w *Warning) Code() string { return w.code }

// Anchor is where the README explains the warning.
func (w *Warning) Anchor() string { return w.anchor }

// Told reports whether the warning has been told of the subject. It takes no lock and allocates nothing: for those who would
// otherwise look at each request.
func (w *Warning) Told(subject string) bool {
	told := w.told.Load()
	if told == nil {
		return false
	}
	_, ok := (*told)[subject]
	return ok || len(*told) >= most
}

// Tell logs the warning, if it has not been told of this subject: a name from the set-up, or "" where there is one subject only.
// The attributes are further arguments of slog.
func (w *Warning) Tell(ctx context.Context, subject string, attrs ...any) {
	w.TellBy(ctx, slog.Default(), subject, attrs...)
}

// TellBy is Tell by a logger other than slog's default.
func (w *Warning) TellBy(ctx context.Context, logger *slog.Logger, subject string, attrs ...any) {
	if w.Told(subject) || !w.add(subject) {
		return
	}
	logger.WarnContext(ctx, "gatehouse: "+w.text, append([]any{"code", w.code, "see", explained + w.anchor}, attrs...)...)
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

// Forget makes the warning one that has not been told: for tests.
func (w *Warning) Forget() { w.told.Store(nil) }
