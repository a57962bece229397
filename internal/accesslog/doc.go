// Package accesslog reads requests from access logs: of nginx, Apache, Caddy, Traefik, IIS, CloudFront and
// AWS load balancers, of the loggers of gin, echo and chi, in JSON and in logfmt, also behind what a shipper
// has written in front of a line or wrapped around it. A format is found out by whole requests: a line counts
// if it has an address, a time and a target. No line is fatal: what cannot be read is counted and named.
package accesslog
