package status

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"unicode/utf8"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// maxBody is how many bytes a body has at most: JSON may write a byte of text as six, \u0000.
const maxBody = 6*MaxText + 1024

type handler struct {
	board *Board
	who   keyfuncs.Func
	opID  keyfuncs.Func
	log   *slog.Logger
}

// Handler serves a board by net/http. The function who names the user who is logged in.
//
//	PUT  /me                  sign up
//	POST /posts               {"text": "hello"}, with the header Idempotency-Key
//	GET  /users/{user}/posts  the count, and the newest 20 messages
func Handler(b *Board, who keyfuncs.Func) http.Handler {
	h := &handler{b, who, keyfuncs.IdempotencyKey(), b.gate.Logger()}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /me", h.signUp)
	mux.HandleFunc("POST /posts", h.post)
	mux.HandleFunc("GET /users/{user}/posts", h.newest)
	return mux
}

func (h *handler) signUp(w http.ResponseWriter, r *http.Request) {
	user, err := h.who(&keyfuncs.Request{Request: r})
	if err != nil {
		http.Error(w, "Log in first.", http.StatusUnauthorized)
		return
	}
	if err := h.board.SignUp(r.Context(), user); err != nil {
		h.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h *handler) post(w http.ResponseWriter, r *http.Request) {
	user, err := h.who(&keyfuncs.Request{Request: r})
	if err != nil {
		http.Error(w, "Log in first.", http.StatusUnauthorized)
		return
	}
	id, err := h.opID(&keyfuncs.Request{Request: r})
	if err != nil {
		http.Error(w, "Send an Idempotency-Key.", http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		http.Error(w, "The message is too long.", http.StatusRequestEntityTooLarge)
		return
	}
	var in struct{ Text string }
	// json.Unmarshal would replace what is not UTF-8, and another text than the user's would be posted.
	if err != nil || !utf8.Valid(body) || json.Unmarshal(body, &in) != nil {
		http.Error(w, "Send JSON in UTF-8.", http.StatusBadRequest)
		return
	}
	posted, err := h.board.Post(r.Context(), user, id, in.Text)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	reply(w, http.StatusCreated, map[string]any{"id": posted.ID, "posts": posted.Posts})
}

func (h *handler) newest(w http.ResponseWriter, r *http.Request) {
	posts, newest, err := h.board.Newest(r.Context(), r.PathValue("user"), 20)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	list := make([]map[string]string, 0, len(newest))
	for _, m := range newest {
		list = append(list, map[string]string{"id": m.ID, "text": m.Text})
	}
	reply(w, http.StatusOK, map[string]any{"posts": posts, "newest": list})
}

// fail answers an error by a fixed text. Clients do not see causes.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrNoUser):
		http.Error(w, "No such user.", http.StatusNotFound)
	case errors.Is(err, ErrConflict):
		http.Error(w, "This Idempotency-Key was used for another message.", http.StatusUnprocessableEntity)
	case errors.Is(err, core.ErrInvalid):
		http.Error(w, "The message is empty or too long.", http.StatusBadRequest)
	default:
		h.log.ErrorContext(r.Context(), "status", "err", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Try again with the same Idempotency-Key.", http.StatusServiceUnavailable)
	}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only when the client is gone
}
