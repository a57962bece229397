package keyfuncs_test

import (
	"slices"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// cloudflare is what https://www.cloudflare.com/ips/ lists. Cloudflare says there when it changes.
var cloudflare = []string{
	"173.245.48.0/20", "103.21.244.0/22", "103.22.200.0/22", "103.31.4.0/22", "141.101.64.0/18",
	"108.162.192.0/18", "190.93.240.0/20", "188.114.96.0/20", "197.234.240.0/22", "198.41.128.0/17",
	"162.158.0.0/15", "104.16.0.0/13", "104.24.0.0/14", "172.64.0.0/13", "131.0.72.0/22",
	"2400:cb00::/32", "2606:4700::/32", "2803:f800::/32", "2405:b500::/32", "2405:8100::/32",
	"2a06:98c0::/29", "2c0f:f248::/32",
}

// cloudFront stands for the prefixes of CloudFront in https://ip-ranges.amazonaws.com/ip-ranges.json.
var cloudFront = []string{"130.176.0.0/17"}

// behind has a function for each set-up of docs/guides/client-identity.md.
func behind() map[string]keyfuncs.Func {
	nginx := keyfuncs.IP(keyfuncs.TrustProxies("127.0.0.1"))

	nginxSocket := keyfuncs.IP(keyfuncs.TrustUnixSocket())

	caddy := keyfuncs.IP(keyfuncs.TrustProxies("127.0.0.1", "::1"))

	viaCloudflare := keyfuncs.IP(
		keyfuncs.TrustProxies(cloudflare...),
		keyfuncs.ReadHeader("CF-Connecting-IP"),
	)

	cloudflareAndNginx := keyfuncs.IP(keyfuncs.TrustProxies(append(slices.Clone(cloudflare), "127.0.0.1")...))

	alb := keyfuncs.IP(keyfuncs.TrustProxies("10.0.0.0/16")) // the subnets of the load balancer

	cloudFrontAndALB := keyfuncs.IP(keyfuncs.TrustProxies(append(slices.Clone(cloudFront), "10.0.0.0/16")...))

	google := keyfuncs.IP(keyfuncs.TrustProxies(
		"35.191.0.0/16", "130.211.0.0/22", // Google's proxies
		"192.0.2.10", // the address of your forwarding rule
	))

	return map[string]keyfuncs.Func{"nginx": nginx, "nginx, Unix socket": nginxSocket, "Caddy": caddy,
		"Cloudflare": viaCloudflare, "Cloudflare, nginx": cloudflareAndNginx, "ALB": alb,
		"CloudFront, ALB": cloudFrontAndALB, "Google": google}
}
