package keyfuncs

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Visitor identifies a visitor without an account by the browser, as a hash of User-Agent and
// Accept-Language. It always finds something, and the same for all requests of one browser, pages and
// fetches alike. It is for a waiting room, whose tickets tell visitors apart: with it, a copied ticket does
// not work in another browser.
//
// Many browsers are alike, and programs choose their header fields. So do not use it for a limit: use [IP].
// Join it with IP to tell more visitors apart, where none of them changes networks while they wait. With a
// login use [User].
func Visitor() Func {
	return Named("Visitor()", func(r *Request) (string, error) {
		hash := sha256.New()
		for _, name := range [...]string{"User-Agent", "Accept-Language"} {
			// HTTP/1 trims values and HTTP/2 does not.
			_, _ = hash.Write([]byte(strings.Trim(strings.Join(r.Header[name], ","), " \t") + "\n")) // never fails
		}
		return base64.RawURLEncoding.EncodeToString(hash.Sum(nil)), nil
	})
}
