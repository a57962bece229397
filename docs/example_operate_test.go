package docs_test

import (
	"crypto/tls"
	"errors"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	ratelimit "github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func Example_rollout() {
	gate, perIP, _ := rules()
	r := gin.New()

	try := pipeline.Shadow()
	tighter := ratelimit.Rule{
		Guard:   limit.NewSlidingWindow(gate, "tighter", limit.PerMinute(60)),
		Who:     keyfuncs.IP(),
		Rollout: try,
	}
	r.Use(ratelimit.Gin(tighter, perIP))

	report := try.Report()  // how many would have been refused; nobody was
	err := try.Set(100, 10) // refuses for every tenth client, always the same ones
	try.Switch(false)       // for nobody

	_, _ = report, err
}

func Example_operator() {
	rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	_, perIP, buy := rules()
	r := gin.New()
	login := gin.BasicAuth(gin.Accounts{"eve": "a password"})

	figures := new(operator.Figures)
	gate := core.New(rdb, core.WithObserver(core.Observers(core.LogErrors(), figures)))

	ops := operator.New(operator.Options{
		Rules:   []ratelimit.Rule{perIP, buy},
		Figures: figures,
		Authorize: func(r *keyfuncs.Request, a operator.Action) (string, error) {
			return staffMember(r, a.Changes)
		},
	})
	r.Any("/ops/*page", login, ratelimit.Page(ops))

	_ = gate
}

// connect makes a client as it should be in production.
func connect(password string) (*redis.Client, *core.Engine) {
	rdb := redis.NewClient(&redis.Options{
		Addr:                  "redis.internal:6379",
		Username:              "shop",
		Password:              password,
		TLSConfig:             &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "redis.internal"},
		ContextTimeoutEnabled: true,
		DialTimeout:           time.Second,
		ConnMaxIdleTime:       4 * time.Minute,
	})
	gate := core.New(rdb, core.WithPrefix("shop-staging"))
	return rdb, gate
}

var _ = connect

// staffMember returns the name of the signed-in person, or an error if they may not look or change things.
func staffMember(r *keyfuncs.Request, changes bool) (string, error) {
	name, role := r.Header.Get("X-User"), r.Header.Get("X-Role") // set by the login in front
	if role != "administrator" && (role != "support" || changes) {
		return "", errors.New("not for " + name)
	}
	return name, nil
}
