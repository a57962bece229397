package status_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/internal/recipetest"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/status"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newBoard(t *testing.T, gate *core.Engine, users ...string) *status.Board {
	t.Helper()
	b := status.New(gate, 3, time.Hour)
	for _, user := range users {
		if err := b.SignUp(t.Context(), user); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func post(t *testing.T, b *status.Board, user, id, text string) status.Posted {
	t.Helper()
	posted, err := b.Post(t.Context(), user, id, text)
	if err != nil {
		t.Fatalf("%.20q posts %.20q: %v", user, text, err)
	}
	return posted
}

func TestAMessageIsPostedAndCountedInOneCall(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		board := newBoard(t, guardtest.NewEngine(b), "ann")
		first := post(t, board, "ann", "1", "hello")
		if first.Posts != 1 || first.ID == "" || first.Replayed {
			t.Errorf("first: %+v", first)
		}
		again := post(t, board, "ann", "1", "hello")
		if !again.Replayed || again.ID != first.ID || again.Posts != 1 {
			t.Errorf("a retry: %+v, want %+v again", again, first)
		}
		if _, err := board.Post(t.Context(), "ann", "1", "bye"); !errors.Is(err, status.ErrConflict) {
			t.Errorf("another message under the same ID: %v", err)
		}
		for i := 2; i <= 5; i++ {
			post(t, board, "ann", fmt.Sprint(i), fmt.Sprint("message ", i))
		}
		if err := board.SignUp(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
		posts, newest, err := board.Newest(t.Context(), "ann", 10)
		if err != nil || posts != 5 || len(newest) != 3 || newest[0].Text != "message 5" ||
			newest[2].Text != "message 3" {
			t.Errorf("%d posts, newest %v, %v: want 5, and the newest 3", posts, newest, err)
		}
	})
}

// TestAnUnknownUserLeavesNothing: the count of a user who does not exist must not appear by being counted up.
func TestAnUnknownUserLeavesNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		board := newBoard(t, guardtest.NewEngine(b))
		if _, err := board.Post(t.Context(), "bob", "1", "hello"); !errors.Is(err, status.ErrNoUser) {
			t.Errorf("Post: %v", err)
		}
		if _, _, err := board.Newest(t.Context(), "bob", 1); !errors.Is(err, status.ErrNoUser) {
			t.Errorf("Newest: %v", err)
		}
		if keys := recipetest.Keys(t, b); len(keys) > 0 {
			t.Errorf("%q are left", keys)
		}
	})
}

// TestScriptsDeclareTheirKeys: the key of a message used to be made inside the script.
func TestScriptsDeclareTheirKeys(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		gate, declared := recipetest.NewDeclared(b)
		post(t, newBoard(t, gate, "ann"), "ann", "1", "hello")
		declared.WantAll(t, b)
	})
}

func TestAServerThatForgetsItsScripts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		board := newBoard(t, recipetest.Forgetful(t, b), "ann")
		post(t, board, "ann", "1", "hello")
		if posted := post(t, board, "ann", "2", "bye"); posted.Posts != 2 {
			t.Errorf("%d posts, want 2", posted.Posts)
		}
	})
}

// TestLostRepliesPostOnce: go-redis sends a call again, and the client repeats one that failed with its ID.
func TestLostRepliesPostOnce(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		newBoard(t, guardtest.NewEngine(b), "ann")
		gate, faults := recipetest.Lossy(t, b, 0.3)
		board := status.New(gate, 100, time.Hour)
		for i := range 30 {
			text := fmt.Sprint("message ", i)
			recipetest.Retry(t, func() error {
				_, err := board.Post(t.Context(), "ann", text, text)
				return err
			})
		}
		posts, newest, err := status.New(guardtest.NewEngine(b), 100, time.Hour).Newest(t.Context(), "ann", 100)
		different := map[string]bool{}
		for _, m := range newest {
			different[m.Text] = true
		}
		if err != nil || posts != 30 || len(newest) != 30 || len(different) != 30 || faults.Swallowed() == 0 {
			t.Errorf("%d counted, %d messages, %d different ones, %v, %d replies lost: want 30", posts,
				len(newest), len(different), err, faults.Swallowed())
		}
	})
}

