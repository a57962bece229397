package started

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// userOf returns whose API key the request has, and "" for a key that nobody has.
func userOf(r *http.Request) string {
	sum := sha256.Sum256([]byte(r.Header.Get("X-Api-Key")))
	return accounts[hex.EncodeToString(sum[:])]
}

func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := userOf(r)
		if user == "" {
			http.Error(w, "unknown API key", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user)))
	})
}

func (s shop) onNetHTTP() http.Handler {
	perIP, perUser, vote, buy := s.perIP, s.perUser, s.vote, s.buy

	mux := http.NewServeMux()
	mux.Handle("GET /items", login(ratelimit.HTTP(perUser)(http.HandlerFunc(items))))
	mux.Handle("POST /polls/{poll}/votes", login(ratelimit.HTTP(vote)(http.HandlerFunc(castVote))))
	mux.Handle("POST /sales/{sku}/orders", login(ratelimit.HTTP(buy)(http.HandlerFunc(placeOrder))))
	handler := ratelimit.HTTP(perIP)(mux)

	return handler
}

func items(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "[]") }

func castVote(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

func placeOrder(w http.ResponseWriter, r *http.Request) {
	d, _ := ratelimit.Decision(r.Context(), "sale")
	if err := store(d.Attempt.Actor, d.Attempt.Resource, d.Attempt.ID); err != nil {
		http.Error(w, "try again", http.StatusInternalServerError) // the unit goes back
		return
	}
	w.WriteHeader(http.StatusCreated) // the unit is sold before this header goes out
}

// store stands for the application's database, which has no room for orders of bob.
func store(user, _, _ string) error {
	if user == "bob" {
		return fmt.Errorf("no room for %s", user)
	}
	return nil
}
