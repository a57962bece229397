package fibermw

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/gatehouse-go/gatehouse/pipeline"
)

// answer is the answer of fiber as rules see it. It is an http.ResponseWriter, to which they write refusals.
// What the handler has answered is in fiber's response already, and stays there.
type answer struct {
	c       fiber.Ctx
	passage *pipeline.Passage // nil: all that is written is the answer
	header  http.Header
	sent    http.Header // the header as fiber has it
	status  int
	body    []byte
}

func newAnswer(c fiber.Ctx, passage *pipeline.Passage) *answer {
	a := &answer{c: c, passage: passage, header: http.Header{}}
	a.load()
	return a
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) {
	if a.status == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
		a.status = code
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.passage != nil {
		if _, refused := a.passage.Refused(); !refused {
			return len(b), nil // it is in fiber's response
		}
	}
	a.body = append(a.body, b...)
	return len(b), nil
}

// joins reports whether the response has fields that those of a limit join or change.
func (a *answer) joins() bool {
	header := &a.c.Response().Header
	return slices.ContainsFunc([]string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Remaining",
		fiber.HeaderAccessControlAllowOrigin}, func(name string) bool { return len(header.Peek(name)) > 0 })
}

// load takes the header from fiber's response. The rules refer to the map.
func (a *answer) load() {
	response := a.c.Response()
	a.sent = headerOf(response.Header.All(), response.Header.Len()*32)
	clear(a.header)
	maps.Copy(a.header, a.sent)
}

// put takes the fields that the rules have changed over into fiber's response. Where it can, it deletes none,
// because that changes the order of all others.
func (a *answer) put() {
	if a.c.IsAbandoned() {
		return // fiber's timeout has answered
	}
	header := &a.c.Response().Header
	var anew []string // fields to delete and to add again
	for name := range a.sent {
		if a.header[name] == nil {
			anew = append(anew, name)
		}
	}
	for name, values := range a.header {
		before := a.sent[name]
		switch n := len(before); {
		case slices.Equal(values, before):
		case n < len(values) && slices.Equal(values[:n], before):
			for _, value := range values[n:] {
				header.Add(name, value)
			}
		case n == 1 && len(values) == 1 && name != "Set-Cookie":
			header.Set(name, values[0])
		default:
			anew = append(anew, name)
		}
	}
	if len(anew) > 0 {
		a.replace(header, anew)
	}
}

// replace deletes fields, and adds them as the rules have them, as well as all others of several lines.
func (a *answer) replace(header *fasthttp.ResponseHeader, names []string) {
	for name, values := range a.header {
		if len(values) > 1 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		header.Del(name)
	}
	for _, name := range names {
		for _, value := range a.header[name] {
			header.Add(name, value)
		}
	}
}

// send replaces fiber's response.
func (a *answer) send() {
	if a.c.IsAbandoned() {
		return // fiber's timeout has answered
	}
	ctx := a.c.RequestCtx()
	if ctx.Hijacked() {
		ctx.Hijack(nil)
		ctx.HijackSetNoResponse(false)
	}
	a.WriteHeader(http.StatusOK)
	a.put()
	ctx.Response.SetStatusCode(a.status)
	ctx.Response.ResetBody() // closes a stream
	ctx.Response.SetBodyRaw(a.body)
	if !drain(&ctx.Request) {
		ctx.Response.SetConnectionClose()
	}
	a.sent = maps.Clone(a.header)
}

// drained is how much of a body, at most, is read for nobody, in bytes.
const drained = 256 << 10 // as net/http does

// drain reads the rest of a body that the application streams, and reports whether none is left. fasthttp
// takes what is left for the next request of the connection, and a proxy may send that for another client.
func drain(r *fasthttp.Request) bool {
	body := r.BodyStream()
	if body == nil {
		return true
	}
	if n := r.Header.ContentLength(); n < 0 || n > drained {
		return false // nobody knows whether a body without a length has been read to its end
	}
	_, err := io.Copy(io.Discard, body)
	return err == nil
}

// tell writes fiber's response to the writer of the rules.
func (a *answer) tell(w http.ResponseWriter) {
	response := a.c.Response()
	w.WriteHeader(response.StatusCode())
	if response.IsBodyStream() || a.c.RequestCtx().Hijacked() {
		_, _ = io.Copy(w, unseen{}) // so that it counts as incomplete, and is not kept
		return
	}
	if body := response.Body(); len(body) > 0 {
		_, _ = w.Write(body) // an error says that the rules refuse, which Leave knows
	}
}

// unseen is a body that the rules do not see.
type unseen struct{}

func (unseen) Read([]byte) (int, error) { return 0, errUnseen }

var errUnseen = errors.New("gatehouse: the body is sent after the rules are settled")
