package recipes

import (
	"crypto/rand"
	"errors"
	"html/template"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// PayLater sells in two steps: a click on the sale's page holds a unit, and a payment sells it. The page has
// the purchase's ID in a hidden field, so a second click is the same purchase. Who comes by another page is
// shown the reservation that they hold. After each payment paid is called.
func PayLater(sale *seckill.Guard, paid func(r *http.Request)) http.Handler {
	buy := ratelimit.Rule{
		Guard:      sale,
		Who:        keyfuncs.User("uid"),
		What:       keyfuncs.Param("sku"),
		ID:         keyfuncs.Form("purchase"), // the hidden field
		RunReplays: true,                      // a second click gets the same answer
		Answer: func(w http.ResponseWriter, r *http.Request, refusal *ratelimit.Refusal) {
			if id := seckill.WaitingOf(refusal.Decision); id != "" { // duplicate: they hold one
				show(w, payPage, r.PathValue("sku"), id)
				return
			}
			refusal.Reply(w, r)
		},
	}
	uid := keyfuncs.User("uid")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sales/{sku}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store") // each page names another purchase
		show(w, salePage, r.PathValue("sku"), rand.Text())
	})
	mux.Handle("POST /sales/{sku}/orders", ratelimit.HTTP(buy)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			held, ok := ratelimit.Take(r.Context(), sale.Name())
			if !ok {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			show(w, payPage, held.Attempt.Resource, held.Attempt.ID)
		})))
	mux.HandleFunc("POST /sales/{sku}/payments", func(w http.ResponseWriter, r *http.Request) {
		user, err := uid(&keyfuncs.Request{Request: r})
		if err != nil {
			http.Error(w, "Log in.", http.StatusUnauthorized)
			return
		}
		sold, err := sale.Confirm(r.Context(), core.Attempt{
			Actor: user, Resource: r.PathValue("sku"), // who is logged in, whatever the form says
			ID: r.PostFormValue("reservation"),
		})
		switch {
		case errors.Is(err, core.ErrInvalid):
			http.Error(w, "Which reservation?", http.StatusBadRequest)
		case err != nil: // not known: to ask again counts once
			http.Error(w, "Try again.", http.StatusServiceUnavailable)
		case !sold.Allowed: // over, another buyer's, or made up
			http.Error(w, "You have no such reservation.", http.StatusConflict)
		default:
			paid(r)
			_, _ = w.Write([]byte("Paid."))
		}
	})
	return mux
}

var (
	salePage = template.Must(template.New("sale").Parse(`<form method="post" action="/sales/{{.SKU}}/orders">` +
		`<input type="hidden" name="purchase" value="{{.ID}}"><button>Buy</button></form>`))
	payPage = template.Must(template.New("pay").Parse(`<form method="post" action="/sales/{{.SKU}}/payments">` +
		`<input type="hidden" name="reservation" value="{{.ID}}"><button>Pay</button></form>`))
)

func show(w http.ResponseWriter, page *template.Template, sku, id string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, struct{ SKU, ID string }{sku, id}) // an error: the client is gone
}
