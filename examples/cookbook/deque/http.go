package deque

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// maxWait is how long a request may wait.
const maxWait = 30 * time.Second

type handler struct {
	lists *Lists
	list  keyfuncs.Func
	opID  keyfuncs.Func
}

// Handler serves lists by chi. Values are bodies of any bytes. Both POST need the header Idempotency-Key.
// Mount it behind your authentication: who may call it, may take any value.
//
//	POST /lists/{list}/left            push
//	POST /lists/{list}/left/pop        200 with the value, or 204 when there is none
//	POST /lists/{list}/left/pop?wait=20s
//
// And the same with right. The WriteTimeout of the server must be longer than the waits.
func Handler(l *Lists) http.Handler {
	h := &handler{l, keyfuncs.Param("list"), keyfuncs.IdempotencyKey()}
	r := chi.NewRouter()
	for _, end := range []End{Left, Right} {
		r.Post("/lists/{list}/"+string(end), h.push(end))
		r.Post("/lists/{list}/"+string(end)+"/pop", h.pop(end))
	}
	return r
}

func (h *handler) push(end End) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		list, id, ok := h.read(w, r)
		if !ok {
			return
		}
		value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxValue))
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			http.Error(w, "The value is too long.", http.StatusRequestEntityTooLarge)
			return
		} else if err != nil {
			http.Error(w, "The body did not arrive.", http.StatusBadRequest)
			return
		}
		if err := h.lists.Push(r.Context(), list, end, id, string(value)); err != nil {
			h.fail(w, r, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (h *handler) pop(end End) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		list, id, ok := h.read(w, r)
		if !ok {
			return
		}
		var wait time.Duration
		if text := r.URL.Query().Get("wait"); text != "" {
			var err error
			if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > maxWait {
				http.Error(w, "Wait for 0s to 30s.", http.StatusBadRequest)
				return
			}
		}
		var value string
		var err error
		if wait > 0 {
			value, err = h.lists.PopWait(r.Context(), list, end, id, wait)
		} else {
			value, err = h.lists.Pop(r.Context(), list, end, id)
		}
		if err != nil {
			h.fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, value) // fails only when the client is gone; it asks again with its ID
	}
}

// read reads the list and the operation ID. It answers the request where one is missing.
func (h *handler) read(w http.ResponseWriter, r *http.Request) (list, id string, ok bool) {
	list, err := h.list(&keyfuncs.Request{Request: r})
	if err != nil {
		http.Error(w, "Name a list.", http.StatusBadRequest)
		return "", "", false
	}
	id, err = h.opID(&keyfuncs.Request{Request: r})
	if err != nil {
		http.Error(w, "Send an Idempotency-Key.", http.StatusBadRequest)
		return "", "", false
	}
	return list, id, true
}

// fail answers an error by a fixed text. Clients do not see causes.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrEmpty):
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, ErrFull):
		http.Error(w, "The list is full.", http.StatusConflict)
	case errors.Is(err, ErrConflict):
		http.Error(w, "This Idempotency-Key was used for something else.", http.StatusUnprocessableEntity)
	case errors.Is(err, core.ErrInvalid):
		http.Error(w, "The list or the value is not valid.", http.StatusBadRequest)
	default:
		h.lists.gate.Logger().ErrorContext(r.Context(), "deque", "err", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Try again with the same Idempotency-Key.", http.StatusServiceUnavailable)
	}
}
