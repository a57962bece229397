// Package accounts changes balances in a database, behind a lock with a fence. It is to be copied: the
// handler reads a balance, works for a while, and writes the new one. The lock keeps two requests from doing
// so at a time. Where it fails to, because a process stood still or Redis failed over, the fence does: the
// statement that writes refuses a holder that somebody has overtaken.
package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// Schema makes the table. A fence of 0 is less than all fences.
const Schema = `
CREATE TABLE IF NOT EXISTS accounts (
	id      TEXT    PRIMARY KEY,
	balance INTEGER NOT NULL,
	fence   INTEGER NOT NULL DEFAULT 0
)`

// errOvertaken says that another holder of the lock has written since.
var errOvertaken = errors.New("another request has changed the account")

// Accounts serves POST /accounts/{account}/deposits?amount=N.
type Accounts struct {
	DB   *sql.DB
	Lock *lock.Guard
	// Work is what a deposit needs time for, between reading and writing: the call of a bank.
	Work func(ctx context.Context) error
}

// Handler returns the handler, behind the lock of the account. Who finds the owner of the lock.
func (a *Accounts) Handler(who keyfuncs.Func) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{account}/deposits", ratelimit.HTTP(ratelimit.Rule{
		Guard: a.Lock, Who: who, What: keyfuncs.Param("account"),
	})(http.HandlerFunc(a.deposit)))
	return mux
}

func (a *Accounts) deposit(w http.ResponseWriter, r *http.Request) {
	amount, err := strconv.ParseInt(r.URL.Query().Get("amount"), 10, 64)
	if err != nil || amount < 1 {
		http.Error(w, "name an amount of 1 or more", http.StatusBadRequest)
		return
	}
	balance, err := a.add(r.Context(), r.PathValue("account"), amount)
	if err != nil && errors.Is(context.Cause(r.Context()), lock.ErrLost) {
		err = lock.ErrLost // which is why the database gave up
	}
	switch {
	case errors.Is(err, errOvertaken), errors.Is(err, lock.ErrLost):
		http.Error(w, "try again", http.StatusConflict)
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "no such account", http.StatusNotFound)
	case err != nil:
		http.Error(w, "try again later", http.StatusInternalServerError)
	default:
		_, _ = fmt.Fprintln(w, balance) // the client may be gone
	}
}

// add adds an amount to a balance, under the fence of the context.
func (a *Accounts) add(ctx context.Context, id string, amount int64) (balance int64, err error) {
	fence, ok := lock.Fence(ctx)
	if !ok {
		return 0, errors.New("no lock")
	}
	row := a.DB.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = ?", id)
	if err := row.Scan(&balance); err != nil {
		return 0, fmt.Errorf("read the balance: %w", err)
	}
	if err := a.Work(ctx); err != nil {
		return 0, fmt.Errorf("work: %w", err)
	}
	balance += amount
	done, err := a.DB.ExecContext(ctx,
		"UPDATE accounts SET balance = ?, fence = ? WHERE id = ? AND fence < ?", balance, fence, id, fence)
	if err != nil {
		return 0, fmt.Errorf("write the balance: %w", err)
	}
	n, err := done.RowsAffected()
	if err == nil && n == 0 {
		err = errOvertaken
	}
	return balance, err
}
