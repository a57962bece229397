package started

import (
	"net/http"

	"github.com/gin-gonic/gin"

	ratelimit "github.com/gatehouse-go/gatehouse/ginmw"
)

func ginLogin(c *gin.Context) {
	user := userOf(c.Request)
	if user == "" {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Set("uid", user)
}

func (s shop) onGin() http.Handler {
	perIP, perUser, vote, buy := s.perIP, s.perUser, s.vote, s.buy
	login, items, castVote, placeOrder := ginLogin, gin.WrapF(items), gin.WrapF(castVote), ginOrder

	r := gin.New()
	r.Use(ratelimit.Gin(perIP))
	r.GET("/items", login, ratelimit.Gin(perUser), items)
	r.POST("/polls/:poll/votes", login, ratelimit.Gin(vote), castVote)
	r.POST("/sales/:sku/orders", login, ratelimit.Gin(buy), placeOrder)

	return r
}

func ginOrder(c *gin.Context) {
	d, _ := ratelimit.Decision(c, "sale")
	if err := store(d.Attempt.Actor, d.Attempt.Resource, d.Attempt.ID); err != nil {
		c.Status(http.StatusInternalServerError)
		return
	}
	c.Status(http.StatusCreated)
}
