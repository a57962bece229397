// Package accesslog reads requests from access logs: lines of the common and the combined format, of nginx
// with a log_format of its own, of AWS load balancers, Traefik and Caddy, and JSON. No line is fatal: what
// cannot be read is counted and named.
package accesslog
