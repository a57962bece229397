package market

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// maxBody is how many bytes a body has at most.
const maxBody = 1024

type handler struct {
	markets *Markets
	who     keyfuncs.Func
	opID    keyfuncs.Func
}

// Handler serves markets by gin. The function who names the user who is logged in. Both POST need the header
// Idempotency-Key.
//
//	POST /markets/:market/items/:item/offers     {"price": 500}, in minor units; 0: no longer on offer
//	POST /markets/:market/items/:item/purchases  {"price": 500}, the price that the buyer has seen
//	GET  /markets/:market/items/:item            the owner and the price
//	GET  /markets/:market/balance                of the user
//
// No route pays money in: the application calls Deposit.
func Handler(m *Markets, who keyfuncs.Func) http.Handler {
	h := &handler{m, who, keyfuncs.IdempotencyKey()}
	r := gin.New()
	r.Use(gin.Recovery())
	r.POST("/markets/:market/items/:item/offers", h.offer)
	r.POST("/markets/:market/items/:item/purchases", h.buy)
	r.GET("/markets/:market/items/:item", h.item)
	r.GET("/markets/:market/balance", h.balance)
	return r
}

func (h *handler) offer(c *gin.Context) {
	user, id, price, ok := h.read(c)
	if !ok {
		return
	}
	err := h.markets.Offer(c.Request.Context(), c.Param("market"), user, id, c.Param("item"), price)
	if err != nil {
		h.fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

func (h *handler) buy(c *gin.Context) {
	user, id, price, ok := h.read(c)
	if !ok {
		return
	}
	balance, err := h.markets.Buy(c.Request.Context(), c.Param("market"), user, id, c.Param("item"), price)
	if err != nil {
		h.fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"balance": balance})
}

func (h *handler) item(c *gin.Context) {
	owner, price, err := h.markets.Item(c.Request.Context(), c.Param("market"), c.Param("item"))
	if err != nil {
		h.fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"owner": owner, "price": price})
}

func (h *handler) balance(c *gin.Context) {
	user, err := h.who(&keyfuncs.Request{Request: c.Request})
	if err != nil {
		c.String(http.StatusUnauthorized, "Log in first.\n")
		return
	}
	balance, err := h.markets.Balance(c.Request.Context(), c.Param("market"), user)
	if err != nil {
		h.fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"balance": balance})
}

// read reads who changes something, under which ID, and the price. It answers the request where one is
// missing.
func (h *handler) read(c *gin.Context) (user, id string, price int64, ok bool) {
	user, err := h.who(&keyfuncs.Request{Request: c.Request})
	if err != nil {
		c.String(http.StatusUnauthorized, "Log in first.\n")
		return "", "", 0, false
	}
	id, err = h.opID(&keyfuncs.Request{Request: c.Request})
	if err != nil {
		c.String(http.StatusBadRequest, "Send an Idempotency-Key.\n")
		return "", "", 0, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		c.String(http.StatusRequestEntityTooLarge, "The body is too long.\n")
		return "", "", 0, false
	}
	var in struct{ Price *int64 }
	if err != nil || json.Unmarshal(body, &in) != nil || in.Price == nil {
		c.String(http.StatusBadRequest, "Send JSON with a price in minor units.\n")
		return "", "", 0, false
	}
	return user, id, *in.Price, true
}

// answers has the answers to refusals.
var answers = []struct {
	err    error
	status int
	text   string
}{
	{ErrNoItem, http.StatusNotFound, "No such item.\n"},
	{ErrConflict, http.StatusUnprocessableEntity, "This Idempotency-Key was used for something else.\n"},
	{ErrOwn, http.StatusConflict, "You have this item.\n"},
	{ErrNotOffered, http.StatusConflict, "The item is not on offer.\n"},
	{ErrNotOwner, http.StatusForbidden, "The item belongs to somebody else.\n"},
	{ErrFull, http.StatusConflict, "The market is full.\n"},
}

// fail answers an error by a fixed text. Clients do not see causes.
func (h *handler) fail(c *gin.Context, err error) {
	for _, answer := range answers {
		if errors.Is(err, answer.err) {
			c.String(answer.status, answer.text)
			return
		}
	}
	price, funds := new(PriceError), new(FundsError)
	switch {
	case errors.As(err, &price):
		c.JSON(http.StatusConflict, gin.H{"price": price.Price})
	case errors.As(err, &funds):
		c.JSON(http.StatusPaymentRequired, gin.H{"balance": funds.Balance})
	case errors.Is(err, core.ErrInvalid):
		c.String(http.StatusBadRequest, "The price, the item or the market is not valid.\n")
	default:
		h.markets.gate.Logger().ErrorContext(c.Request.Context(), "market", "err", err)
		c.Header("Retry-After", "1")
		c.String(http.StatusServiceUnavailable, "Try again with the same Idempotency-Key.\n")
	}
}
