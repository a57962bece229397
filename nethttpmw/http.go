package nethttpmw

import (
	"io"
	"net/http"

	"github.com/felixge/httpsnoop"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// HTTP returns a middleware that guards net/http handlers with the rules. It panics on rules that can not work.
//
// Path parameters and the matched pattern are known to the rules only behind the router: wrap the handlers of routes, as in
// mux.Handle("POST /sales/{sku}/orders", nethttpmw.HTTP(buy)(order)), rather than the router, for rules that use them.
func HTTP(rules ...Rule) func(http.Handler) http.Handler {
	p := NewPipeline(rules...)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("gatehouse: nethttpmw.HTTP guards a nil handler: pass the handler to run")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passage, refusal := p.Enter(&keyfuncs.Request{Request: r})
			if refusal != nil {
				refusal.Reply(w)
				return
			}
			status := http.StatusOK
			if p.Settles() {
				w = recordStatus(w, &status)
			}
			defer passage.Leave(http.StatusInternalServerError) // counts when the handler panics
			next.ServeHTTP(w, r.WithContext(passage.Context()))
			passage.Leave(status)
		})
	}
}

// recordStatus returns w with the final status noted. Whatever else w can do (flush, hijack), it still can.
func recordStatus(w http.ResponseWriter, status *int) http.ResponseWriter {
	wrote := false
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(write httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(code int) {
				// Informational answers come before the final one; 101 is final. Only the first final one is sent.
				if !wrote && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
					*status, wrote = code, true
				}
				write(code)
			}
		},
		// All of these send the header, with 200, when it has not been sent.
		Write: func(write httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				wrote = true
				return write(b)
			}
		},
		WriteString: func(write httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) {
				wrote = true
				return write(s)
			}
		},
		ReadFrom: func(read httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				wrote = true
				return read(src)
			}
		},
		Flush: func(flush httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				wrote = true
				flush()
			}
		},
		FlushError: func(flush httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error {
				wrote = true
				return flush()
			}
		},
	})
}
