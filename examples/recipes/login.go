package recipes

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// deviceCookie names the cookie that a browser gets with its first login to an account.
const deviceCookie = "device"

// Login guards a login form with the fields user and password. Only failures count: 20 an hour per address,
// 10 an hour per account from devices that have never been logged in to it, and 10 an hour per device that
// has. So an attacker with many addresses gets 10 guesses an hour, and 10 more with the cookie of a stolen
// device. They cannot lock the owner out of their other devices. The secret signs the cookies of devices.
func Login(gate *core.Engine, secret []byte, correct func(user, password string) bool) http.Handler {
	perAddress := ratelimit.Rule{
		Guard:   limit.NewSlidingWindow(gate, "login-address", limit.PerHour(20)),
		Who:     keyfuncs.IP(),
		Counted: []int{http.StatusUnauthorized},
	}
	perAccount := ratelimit.Rule{
		Guard:   limit.NewSlidingWindow(gate, "login-account", limit.PerHour(10)),
		Who:     strangeTo(secret),
		NoKey:   ratelimit.NoKeySkip, // a known device passes, and the limit by address still holds
		Counted: []int{http.StatusUnauthorized},
	}
	perDevice := ratelimit.Rule{
		Guard:   limit.NewSlidingWindow(gate, "login-device", limit.PerHour(10)),
		Who:     knownTo(secret),
		NoKey:   ratelimit.NoKeySkip, // a strange device counts by its account
		Counted: []int{http.StatusUnauthorized},
	}
	guarded := ratelimit.HTTP(perAddress, perAccount, perDevice)
	return guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := keyfuncs.Fold(r.PostFormValue("user")) // as the rules count it
		if !correct(user, r.PostFormValue("password")) {
			http.Error(w, "Wrong user or password.", http.StatusUnauthorized)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: deviceCookie, Value: newDevice(secret, user), Path: "/",
			MaxAge: 180 * 24 * 3600, HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode})
		w.WriteHeader(http.StatusNoContent)
	}))
}

// account finds the account that a login is about, in one spelling. Otherwise Ann, ann and " ann" would be
// three budgets.
var account = keyfuncs.Require(keyfuncs.Folded(keyfuncs.Form("user")))

// strangeTo finds the account of a login from a device that has no valid cookie for this account.
func strangeTo(secret []byte) keyfuncs.Func {
	return keyfuncs.OfBody(func(r *keyfuncs.Request) (string, error) {
		name, err := account(r)
		if err != nil {
			return "", err
		}
		if deviceOf(r, secret, name) != "" {
			return "", keyfuncs.ErrMissing
		}
		return name, nil
	})
}

// knownTo finds the device of a login from one that has a valid cookie for the account.
func knownTo(secret []byte) keyfuncs.Func {
	return keyfuncs.OfBody(func(r *keyfuncs.Request) (string, error) {
		name, err := account(r)
		if err != nil {
			return "", err
		}
		device := deviceOf(r, secret, name)
		if device == "" {
			return "", keyfuncs.ErrMissing
		}
		return device, nil
	})
}

// newDevice returns a cookie for a device that has logged in to the account.
func newDevice(secret []byte, account string) string {
	device := rand.Text()
	return device + "." + mark(secret, device, account)
}

// deviceOf returns the device of a request, or "" unless it has a cookie for the account.
func deviceOf(r *keyfuncs.Request, secret []byte, account string) string {
	c, err := r.Cookie(deviceCookie)
	if err != nil {
		return ""
	}
	device, sum, _ := strings.Cut(c.Value, ".")
	if !hmac.Equal([]byte(sum), []byte(mark(secret, device, account))) {
		return ""
	}
	return device
}

// mark signs that a device has logged in to an account.
func mark(secret []byte, device, account string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("device " + device + " of " + account))
	return hex.EncodeToString(mac.Sum(nil))
}
