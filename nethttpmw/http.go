package nethttpmw

import (
	"net/http"

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
