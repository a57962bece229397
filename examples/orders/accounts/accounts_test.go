package accounts

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// shop is a process with the handler, over a database that all share.
func shop(
	t *testing.T, b redistest.Backend, db *sql.DB, work func(context.Context) error,
) (*Accounts, http.Handler) {
	a := &Accounts{DB: db, Work: work,
		Lock: lock.New(core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute)), "account",
			lock.Options{Lease: time.Hour})} // so that no renewal tells the paused one
	return a, a.Handler(keyfuncs.Header("X-User"))
}

func deposit(h http.Handler, amount string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/accounts/a7/deposits?amount="+amount, nil)
	r.Header.Set("X-User", "ann")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func want(t *testing.T, w *httptest.ResponseRecorder, status int, text string) {
	t.Helper()
	if got := strings.TrimSpace(w.Body.String()); w.Code != status || text != "" && got != text {
		t.Errorf("%d %s: want %d %s", w.Code, got, status, text)
	}
}

// TestAPausedHoldersWriteIsTurnedAway by the statement: it has read the balance, it lost the lock while it was
// paused, another request has changed the balance, and then it writes what it had read and its amount.
func TestAPausedHoldersWriteIsTurnedAway(t *testing.T) {
	losses := map[string]func(context.Context, redistest.Backend, *lock.Guard) error{
		"its lease has ended": func(ctx context.Context, b redistest.Backend, g *lock.Guard) error {
			key, over := g.Key("a7", "permits"), float64(time.Now().Add(-time.Second).UnixMilli())
			members, err := b.Client.ZRange(ctx, key, 0, -1).Result()
			for _, member := range members {
				if member != "" && err == nil { // else it is the last fence
					err = b.Client.ZAdd(ctx, key, redis.Z{Member: member, Score: over}).Err()
				}
			}
			return err
		},
		"a failover has lost the lock": func(ctx context.Context, b redistest.Backend, g *lock.Guard) error {
			return b.Client.Del(ctx, g.Key("a7", "permits")).Err()
		},
		"an operator has broken the lock": func(ctx context.Context, _ redistest.Backend, g *lock.Guard) error {
			_, err := g.Break(ctx, "a7")
			return err
		},
	}
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "accounts.db"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = db.Close() }() // of a test
				db.SetMaxOpenConns(1)
				if _, err := db.Exec(Schema + "; INSERT INTO accounts (id, balance) VALUES ('a7', 100)"); err != nil {
					t.Fatal(err)
				}
				read, goOn := make(chan struct{}), make(chan struct{})
				first, paused := shop(t, b, db, func(context.Context) error { // it does not watch its context
					close(read)
					<-goOn
					return nil
				})
				_, other := shop(t, b, db, func(context.Context) error { return nil })
				late := make(chan *httptest.ResponseRecorder, 1)
				go func() { late <- deposit(paused, "10") }()
				<-read
				want(t, deposit(other, "5"), http.StatusConflict, "")
				if err := lose(t.Context(), b, first.Lock); err != nil {
					t.Error(err)
				}
				want(t, deposit(other, "5"), http.StatusOK, "105")
				close(goOn)
				want(t, <-late, http.StatusConflict, "try again")
				want(t, deposit(other, "10"), http.StatusOK, "115")
			})
		})
	}
}

func TestMistakesChangeNothing(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "accounts.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // of a test
	if _, err := db.Exec(Schema); err != nil {
		t.Fatal(err)
	}
	a, h := shop(t, redistest.Mini(t), db, func(context.Context) error { return nil })
	want(t, deposit(h, "ten"), http.StatusBadRequest, "")
	want(t, deposit(h, "10"), http.StatusNotFound, "no such account")
	if _, err := a.add(t.Context(), "a7", 1); err == nil {
		t.Error("a write without the lock")
	}
}
