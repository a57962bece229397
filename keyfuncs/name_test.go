package keyfuncs_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func tenant(*keyfuncs.Request) (string, error) { panic("called without a request") }

// TestFunctionsHaveNames: operators see what a rule takes from a request as the program has it.
func TestFunctionsHaveNames(t *testing.T) {
	for want, f := range map[string]keyfuncs.Func{
		`IP()`: keyfuncs.IP(), `User("uid")`: keyfuncs.User("uid"), `Param("poll")`: keyfuncs.Param("poll"),
		`Header("X-Key")`: keyfuncs.Header("X-Key"), `Query("q")`: keyfuncs.Query("q"),
		`Cookie("c")`: keyfuncs.Cookie("c"), `Form("f")`: keyfuncs.Form("f"), `Route()`: keyfuncs.Route(),
		`Method()`: keyfuncs.Method(), `Host()`: keyfuncs.Host(), `BasicAuth()`: keyfuncs.BasicAuth(),
		`IdempotencyKey()`: keyfuncs.IdempotencyKey(), `Fingerprint()`: keyfuncs.Fingerprint(),
		`Const("all")`: keyfuncs.Const("all"), `JSON(64, "choice")`: keyfuncs.JSON(64, "choice"),
		`FirstOf(User("uid"), IP())`:          keyfuncs.FirstOf(keyfuncs.User("uid"), keyfuncs.IP()),
		`Hash(Require(Header("X-Api-Key")))`:  keyfuncs.Hash(keyfuncs.Require(keyfuncs.Header("X-Api-Key"))),
		`Join(Route(), keyfuncs_test.tenant)`: keyfuncs.Join(keyfuncs.Route(), tenant),
	} {
		if got := keyfuncs.NameOf(f); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	own := keyfuncs.NameOf(func(*keyfuncs.Request) (string, error) { panic("called") })
	if !strings.HasPrefix(own, "keyfuncs_test.") {
		t.Error(own)
	}
}
