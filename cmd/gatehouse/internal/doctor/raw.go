package doctor

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// patience is how long the doctor waits for one answer of a proxy.
const patience = 10 * time.Second

// request is a request as it is written. net/http would clean its path, and join or drop fields.
type request struct {
	method, target string
	fields         []string // names and values in turn
	body           int      // how many bytes it has
	expects        bool     // it waits for 100 Continue before it sends its body
}

// reply is what a proxy answers.
type reply struct {
	err      error // there was no answer
	status   int
	header   http.Header
	reason   string           // of a refusal
	policies []string         // the names in RateLimit-Policy, else those in RateLimit, sorted
	left     map[string]int64 // what RateLimit says is left, by name
	slow     map[string]bool  // the policies that give back a unit a second at most
}

// limits reports whether the answer has fields of a limit.
func (r *reply) limits() bool { return len(r.policies) > 0 }

// broken reports whether the answer is an error, or a refusal for which waiting is no remedy.
func (r *reply) broken() bool {
	return r.status >= http.StatusInternalServerError || r.reason != "" && r.status != http.StatusTooManyRequests
}

// again reports whether an answer is that to a request before, since a slow limit was not counted down.
func (r *reply) again(before *reply) bool {
	for name, left := range r.left {
		if had, ok := before.left[name]; ok && r.slow[name] && left == had && left > 0 {
			return true
		}
	}
	return false
}

// took returns how many units of a slow limit were taken since the answer before: the fewest, and 0 if none
// is known.
func (r *reply) took(before *reply) int64 {
	fewest := int64(0)
	for name, left := range r.left {
		if had, ok := before.left[name]; ok && r.slow[name] && (fewest == 0 || had-left < fewest) {
			fewest = had - left
		}
	}
	return fewest
}

// least returns the fewest units that are left, and -1 if the answer does not say.
func (r *reply) least() int64 {
	least := int64(-1)
	for _, left := range r.left {
		if least < 0 || left < least {
			least = left
		}
	}
	return least
}

func (r *reply) String() string {
	switch {
	case r.err != nil:
		return "not answered: " + r.err.Error()
	case !r.limits():
		return fmt.Sprintf("answered %d without RateLimit fields", r.status)
	}
	return fmt.Sprintf("answered %d, counted by %s", r.status, r.counts())
}

// counts says what is left of which policies.
func (r *reply) counts() string {
	var texts []string
	for _, name := range r.policies {
		text := `"` + name + `"`
		if left, ok := r.left[name]; ok {
			text += fmt.Sprintf(" (%d left)", left)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// client sends requests over connections of their own.
type client struct {
	url      *url.URL
	patience time.Duration // for one answer
	sent     int
}

// send sends a request and reads its answer.
func (c *client) send(ctx context.Context, r request) *reply {
	c.sent++
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return &reply{err: err}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	answer, err := r.exchange(conn, c.url.Host)
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return &reply{err: fmt.Errorf("no answer within %v", c.patience)}
	case err != nil:
		return &reply{err: err}
	}
	return answer
}

func (c *client) dial(ctx context.Context) (net.Conn, error) {
	port := cmp.Or(c.url.Port(), map[string]string{"http": "80", "https": "443"}[c.url.Scheme])
	address := net.JoinHostPort(c.url.Hostname(), port)
	if c.url.Scheme == "https" {
		d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}}
		return d.DialContext(ctx, "tcp", address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// exchange writes the request, and reads the answer, which may come before all of the body is written.
func (r *request) exchange(conn net.Conn, host string) (*reply, error) {
	if _, err := io.WriteString(conn, r.head(host)); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	goOn := make(chan bool, 1)
	written := make(chan struct{})
	go func() {
		defer close(written)
		if r.body > 0 && (!r.expects || <-goOn) {
			_, _ = io.CopyN(conn, zeros{}, int64(r.body)) // an answer may come before its end
		}
	}()
	defer func() { <-written }()
	defer func() { _ = conn.Close() }()
	defer close(goOn)
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: r.method})
		if err != nil {
			return nil, err
		}
		if resp.StatusCode == http.StatusContinue {
			goOn <- true
		}
		if resp.StatusCode < http.StatusOK {
			continue
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // only the reason is of interest
		_ = resp.Body.Close()
		return newReply(resp, body), nil
	}
}

// head returns the request line and the fields.
func (r *request) head(host string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: gatehouse-doctor\r\n", r.method, r.target, host)
	connection := "close"
	for i := 0; i < len(r.fields); i += 2 {
		if r.fields[i] == "Connection" {
			connection += ", " + r.fields[i+1]
			continue
		}
		fmt.Fprintf(&b, "%s: %s\r\n", r.fields[i], r.fields[i+1])
	}
	fmt.Fprintf(&b, "Connection: %s\r\n", connection)
	if r.body > 0 {
		fmt.Fprintf(&b, "Content-Type: application/octet-stream\r\nContent-Length: %d\r\n", r.body)
	}
	if r.expects {
		b.WriteString("Expect: 100-continue\r\n")
	}
	b.WriteString("\r\n")
	return b.String()
}

var (
	policyName = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"(?:;[^,"]*(?:"[^"]*")?)*`)
	itemLeft   = regexp.MustCompile(`;r=(\d+)`)
	itemQuota  = regexp.MustCompile(`;q=(\d+).*;w=(\d+)`)
	refusedFor = regexp.MustCompile(`"reason": *"([a-z_]+)"`)
)

func newReply(resp *http.Response, body []byte) *reply {
	r := &reply{status: resp.StatusCode, header: resp.Header, left: map[string]int64{},
		slow: map[string]bool{}}
	if reason := refusedFor.FindSubmatch(body); reason != nil {
		r.reason = string(reason[1])
	}
	names := func(field string) (all []string) {
		text := strings.Join(resp.Header.Values(field), ", ")
		for _, item := range policyName.FindAllStringSubmatch(text, -1) {
			all = append(all, item[1])
			if left := itemLeft.FindStringSubmatch(item[0]); left != nil {
				r.left[item[1]], _ = strconv.ParseInt(left[1], 10, 64) // it has only digits
			}
			if quota := itemQuota.FindStringSubmatch(item[0]); quota != nil {
				units, _ := strconv.ParseInt(quota[1], 10, 64)
				window, _ := strconv.ParseInt(quota[2], 10, 64)
				r.slow[item[1]] = units <= window
			}
		}
		slices.Sort(all)
		return all
	}
	items := names("RateLimit")
	if r.policies = names("RateLimit-Policy"); len(r.policies) == 0 {
		r.policies = items
	}
	return r
}

// zeros is a body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
