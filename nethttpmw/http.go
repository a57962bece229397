package nethttpmw

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// HTTP returns a middleware that guards net/http handlers with the rules. It panics on rules that cannot
// work. The middleware is safe for concurrent use.
//
// Path parameters and the matched pattern are known only behind the router. For rules that use them, wrap the
// handlers of routes, as in mux.Handle("POST /sales/{sku}/orders", nethttpmw.HTTP(buy)(order)), rather than
// the router.
func HTTP(rules ...Rule) func(http.Handler) http.Handler {
	p := NewPipeline(rules...)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("gatehouse: nethttpmw.HTTP has a nil handler: pass the handler to run")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passage, refusal := p.Enter(&keyfuncs.Request{Request: r})
			if refusal != nil {
				refusal.Answer(w, r)
				return
			}
			defer passage.Abort() // has an effect only if the handler panics
			next.ServeHTTP(passage.Watch(w), r.WithContext(passage.Context()))
			passage.Leave(http.StatusOK)
		})
	}
}

// watch returns a writer that calls begin with the status before the first byte of the final response. It has
// the same optional interfaces as w.
func watch(w http.ResponseWriter, begin func(status int)) http.ResponseWriter {
	begun := false
	once := func(status int) {
		if !begun {
			begun = true
			begin(status)
		}
	}
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(write httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(code int) {
				// Informational responses come before the final one; 101 is final.
				if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
					once(code)
				}
				write(code)
			}
		},
		// Each of these sends the header with status 200 unless it has been sent.
		Write: func(write httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				once(http.StatusOK)
				return write(b)
			}
		},
		WriteString: func(write httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) {
				once(http.StatusOK)
				return write(s)
			}
		},
		ReadFrom: func(read httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				once(http.StatusOK)
				return read(src)
			}
		},
		Flush: func(flush httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				once(http.StatusOK)
				flush()
			}
		},
		FlushError: func(flush httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error {
				once(http.StatusOK)
				return flush()
			}
		},
		Hijack: func(hijack httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := hijack()
				if err == nil {
					once(http.StatusOK) // the real status is not known
				}
				return conn, rw, err
			}
		},
	})
}
