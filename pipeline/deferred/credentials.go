package deferred

import (
	"slices"
	"strings"
)

// credentials are parts of the names of header fields that hold credentials, such as Set-Cookie and
// X-Amz-Security-Token.
var credentials = []string{"authorization", "authentication", "cookie", "token", "secret", "password",
	"passphrase", "session", "jwt", "credential", "signature", "certificate", "csrf", "xsrf"}

// credentialWords are words of such names, between what is no letter: X-Auth-Key, X-SSL-Client-Cert.
var credentialWords = []string{"auth", "authn", "authz", "key", "keys", "cert", "certs", "otp", "totp", "mfa",
	"pass", "passwd", "passcode", "pwd", "pin", "sig", "hmac", "sid", "sso", "saml", "assertion", "bearer",
	"dpop", "ticket"}

// credentialEnds are ends of words of such names: X-Authkey, Phpsessid.
var credentialEnds = []string{"auth", "key", "cert", "otp", "sid", "pwd"}

// isCredential reports whether a header field holds a credential by its name, which is in lower case.
// Idempotency-Key is none, and the request needs it.
func isCredential(name string) bool {
	if name == "idempotency-key" {
		return false
	}
	if slices.ContainsFunc(credentials, func(part string) bool { return strings.Contains(name, part) }) {
		return true
	}
	words := strings.FieldsFunc(name, func(c rune) bool { return c < 'a' || c > 'z' })
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains(credentialWords, word) ||
			slices.ContainsFunc(credentialEnds, func(end string) bool { return strings.HasSuffix(word, end) })
	})
}
