package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The defaults of the bounds of an attack.
const (
	DefaultRequests    = 1000
	DefaultConcurrency = 16
	DefaultDuration    = 5 * time.Minute
	DefaultTimeout     = 10 * time.Second
)

// The largest bounds of an attack.
const (
	MostRequests    = 100_000
	MostConcurrency = 256
	MostDuration    = time.Hour
	MostTimeout     = time.Minute
)

const (
	// bodyMost is how much of an answer's body is read. The rest is not interesting, and a connection with an
	// unread rest is closed.
	bodyMost = 64 << 10
	// failuresMost is how many requests may stay without an answer before an attack ends.
	failuresMost = 20
)

// UserAgent is what every request says of itself, so that an operator finds these requests in a log.
const UserAgent = "gatehouse-attack/1 (+https://github.com/gatehouse-go/gatehouse)"

// Number is replaced by the number of the request, in the URL, in the values of header fields and in the
// body, so that requests come from different users.
const Number = "{n}"

// Errors of attacks.
var (
	// ErrRefused means that the attack does not begin because its target or its bounds are not allowed.
	ErrRefused = errors.New("refused")
	// ErrNoRequestsLeft means that the attack has sent as many requests as it may.
	ErrNoRequestsLeft = errors.New("all requests have been sent")
)

// Options are what an attack sends, and its bounds. Zero bounds have defaults.
type Options struct {
	// URL is the target, http or https. Required.
	URL string
	// Method is the method. Empty means GET.
	Method string
	// Header has further header fields. It must not set User-Agent.
	Header http.Header
	// Body is the body of each request.
	Body string
	// AllowHost is the host of the URL, without a port, if it is not a loopback address.
	AllowHost string
	// Requests, Concurrency, Duration and Timeout (of one request) bound the attack.
	Requests, Concurrency int
	Duration, Timeout     time.Duration
	// Admits reports whether an answer with this status was admitted. Nil means 200 to 399.
	Admits func(status int) bool
}

// Attacker sends the requests of one attack. Make one with [New] for each attack. It is safe for concurrent
// use.
type Attacker struct {
	Options
	client *http.Client
	sent   atomic.Int64

	mu   sync.Mutex
	seen Seen
}

