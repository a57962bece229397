package deferred

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	random "math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// Options are the options of [New].
type Options struct {
	// Who finds the principal, the user who is logged in, such as keyfuncs.User("uid"). Only the principal may
	// read the answer. Requests without a principal are refused, not deferred. Required. Do not take an
	// address: it is shared, and changes.
	Who keyfuncs.Func
	// Limit bounds how many requests a principal may store, such as limit.NewSlidingWindow(gate, "deferred",
	// limit.PerHour(100)): it is asked with the principal as the actor before a request is stored. A request
	// that it refuses is refused as without Defer. Required.
	//
	// It alone keeps one principal from taking all of MaxStored. A request and its answer take up to MaxBody
	// and MaxAnswer and a few hundred bytes. They stay until MaxAge and the Keep of the queue have passed, and
	// a week where the request has failed. With the defaults, limit.PerHour(100) lets one principal take all
	// 64 MiB in a day. limit.PerDay(100) takes 10 MiB, if requests do not fail.
	Limit core.Guard
	// ID finds the operation ID of a request. Nil: keyfuncs.IdempotencyKey(). A request of which it finds
	// nothing gets a random one.
	ID keyfuncs.Func
	// Page is the URL under which the page of the answers is mounted. It ends in "/". Empty: "/deferred/".
	Page string
	// Secrets seal each stored request and answer (AES-256-GCM, with a key derived for each): the first seals,
	// and all open, so that secrets can be changed one after the other. Each has 32 random bytes or more.
	// Without secrets, anybody who can read Redis reads requests and answers, and anybody who can write to it
	// can make requests run as any user. Their absence is logged as the warning GH009. See Who can write to
	// Redis, in the documentation of the package.
	Secrets [][]byte
	// Credentials are further header fields that are not stored, such as X-Caller: see What is stored, in
	// the documentation of the package.
	Credentials []string
	// MaxBody is the longest body that is stored, in bytes. Requests with a longer one are refused, not
	// deferred, and so are those whose target and header have more than 8 KiB. Zero: 16 KiB.
	// delay.Options.MaxPayload has to have room for both: requests for which it has none are refused, too.
	MaxBody int
	// MaxAnswer is the longest body of an answer that is kept for the page, in bytes. For a longer answer the
	// page has the status and the fields, among them Location. Zero: 32 KiB. It has to be less than
	// delay.Options.MaxPayload.
	MaxAnswer int
	// MaxStored is the most bytes that all users store. They are the requests with 300 bytes more for each,
	// room for an answer until it is there, and then the answer, while the queue keeps it. A request beyond it
	// is refused as without Defer, and logged. Zero: 64 MiB, which is room for 1,100 of the longest requests
	// that wait, or for 50,000 answers of 1 KiB.
	MaxStored int64
	// MaxWait is the longest wait. A request that could succeed only after that is refused. Zero: an hour.
	MaxWait time.Duration
	// MaxAge is how long a stored request may be refused again and again, from when it came. Then it has failed.
	// Zero: a day.
	MaxAge time.Duration
	// Restore gives a stored request what the login of the application asks for, and returns it. It may return
	// an error, after which the request is tried again like one whose handler has failed. It is called from many
	// goroutines at once. Nil: the request has no credentials, and the login asks [Principal].
	Restore func(r *http.Request, principal string) (*http.Request, error)
}

// Requests stores requests that rules refuse for now, runs them later, and is the page that has their
// answers. It is safe for concurrent use. One Requests may serve several rules and routes.
type Requests struct {
	queue       *delay.Queue
	o           Options
	fingerprint keyfuncs.Func // tells whether a repetition is the same request
	failures    warn.Sample[string]
}

// New makes a Requests that keeps what it defers in the queue, which should be used for nothing else. It
// panics on options that cannot work, with a remedy in the message. It does not talk to Redis.
func New(q *delay.Queue, o Options) *Requests {
	switch {
	case q == nil:
		panic("gatehouse: deferred.New has no queue: make one with delay.New")
	case o.Who == nil:
		panic("gatehouse: deferred.Options has no Who: set the function that finds who is logged in, such as " +
			`keyfuncs.User("uid"), since nobody else may read the answer`)
	case o.Limit == nil:
		panic("gatehouse: deferred.Options has no Limit: set how much one client may store, such as " +
			`limit.NewSlidingWindow(gate, "deferred", limit.PerHour(100))`)
	case o.Page != "" && !strings.HasSuffix(o.Page, "/"):
		panic(fmt.Sprintf("gatehouse: deferred.Options.Page is %q: end it in \"/\"; the ID follows", o.Page))
	case slices.ContainsFunc(o.Secrets, func(s []byte) bool { return len(s) < minSecret }):
		panic(fmt.Sprintf("gatehouse: deferred.Options.Secrets has a secret of less than %d bytes: make each of "+
			"as many random bytes, such as by openssl rand -hex 32", minSecret))
	case min(int64(o.MaxBody), int64(o.MaxAnswer), o.MaxStored, int64(o.MaxWait), int64(o.MaxAge)) < 0:
		panic("gatehouse: deferred.Options has a negative MaxBody, MaxAnswer, MaxStored, MaxWait or MaxAge: " +
			"leave it out, or set a positive one")
	}
	o.MaxBody, o.MaxAnswer = cmp.Or(o.MaxBody, 16<<10), cmp.Or(o.MaxAnswer, 32<<10)
	o.MaxStored = cmp.Or(o.MaxStored, 64<<20)
	o.MaxWait, o.MaxAge = cmp.Or(o.MaxWait, time.Hour), cmp.Or(o.MaxAge, 24*time.Hour)
	o.Page = cmp.Or(o.Page, "/deferred/")
	if o.ID == nil {
		o.ID = keyfuncs.IdempotencyKey()
	}
	o.Secrets, o.Credentials = slices.Clone(o.Secrets), slices.Clone(o.Credentials)
	if len(o.Secrets) == 0 {
		warn.Unsigned.Tell(context.Background(), q.Logger(), q.Name(), "queue", q.Name())
	}
	return &Requests{queue: q, o: o, fingerprint: keyfuncs.FingerprintUpTo(o.MaxBody)}
}