func TestUsersAreNotConfused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		board := newBoard(t, guardtest.NewEngine(b), guardtest.Hostile...)
		for _, user := range guardtest.Hostile {
			if posted := post(t, board, user, "1", user[:min(len(user), status.MaxText)]); posted.Posts != 1 {
				t.Errorf("%.20q has %d posts", user, posted.Posts)
			}
		}
		for i, id := range guardtest.Hostile {
			if posted := post(t, board, "{a}", id+" ", "text"); posted.Posts != int64(i)+2 {
				t.Errorf("%.20q is taken for another ID: %+v", id, posted)
			}
		}
	})
}

func TestRequests(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		h := status.Handler(newBoard(t, guardtest.NewEngine(b)), keyfuncs.Header("X-User"))
		long := strings.Repeat("x", status.MaxText)
		recipetest.Send(t, h, []recipetest.Request{
			{Method: "POST", Path: "/posts", ID: "1", Body: `{"text":"a"}`, Status: 401},
			{Method: "POST", Path: "/posts", User: "ann", Body: `{"text":"a"}`, Status: 400},
			{Method: "POST", Path: "/posts", User: "ann", ID: "1", Body: `{"text":"a"}`, Status: 404},
			{Method: "GET", Path: "/users/ann/posts", Status: 404},
			{Method: "PUT", Path: "/me", Status: 401},
			{Method: "PUT", Path: "/me", User: "ann", Status: 204},
			{Method: "GET", Path: "/users/ann/posts", Status: 200, Want: `{"newest":[],"posts":0}`},
			{Method: "POST", Path: "/posts", User: "ann", ID: "1", Status: 400},
			{Method: "POST", Path: "/posts", User: "ann", ID: "1", Body: "{", Status: 400},
			{Method: "POST", Path: "/posts", User: "ann", ID: "1", Body: `{"text":""}`, Status: 400},
			{Method: "POST", Path: "/posts", User: "ann", ID: "1", Body: "{\"text\":\"\xff\"}", Status: 400},
			{Method: "POST", Path: "/posts", User: "ann", ID: "1", Body: `{"text":"` + long + `x"}`, Status: 400},
			{Method: "POST", Path: "/posts", User: "ann", ID: "1",
				Body: `{"text":"` + strings.Repeat("x", 10*status.MaxText) + `"}`, Status: 413},
			{Method: "POST", Path: "/posts", User: "ann", ID: "{1}", Body: `{"text":"{a}\u0000é"}`,
				Status: 201, Want: `"posts":1`},
			{Method: "POST", Path: "/posts", User: "ann", ID: "{1}", Body: `{"text":"{a}\u0000é"}`,
				Status: 201, Want: `"posts":1`},
			{Method: "POST", Path: "/posts", User: "ann", ID: "{1}", Body: `{"text":"b"}`, Status: 422},
			{Method: "POST", Path: "/posts", User: "ann", ID: "2",
				Body: `{"text":"` + strings.Repeat(`\u0000`, status.MaxText) + `"}`, Status: 201},
			{Method: "GET", Path: "/users/ann/posts", Status: 200, Want: `"text":"{a}\u0000é"`},
			{Method: "GET", Path: "/users/%7Bann%7D/posts", Status: 404},
			{Method: "GET", Path: "/users/%00%ff/posts", Status: 404},
			{Method: "GET", Path: "/users//posts", Status: 307},
		})
	})
}

func TestClientsDoNotSeeWhatIsWrongWithRedis(t *testing.T) {
	h := status.Handler(status.New(recipetest.Broken(t), 3, time.Hour), keyfuncs.Header("X-User"))
	recipetest.Send(t, h, []recipetest.Request{
		{Method: "PUT", Path: "/me", User: "ann", Status: 503},
		{Method: "POST", Path: "/posts", User: "ann", ID: "1", Body: `{"text":"a"}`, Status: 503},
	})
}

func TestSetUpMistakesPanic(t *testing.T) {
	gate := guardtest.NewEngine(redistest.Mini(t))
	guardtest.WantPanic(t, "give 1 or more", func() { status.New(gate, 0, time.Hour) })
	guardtest.WantPanic(t, "give 1 or more", func() { status.New(gate, 1, 2*kit.MaxTTL) })
	guardtest.WantPanic(t, "needs Redis", func() { status.New(core.NewMemory(), 1, time.Hour) })
}
