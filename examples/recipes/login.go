package recipes

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// deviceCookie names the cookie that a browser gets with its first login to an account.
const deviceCookie = "device"

// Login guards a login form with the fields user and password. Only failures count: 20 an hour per address,
// and 10 an hour per account from devices that have never been logged in to it. So an attacker with many
// addresses gets 10 guesses an hour, and cannot lock the owner out of their own devices. The secret signs the
// cookies of devices.
func Login(gate *core.Engine, secret []byte, correct func(user, password string) bool) http.Handler {
	perAddress := nethttpmw.Rule{
		Guard:   limit.NewSlidingWindow(gate, "login-address", limit.PerHour(20)),
		Who:     keyfuncs.IP(),
		Counted: []int{http.StatusUnauthorized},
	}
	perAccount := nethttpmw.Rule{
		Guard:   limit.NewSlidingWindow(gate, "login-account", limit.PerHour(10)),
		Who:     strangeTo(secret),
		NoKey:   nethttpmw.NoKeySkip, // a known device passes, and the limit by address still holds
		Counted: []int{http.StatusUnauthorized},
	}
	return nethttpmw.HTTP(perAddress, perAccount)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := accountOf(r.PostFormValue("user"))
		if !correct(user, r.PostFormValue("password")) {
			http.Error(w, "Wrong user or password.", http.StatusUnauthorized)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: deviceCookie, Value: mark(secret, user), Path: "/",
			MaxAge: 180 * 24 * 3600, HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode})
		w.WriteHeader(http.StatusNoContent)
	}))
}

// strangeTo finds the account of a login from a device that has no valid cookie for this account.
func strangeTo(secret []byte) keyfuncs.Func {
	user := keyfuncs.Require(keyfuncs.Form("user"))
	return func(r *keyfuncs.Request) (string, error) {
		name, err := user(r)
		if err != nil {
			return "", err
		}
		account := accountOf(name)
		c, err := r.Cookie(deviceCookie)
		if err == nil && hmac.Equal([]byte(c.Value), []byte(mark(secret, account))) {
			return "", keyfuncs.ErrMissing
		}
		return account, nil
	}
}

// accountOf is the one spelling of an account. Otherwise Ann, ann and " ann" would be three budgets.
func accountOf(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// mark signs an account for a device.
func mark(secret []byte, account string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("device of " + account))
	return hex.EncodeToString(mac.Sum(nil))
}
