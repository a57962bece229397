package adaptertest

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core/votes"
)

func TestEndingsSettleOverHTTP2(t *testing.T) { onMini(t, endingsSettleOverHTTP2) }

// endingsSettleOverHTTP2 plays the endings that HTTP/2 has, without TLS, for one claim.
func endingsSettleOverHTTP2(s *scene) {
	for _, e := range endings {
		if e.only1 {
			continue
		}
		s.sub(e.name, func(s *scene) {
			s.http2 = true
			votes := votes.New(s.gate, "vote", votes.Options{})
			_, heard := e.play(s, vote(votes))
			if heard.Response != nil && heard.ProtoMajor != 2 {
				s.Errorf("the answer came by %s", heard.Proto)
			}
			s.wantKept(votes, !e.failed())
		})
	}
}
