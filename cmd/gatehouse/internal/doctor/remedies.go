package doctor

import "net/http"

// The remedies, with lines of docs/guides/gateway.md.
const (
	remedyLog       = "read the log of gatehouse serve: it names what the proxy does not send"
	remedySlower    = "name a path with a slower limit"
	remedyUnguarded = "name a path that routes of the file guard, and ask there: nginx `auth_request " +
		"/gatehouse-check;`. Behind Traefik, which shows clients no fields, name one with a limit of fewer " +
		"requests than -proxy-requests"
	remedyTwice = "unless the rule's cost is more than 1, the proxy asks more than once: nginx asks again " +
		"after try_files, so only the last location has `auth_request /gatehouse-check;`"
	remedyCache = "the proxy keeps the gateway's answers: nginx `proxy_cache off;` in both locations. Or it keeps " +
		"the page with its fields"
	remedyNoKey = "the key of a rule has no value: for ip the proxy has to send X-Forwarded-For"
	remedyKey   = "take keys only from fields that the proxy sets itself; ip reads X-Forwarded-For alone"
	remedyOwn   = "nginx: `proxy_set_header Gatehouse-Refusal $gatehouse_refusal;` in @gatehouse-refusal. Others: " +
		"compare with the guide"
	remedyPath = "send the path as the client wrote it: nginx `$request_uri`, Caddy `{uri}`, HAProxy " +
		"`txn.sf:pathq()`; serve without -encoded-slashes and -path-parameters"
	remedyBody = "nginx: `proxy_pass_request_body off;` and `proxy_set_header Content-Length \"\";` in the location " +
		"of auth_request. Caddy: `method GET` and `header_up -Content-Length`"
	remedyRefusal = "the proxy has to pass on the gateway's answer with its fields: nginx `rewrite ^ /refusal break;` " +
		"in @gatehouse-refusal"
	remedyFields = "nginx: `add_header RateLimit $ratelimit always;`. Caddy: `include RateLimit RateLimit-Policy " +
		"Set-Cookie`. Envoy: `{prefix: ratelimit}` in `allowed_client_headers_on_success`. Traefik has no way"
)

// remedyOfStatus is that of a refusal that arrives with a wrong status.
func remedyOfStatus(status int) string {
	switch status {
	case http.StatusForbidden:
		return "nginx: `error_page 403 = @gatehouse-refusal;` where auth_request is, and `proxy_set_header " +
			"Gatehouse-Refusal $gatehouse_refusal;` there"
	case http.StatusInternalServerError, http.StatusServiceUnavailable:
		return "name the proxy with -from of gatehouse serve; nginx makes 500 of a status that auth_request does " +
			"not know"
	}
	return remedyRefusal
}
