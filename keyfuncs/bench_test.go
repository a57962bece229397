package keyfuncs_test

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// BenchmarkIP measures what a request pays for its client's address: with and without a proxy, and when a
// stranger forges a header.
func BenchmarkIP(b *testing.B) {
	behind := keyfuncs.TrustProxies("10.0.0.0/8", "2001:db8:f::/48")
	for _, bm := range []struct {
		name string
		fn   keyfuncs.Func
		r    *keyfuncs.Request
	}{
		{"peer", keyfuncs.IP(), from("203.0.113.7:50000", nil, nil)},
		{"peer IPv6", keyfuncs.IP(), from("[2001:db8:1:2:3:4:5:6]:50000", nil, nil)},
		{"peer that forges", keyfuncs.IP(), from("203.0.113.7:50000", lines("198.51.100.1"), nil)},
		{"private peer", keyfuncs.IP(), from("10.0.0.1:50000", nil, nil)},
		{"one proxy", keyfuncs.IP(behind), from("10.0.0.1:50000", lines("203.0.113.7"), nil)},
		{"three proxies", keyfuncs.IP(behind),
			from("10.0.0.1:50000", lines("203.0.113.7, 10.0.0.3, 10.0.0.2"), nil)},
		{"stranger beside proxies", keyfuncs.IP(behind), from("203.0.113.7:50000", lines("198.51.100.1"), nil)},
		{"Forwarded", keyfuncs.IP(behind, keyfuncs.ReadForwarded()),
			from("10.0.0.1:50000", nil, lines(`for="[2001:db8:c::7]:4711";proto=https`))},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bm.fn(bm.r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
