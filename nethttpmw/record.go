package nethttpmw

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/felixge/httpsnoop"

	"github.com/gatehouse-go/gatehouse/core"
)

// keptFields are the fields of an answer's header that are kept and sent again. What is not named is the business of one answer
// (Date, Set-Cookie), or of the middlewares around the rules, which add it to the answer that is sent again as well.
var keptFields = []string{"Location", "Link", "Content-Location", "Content-Type", "Content-Language", "Content-Encoding", "ETag",
	"Last-Modified"}

// ofBody are those that mean nothing without the body.
var ofBody = []string{"Content-Type", "Content-Language", "Content-Encoding", "ETag", "Last-Modified"}

// fieldMost is the longest value of a field that is kept.
const fieldMost = 2048

// recording is an answer as it is kept for those who ask again: see core.Traits.KeepsOutcome.
type recording struct {
	retells bool // who asks again hears it: not where rules that keep it are in the shadow
	most    int  // bytes of the body
	header  http.Header
	around  map[string]string // kept fields that stood there before the handler ran: not its own
	fields  map[string]string // those that it has sent
	lost    bool              // it has sent a Location that can not be kept
	body    []byte
	broken  bool // the body is not all there: it is too long, was streamed, or the handler may have given up half-way
	taken   bool // the connection has been taken over: there is no answer to keep
}

// Record returns w, with the answer noted on the way where a rule of the passage keeps answers, for an adapter whose framework has
// a writer of its own. Whatever else w can do, it still can. Watch does it, too.
func (p *Passage) Record(w http.ResponseWriter) http.ResponseWriter {
	if p.recording == nil {
		return w
	}
	rec := p.recording
	rec.header = w.Header()
	rec.around = rec.present()
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		Write: func(write httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				n, err := write(b)
				rec.wrote(b, err)
				return n, err
			}
		},
		WriteString: func(write httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) {
				n, err := write(s)
				rec.wrote([]byte(s), err)
				return n, err
			}
		},
		ReadFrom: func(read httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				n, err := read(io.TeeReader(src, rec))
				rec.wrote(nil, err)
				return n, err
			}
		},
		Flush: func(flush httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				rec.broken = true
				flush()
			}
		},
		FlushError: func(flush httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error {
				rec.broken = true
				return flush()
			}
		},
		Hijack: func(hijack httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := hijack()
				rec.taken = rec.taken || err == nil
				return conn, rw, err
			}
		},
	})
}

// Write makes a recording something to copy to.
func (rec *recording) Write(b []byte) (int, error) {
	rec.wrote(b, nil)
	return len(b), nil
}

// wrote notes a part of the body that the handler has written.
func (rec *recording) wrote(b []byte, err error) {
	if err != nil || len(b) > rec.most-len(rec.body) {
		rec.broken, rec.body = true, nil
	}
	if !rec.broken {
		rec.body = append(rec.body, b...)
	}
}

// begin notes the header that is about to be sent.
func (rec *recording) begin() {
	if rec == nil || rec.header == nil {
		return
	}
	rec.fields = rec.present()
	rec.lost = rec.header.Get("Location") != "" && rec.fields["Location"] == ""
	for name, value := range rec.around {
		if rec.fields[name] == value {
			delete(rec.fields, name)
		}
	}
}

// present returns the kept fields that the header has now. Outcomes are kept as JSON, so a field that is not UTF-8 would come back as
// another one, and is rather left out.
func (rec *recording) present() map[string]string {
	fields := map[string]string{}
	for _, name := range keptFields {
		if value := strings.Join(rec.header.Values(name), ", "); value != "" && len(value) <= fieldMost && utf8.ValidString(value) {
			fields[name] = value
		}
	}
	return fields
}

// outcome returns what a guard that keeps so much of a body has to know of the answer.
func (rec *recording) outcome(status, maxBody int) *core.Outcome {
	if rec.taken || !repeatable(status) || rec.lost && status/100 == 3 { // a redirection to nowhere would be a wrong answer
		return &core.Outcome{}
	}
	o := &core.Outcome{Status: status, Header: map[string]string{}}
	whole := !rec.broken && len(rec.body) <= maxBody
	if whole {
		o.Body = rec.body
	}
	for name, value := range rec.fields {
		if whole || !slices.Contains(ofBody, name) {
			o.Header[name] = value
		}
	}
	return o
}

// repeatable reports whether an answer with this status can be sent again: not one that switches protocols.
func repeatable(status int) bool { return status >= http.StatusOK && status <= 999 }
