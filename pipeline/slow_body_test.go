package pipeline_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// waitingBody is a body that does not come until it is let go.
type waitingBody struct {
	asked chan struct{} // gets a value when somebody reads
	come  <-chan struct{}
	text  io.Reader
}

func (b *waitingBody) Read(p []byte) (int, error) {
	select {
	case b.asked <- struct{}{}:
	default:
	}
	<-b.come
	return b.text.Read(p)
}

func (*waitingBody) Close() error { return nil }

// TestASlowBodyDoesNotGoBeforeTheLimitInFrontOfIt: of 60 bodies that did not come, behind a limit of 10 by
// address, none was counted or refused, because the look-ahead read them for the rule behind it.
//
// Promise: The rules in front count a request before its body is read, so a body that never comes is counted.
func TestASlowBodyDoesNotGoBeforeTheLimitInFrontOfIt(t *testing.T) {
	user := keyfuncs.Form("user")
	own := keyfuncs.OfBody(func(r *keyfuncs.Request) (string, error) {
		text, err := io.ReadAll(r.Body)
		return string(text), err
	})
	all := keyfuncs.Const("all")
	for name, change := range map[string]func(*pipeline.Rule){
		"Who Form":     func(r *pipeline.Rule) { r.Who = user },
		"Who Hash":     func(r *pipeline.Rule) { r.Who = keyfuncs.Hash(keyfuncs.Require(user)) },
		"Who FirstOf":  func(r *pipeline.Rule) { r.Who = keyfuncs.FirstOf(keyfuncs.User("uid"), user) },
		"Who Named":    func(r *pipeline.Rule) { r.Who = keyfuncs.Named("who", user) },
		"Who own":      func(r *pipeline.Rule) { r.Who = own },
		"What Join":    func(r *pipeline.Rule) { r.What = keyfuncs.Join(keyfuncs.Method(), user) },
		"Which JSON":   func(r *pipeline.Rule) { r.Which = keyfuncs.JSON(100, "user") },
		"ID print":     func(r *pipeline.Rule) { r.ID = keyfuncs.Fingerprint() },
		"Origin Form":  func(r *pipeline.Rule) { r.Origin = user },
		"Deny by Form": func(r *pipeline.Rule) { r.Deny = keyfuncs.NewList(user, "mallory") },
		"Allow by own": func(r *pipeline.Rule) { r.Allow = keyfuncs.NewList(own, "admin") },
		"Rollout Form": func(r *pipeline.Rule) { r.Who, r.Rollout = user, pipeline.Shadow() },
		"Cost": func(r *pipeline.Rule) {
			r.Cost = func(r *keyfuncs.Request) (int64, error) {
				text, err := user(r)
				return int64(len(text)), err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				gate := core.New(b.NewClient(t), core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute))
				front := pipeline.Rule{Guard: limit.NewSlidingWindow(gate, "front", limit.PerHour(10)),
					Who: keyfuncs.IP()}
				rule := pipeline.Rule{Guard: limit.NewSlidingWindow(gate, "body", limit.PerHour(1000)), Who: all}
				behind := pipeline.Rule{Guard: limit.NewSlidingWindow(gate, "behind", limit.PerHour(1000)), Who: all}
				change(&rule)
				handler := nethttpmw.HTTP(front, rule, behind)(http.HandlerFunc(
					func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
				come, asked, answered := make(chan struct{}), make(chan struct{}, 60), make(chan int, 60)
				waiting, refused := 0, 0
				var requests sync.WaitGroup
				for range 14 {
					requests.Go(func() {
						r := httptest.NewRequest(http.MethodPost, "/", nil)
						r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
						body := &waitingBody{asked, come, &form{}}
						r.Body, r.ContentLength = body, -1
						w := httptest.NewRecorder()
						handler.ServeHTTP(w, r)
						answered <- w.Code
					})
					select {
					case <-asked:
						waiting++
					case code := <-answered:
						if refused++; code != http.StatusTooManyRequests {
							t.Errorf("%d without a body", code)
						}
					}
				}
				if waiting != 10 || refused != 4 {
					t.Errorf("%d wait for their bodies, %d are refused: want 10 and 4", waiting, refused)
				}
				close(come)
				requests.Wait()
			})
		})
	}
}

// form is a body that is a form and, at the beginning, no JSON: what it says does not matter.
type form struct{ done bool }

func (f *form) Read(p []byte) (int, error) {
	if f.done {
		return 0, io.EOF
	}
	f.done = true
	return copy(p, "user=ann"), nil
}

// TestRulesBehindABodyAreLookedAtBeforeItsRuleTakesAnything: the look-ahead goes on where it has stopped, so a
// flood that the last of three rules refuses takes nothing of the second.
func TestRulesBehindABodyAreLookedAtBeforeItsRuleTakesAnything(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		client := &guardtest.Counting{Client: b.Client}
		e := guardtest.NewEngineOver(b, client, guardtest.WithClock(guardtest.NewClock()))
		rules := []pipeline.Rule{
			{Guard: limit.NewSlidingWindow(e, "one", limit.PerHour(1000)), Who: keyfuncs.IP()},
			{Guard: limit.NewSlidingWindow(e, "two", limit.PerHour(1000)), Who: keyfuncs.Form("user")},
			{Guard: limit.NewSlidingWindow(e, "three", limit.PerHour(1)), Who: keyfuncs.Const("all")},
		}
		handler := nethttpmw.HTTP(rules...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ask := func() int {
			r := httptest.NewRequest(http.MethodPost, "/", &form{})
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Code
		}
		codes := fmt.Sprint(ask(), ask())
		client.Sent.Store(0)
		if codes += " " + strconv.Itoa(ask()); codes != "200 429 429" {
			t.Error(codes)
		}
		if sent := client.Sent.Load(); sent != 2 { // the first rule is asked, and gets back what it gave
			t.Errorf("a refusal that is remembered takes %d calls, want 2", sent)
		}
	})
}
