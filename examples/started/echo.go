package started

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/gatehouse-go/gatehouse/echomw"
)

func echoLogin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		user := userOf(c.Request())
		if user == "" {
			return echo.ErrUnauthorized
		}
		c.Set("uid", user)
		return next(c)
	}
}

func (s shop) onEcho() http.Handler {
	perIP, perUser, vote, buy := s.perIP, s.perUser, s.vote, s.buy
	login, placeOrder := echoLogin, echoOrder
	items, castVote := echo.WrapHandler(http.HandlerFunc(items)), echo.WrapHandler(http.HandlerFunc(castVote))

	e := echo.New()
	e.Use(echomw.Echo(perIP))
	e.GET("/items", items, login, echomw.Echo(perUser))
	e.POST("/polls/:poll/votes", castVote, login, echomw.Echo(vote))
	e.POST("/sales/:sku/orders", placeOrder, login, echomw.Echo(buy))

	return e
}

func echoOrder(c echo.Context) error {
	d, _ := echomw.Decision(c, "sale")
	if err := store(d.Attempt.Actor, d.Attempt.Resource, d.Attempt.ID); err != nil {
		return c.NoContent(http.StatusInternalServerError)
	}
	return c.NoContent(http.StatusCreated)
}
