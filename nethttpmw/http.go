package nethttpmw

import (
	"net/http"
	"net/http/httputil"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// HTTP returns a middleware that guards net/http handlers with the rules. It panics on rules that cannot
// work. The middleware is safe for concurrent use.
//
// Path parameters and the matched pattern are known only behind the router. For rules that use them, wrap the
// handlers of routes, as in mux.Handle("POST /sales/{sku}/orders", nethttpmw.HTTP(buy)(order)), rather than
// the router.
//
// A httputil.ReverseProxy empties the header when its upstream sends an informational answer, such as 103.
// The final answer has the RateLimit fields all the same if the proxy is the handler that is wrapped, or if a
// rule depends on the response.
func HTTP(rules ...Rule) func(http.Handler) http.Handler { return Follow(pipeline.New(rules...)) }

// Follow is [HTTP] for rules that may change while requests are served: each request passes the pipeline that
// the source has when it arrives, and is settled by it. It panics on a nil source.
func Follow(s pipeline.Source) func(http.Handler) http.Handler {
	pipeline.MustFollow(s)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("gatehouse: nethttpmw.HTTP has a nil handler: pass the handler to run")
		}
		_, proxies := next.(*httputil.ReverseProxy)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passage, refusal := s.Pipeline().Enter(&keyfuncs.Request{Request: r})
			if refusal != nil {
				refusal.Answer(w, r)
				return
			}
			defer passage.Abort() // has an effect only if the handler panics
			watch := passage.Watch
			if proxies {
				watch = passage.WatchHints
			}
			next.ServeHTTP(watch(w), r.WithContext(passage.Context()))
			passage.Leave(http.StatusOK)
		})
	}
}