// New makes an attacker. It sends nothing. The error is an ErrRefused with the remedy.
func New(o Options) (*Attacker, error) {
	refuse := func(format string, args ...any) (*Attacker, error) {
		return nil, fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
	}
	target, err := url.Parse(o.URL)
	switch {
	case err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Hostname() == "":
		return refuse("the URL must be of the form http://127.0.0.1:8080/path")
	case target.User != nil:
		return refuse("the URL contains a user: send a header field instead")
	case strings.Contains(target.Host, Number):
		return refuse("the host contains %s: an attack has one host", Number)
	case o.Header.Get("User-Agent") != "":
		return refuse("User-Agent cannot be set: the attack says what it is")
	}
	local := isLoopback(target.Hostname())
	if !local && o.AllowHost != target.Hostname() {
		return refuse("%s is not a loopback address: if it is your own, repeat its name with -allow-host %[1]s",
			target.Hostname())
	}
	if err := o.bound(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if o.Method == "" {
		o.Method = http.MethodGet
	}
	if o.Admits == nil {
		o.Admits = func(status int) bool { return status >= 200 && status < 400 }
	}
	a := &Attacker{Options: o, seen: Seen{Statuses: map[int]int{}, Redirects: map[string]int{}}}
	a.client = a.newClient(local)
	if _, err := a.request(context.Background(), 1, nil); err != nil { // a bad method, for example
		return refuse("%v", err)
	}
	return a, nil
}

// bound fills in the bounds, and returns an error for one that is not allowed.
func (o *Options) bound() error {
	for _, b := range []struct {
		flag             string
		set              *int
		standard, atMost int
	}{
		{"-n", &o.Requests, DefaultRequests, MostRequests},
		{"-c", &o.Concurrency, DefaultConcurrency, MostConcurrency},
	} {
		if *b.set == 0 {
			*b.set = b.standard
		}
		if *b.set < 1 || *b.set > b.atMost {
			return fmt.Errorf("%s is %d: it may be 1 to %d", b.flag, *b.set, b.atMost)
		}
	}
	for _, b := range []struct {
		flag             string
		set              *time.Duration
		standard, atMost time.Duration
	}{
		{"-for", &o.Duration, DefaultDuration, MostDuration},
		{"-timeout", &o.Timeout, DefaultTimeout, MostTimeout},
	} {
		if *b.set == 0 {
			*b.set = b.standard
		}
		if *b.set < 0 || *b.set > b.atMost {
			return fmt.Errorf("%s is %v: it may be up to %v", b.flag, *b.set, b.atMost)
		}
	}
	return nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// newClient makes the client. It follows no redirects, which might lead to other hosts. It uses no proxy, so
// that what is dialled is the host. A name such as localhost may resolve to any address, so a local client
// checks what it dials.
func (a *Attacker) newClient(local bool) *http.Client {
	dialer := &net.Dialer{Timeout: a.Timeout}
	if local {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			if host, _, err := net.SplitHostPort(address); err != nil || !isLoopback(host) {
				return fmt.Errorf("%w: %s is not a loopback address", ErrRefused, address)
			}
			return nil
		}
	}
	return &http.Client{
		Timeout: a.Timeout,
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			MaxConnsPerHost:     a.Concurrency,
			MaxIdleConnsPerHost: a.Concurrency,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes the attacker's connections.
func (a *Attacker) Close() { a.client.CloseIdleConnections() }

// Answer is the answer to one request.
type Answer struct {
	Admission
	Status   int
	Header   http.Header
	Admitted bool
}

// send sends one request, with further header fields. The error is ErrNoRequestsLeft at the bound.
func (a *Attacker) send(ctx context.Context, forged http.Header) (Answer, error) {
	n := a.sent.Add(1)
	if n > int64(a.Requests) {
		a.sent.Add(-1)
		return Answer{}, ErrNoRequestsLeft
	}
	r, err := a.request(ctx, n, forged)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Admission: Admission{After: time.Now()}}
	res, err := a.client.Do(r)
	if err != nil {
		a.see(nil)
		return Answer{}, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, bodyMost)) // the status says it all
	_ = res.Body.Close()
	answer.Before = time.Now()
	answer.Status, answer.Header, answer.Admitted = res.StatusCode, res.Header, a.Admits(res.StatusCode)
	a.see(&answer)
	return answer, nil
}

// goesOn reports whether the attack goes on after a request without an answer: a few of many may time out, as
// long as the host answers at all.
func (a *Attacker) goesOn(ctx context.Context, err error) bool {
	seen := a.Seen()
	return ctx.Err() == nil && !errors.Is(err, ErrNoRequestsLeft) && !errors.Is(err, ErrRefused) &&
		seen.Failed < seen.Requests && seen.Failed <= failuresMost
}

// request makes the nth request.
func (a *Attacker) request(ctx context.Context, n int64, forged http.Header) (*http.Request, error) {
	digits := strconv.FormatInt(n, 10)
	number := strings.NewReplacer(Number, digits, url.PathEscape(Number), digits)
	body := strings.NewReader(number.Replace(a.Body))
	r, err := http.NewRequestWithContext(ctx, a.Method, number.Replace(a.URL), body)
	if err != nil {
		return nil, err
	}
	for name, values := range a.Header {
		for _, value := range values {
			if strings.EqualFold(name, "Host") {
				r.Host = number.Replace(value)
				continue
			}
			r.Header.Add(name, number.Replace(value))
		}
	}
	for name, values := range forged {
		r.Header[name] = values
	}
	r.Header.Set("User-Agent", UserAgent)
	return r, nil
}

// Varies reports whether the requests differ in anything, so that they can come from different users.
func (a *Attacker) Varies() bool {
	all := a.URL + a.Body
	for _, values := range a.Header {
		all += strings.Join(values, "")
	}
	return strings.Contains(all, Number)
}
