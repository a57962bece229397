package adaptertest

import (
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

func TestTextsOfARuleAreSent(t *testing.T) { onMini(t, textsOfTheRule) }

func textsOfTheRule(s *scene) {
	rule := claim(seckill.New(s.gate, "sale", seckill.Options{}))
	rule.Texts = func(r *http.Request, refusal *answers.Refusal) answers.Text {
		switch r.Header.Get("Accept-Language") {
		case "de":
			return answers.Text{Title: "Noch nicht", Detail: "<b>" + string(refusal.Reason) + "</b>", Lang: "de"}
		case "half":
			return answers.Text{Detail: "halb"}
		case "panic":
			panic("lost")
		}
		return answers.Text{}
	}
	ran := false
	app := s.framework.Build(onThings(func(Context) { ran = true }, rule))
	for _, c := range []struct{ language, accept, saidIn, body string }{
		{"de", "", "de", `{"type":"https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#not_ready",` +
			`"title":"Noch nicht","status":503,` +
			`"detail":"\u003cb\u003enot_ready\u003c/b\u003e","reason":"not_ready"}` + "\n"},
		{"de", "text/html", "de", page("de", "Noch nicht", "&lt;b&gt;not_ready&lt;/b&gt;")},
		{"de", "text/plain", "de", "Noch nicht\n\n<b>not_ready</b>\n"},
		{"half", "", "", problem(503, "not_ready", "Not Ready", "halb", "")},
		{"", "", "", notReady},
	} {
		w := send(app, request(http.MethodPost, thing, "Accept-Language:"+c.language, "Accept:"+c.accept))
		if w.Code != http.StatusServiceUnavailable || w.Body.String() != c.body ||
			w.Header().Get("Content-Language") != c.saidIn {
			s.Errorf("%q, %q: %d %v\n%s\nwant\n%s", c.language, c.accept, w.Code, w.Header(), w.Body, c.body)
		}
	}
	srv := s.serve(app)
	if answer := srv.do(s.Context(), http.MethodPost, "Accept-Language: panic"); !answer.cut ||
		srv.wait() != any("lost") {
		s.Errorf("the client got %d %s", answer.StatusCode, answer.body)
	}
	if ran {
		s.Error("the handler ran")
	}
}
