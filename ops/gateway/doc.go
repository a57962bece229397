// Package gateway lets a proxy ask the rules of a file before it passes a request on, for applications that
// are not written in Go:
//
//	live, err := config.Watch(ctx, gate, "rules.yaml", config.ForGateway())
//	if err != nil {
//		log.Fatal(err)
//	}
//	http.Serve(socket, gateway.Handler(live, gateway.Options{From: gateway.Nginx}))
//
// The command gatehouse serve does this. The proxy sends a request of its own for each request of a client,
// with the method, the path and the fields of it: nginx by auth_request, Traefik by forwardAuth, Caddy by
// forward_auth, Envoy by ext_authz, HAProxy by a few lines of Lua. The handler makes the client's request of
// them, passes it through the rules as nethttpmw does, and answers what the proxy understands.
//
// The routes of the file are patterns of http.ServeMux. A request that none of them matches is allowed. A
// gateway sees no bodies, and not how a request ends: see [config.ForGateway].
//
// docs/guides/gateway.md has a configuration for each proxy.
package gateway
