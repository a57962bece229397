package autocomplete

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// pageSize is how many names an answer has at most.
const pageSize = 20

type handler struct {
	rooms *Rooms
	who   keyfuncs.Func
}

// Handler serves rooms by echo. The function who names the user who is logged in. Names have to be UTF-8,
// because JSON cannot carry other bytes.
//
//	PUT    /rooms/:room/members/me         join
//	DELETE /rooms/:room/members/me         leave
//	GET    /rooms/:room/members?prefix=an  the names that begin with the prefix
//	GET    /rooms/:room/members?from=&to=  the names between two prefixes
func Handler(rooms *Rooms, who keyfuncs.Func) http.Handler {
	h := &handler{rooms, who}
	e := echo.New()
	e.PUT("/rooms/:room/members/me", h.change(rooms.Join))
	e.DELETE("/rooms/:room/members/me", h.change(rooms.Leave))
	e.GET("/rooms/:room/members", h.list)
	return e
}

func (h *handler) change(f func(ctx context.Context, room, name string) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		name, err := h.who(&keyfuncs.Request{Request: c.Request()})
		if err != nil {
			return c.String(http.StatusUnauthorized, "Log in first.\n")
		}
		room, err := roomOf(c)
		if err != nil || !utf8.ValidString(name) {
			return c.String(http.StatusBadRequest, "Rooms and names are UTF-8.\n")
		}
		if err := f(c.Request().Context(), room, name); err != nil {
			return h.fail(c, err)
		}
		return c.NoContent(http.StatusNoContent)
	}
}

func (h *handler) list(c echo.Context) error {
	room, err := roomOf(c)
	from, to := c.QueryParam("from"), c.QueryParam("to")
	if c.QueryParams().Has("prefix") {
		from = c.QueryParam("prefix")
		to = from
	}
	if err != nil || !utf8.ValidString(from) || !utf8.ValidString(to) {
		return c.String(http.StatusBadRequest, "Rooms and names are UTF-8.\n")
	}
	names, more, err := h.rooms.Between(c.Request().Context(), room, from, to, pageSize)
	if err != nil {
		return h.fail(c, err)
	}
	return c.JSON(http.StatusOK, map[string]any{"names": names, "more": more})
}

// roomOf returns the room that the path names. Where a path has unusual escapes, echo matches it as it was
// sent, and leaves the escapes in its parameters.
func roomOf(c echo.Context) (string, error) {
	room := c.Param("room")
	if c.Request().URL.RawPath != "" {
		plain, err := url.PathUnescape(room)
		if err != nil {
			return "", err
		}
		room = plain
	}
	if !utf8.ValidString(room) {
		return "", core.ErrInvalid
	}
	return room, nil
}

// fail answers an error by a fixed text. Clients do not see causes.
func (h *handler) fail(c echo.Context, err error) error {
	switch {
	case errors.Is(err, ErrFull):
		return c.String(http.StatusConflict, "The room is full.\n")
	case errors.Is(err, core.ErrInvalid):
		return c.String(http.StatusBadRequest, "The name or the room is empty, or the name is too long.\n")
	}
	h.rooms.gate.Logger().ErrorContext(c.Request().Context(), "autocomplete", "err", err)
	c.Response().Header().Set("Retry-After", "1")
	return c.String(http.StatusServiceUnavailable, "Try again.\n")
}