// operation is what a request is called.
type operation struct {
	principal string
	id        string // the last part of its Location
	given     bool   // by the client
}

// task returns the name of the task in the queue. It is made of the principal too, so that nobody else finds
// the task by the ID.
func (op operation) task() string { return digest(keyfuncs.JoinTexts(op.principal, op.id)) }

// digest returns a text that is as good as the first one where texts are compared, of 32 letters, digits, "-"
// and "_".
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:24])
}

// operation finds what a request is called. An operation without a principal is nobody's.
func (d *Requests) operation(r *keyfuncs.Request) (op operation, err error) {
	if op.principal, err = d.o.Who(r); op.principal == "" || err != nil {
		return operation{}, unlessMissing(err)
	}
	key, err := d.o.ID(r)
	switch {
	case unlessMissing(err) != nil:
		return operation{}, err
	case key != "" && err == nil:
		op.id, op.given = digest(key), true
	default:
		op.id = digest(rand.Text())
	}
	return op, nil
}

// unlessMissing returns the error of a key function unless it has just found nothing.
func unlessMissing(err error) error {
	if errors.Is(err, keyfuncs.ErrMissing) && !errors.Is(err, keyfuncs.ErrRequired) {
		return nil
	}
	return err
}

// Known returns the deferral of a request that was stored before: see pipeline.Deferrer. Where the ID is
// stored, Known reads the body, up to MaxBody, to tell repetitions from other requests. It is asked in front
// of all rules, so no rule counts such a request while its body arrives: the ReadTimeout of the server bounds
// it.
func (d *Requests) Known(ctx context.Context, r *keyfuncs.Request) (*answers.Deferral, error) {
	op, err := d.operation(r)
	if err != nil || !op.given {
		return nil, err
	}
	return d.find(ctx, r, op)
}

// find returns the deferral of an operation, or nil if none is stored.
func (d *Requests) find(ctx context.Context, r *keyfuncs.Request, op operation) (*answers.Deferral, error) {
	status, err := d.queue.Find(ctx, op.task())
	if errors.Is(err, core.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("deferred: find: %w", err)
	}
	first, err := d.printOf(op.task(), status)
	if err != nil {
		return nil, err
	}
	wait := time.Duration(0)
	if status.State == delay.Pending {
		wait = status.At.Sub(d.now())
	}
	// A body that cannot be read, or is longer than any that is stored, is not the stored one.
	asked, err := d.fingerprint(r)
	same := err == nil && digest(asked) == first
	return &answers.Deferral{Location: d.o.Page + op.id, RetryAfter: wait, Conflict: !same}, nil
}

// Defer stores a request that may succeed after the wait: see pipeline.Deferrer.
func (d *Requests) Defer(
	ctx context.Context, r *keyfuncs.Request, wait time.Duration, depth int,
) (*answers.Deferral, error) {
	if wait > d.o.MaxWait || r.Header.Get("Upgrade") != "" || r.Method == http.MethodConnect {
		return nil, nil
	}
	op, err := d.operation(r)
	if err != nil || op.principal == "" {
		return nil, err
	}
	payload, err := d.encode(r, op, depth)
	if err != nil || payload == nil {
		return nil, err
	}
	allowed, err := d.o.Limit.Check(ctx, core.Attempt{Actor: op.principal})
	if err != nil || !allowed.Allowed {
		return nil, err
	}
	wait = spread(wait)
	created, err := d.queue.ScheduleWithin(ctx, op.task(), d.now().Add(wait), payload, d.o.MaxStored,
		int64(d.o.MaxAnswer))
	if err == nil && created {
		return &answers.Deferral{Location: d.o.Page + op.id, RetryAfter: wait}, nil
	}
	_ = d.o.Limit.Settle(ctx, allowed, core.Rollback) // observed; it is stored already, or not at all
	if errors.Is(err, delay.ErrFull) {
		d.logFull()
		return nil, nil
	}
	if err != nil {
		if !op.given {
			// It may have been stored all the same. Its client is refused, and nobody else knows its ID.
			_ = d.queue.Cancel(ctx, op.task()) // observed
		}
		return nil, fmt.Errorf("deferred: store the request: %w", err)
	}
	return d.find(ctx, r, op) // another request with the same ID was faster
}

// now is the time by the clock of the queue's engine.
func (d *Requests) now() time.Time { return d.queue.Engine().Now() }

// longest is the longest wait before it is spread. No sum of moments overflows with it.
const longest = 200 * 365 * 24 * time.Hour

// spread adds a random part of an eighth to a wait, so that requests that were refused together do not all
// come back at the same moment.
func spread(wait time.Duration) time.Duration {
	wait = min(wait, longest)
	return wait + random.N(max(wait/8, time.Millisecond))
}

// readBody reads a body that can be stored, and leaves it for others. ok is false if it is too long, breaks
// off, or was read before.
func readBody(r *http.Request, most int) (body []byte, ok bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true
	}
	if r.ContentLength > int64(most) {
		return nil, false
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(min(most, math.MaxInt-1))+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(string(body)), r.Body), r.Body}
	parsed := r.PostForm != nil || r.MultipartForm != nil
	gone := r.ContentLength > int64(len(body)) || r.ContentLength < 0 && len(body) == 0 && parsed
	return body, err == nil && len(body) <= most && !gone
}
