package main

import (
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, commands...) }

func TestMistakesInTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args      string
		code      int
		out, errs string
	}{
		{"", 2, "", "usage: gatehouse COMMAND"},
		{"help", 0, "usage: gatehouse COMMAND", ""},
		{"--help", 0, "usage: gatehouse COMMAND", ""},
		{"help peek", 0, "usage: gatehouse peek [flags]", ""},
		{"version", 0, "gatehouse ", ""},
		{"version now", 2, "", `operand "now"`},
		{"attack -h", 0, "up to 100000", ""},
		{"explode", 2, "", `there is no command "explode"`},
		{"help explode", 2, "", `there is no command "explode"`},
		{"peek -guard", 2, "", "flag needs an argument"},
		{"peek -gard api", 2, "", "flag provided but not defined: -gard"},
		{"peek actor=a", 2, "", "-guard is missing"},
		{"peek -guard api -kind window actor=a", 2, "", "sliding_window"},
		{"peek -guard api -kind sliding_window actor=a -limits 5/s", 2, "", "no Redis is named"},
		{"peek -guard api -kind sliding_window actor", 2, "", `"actor" is not a new FIELD=VALUE`},
		{"peek -guard api -kind sliding_window actor=a actor=b", 2, "", `"actor=b" is not a new FIELD=VALUE`},
		{"tally -guard poll", 2, "", "name one poll"},
		{"sale burn -guard sale item", 2, "", "status, verify, open, restock, close"},
		{"sale open -guard sale item -opens tomorrow", 2, "", "write a time such as"},
		{"attack", 2, "", "pass one URL"},
		{"attack http://staging.example/", 2, "", "-allow-host staging.example"},
		{"attack http://127.0.0.1:1/ -n 100001", 2, "", "-n is 100001: it may be 1 to 100000"},
		{"attack http://127.0.0.1:1/ -c 1000", 2, "", "-c is 1000: it may be 1 to 256"},
		{"attack http://127.0.0.1:1/ -limit 5", 2, "", "-limit: "},
		{"attack http://127.0.0.1:1/ -limit 5/day", 2, "", "more than the most of 1h0m0s"},
		{"attack http://127.0.0.1:1/ -race -spoof", 2, "", "different attacks"},
		{"attack http://127.0.0.1:1/ -stock 5", 2, "", "-stock needs -race"},
		{"attack http://127.0.0.1:1/ -admitted 6xx", 2, "", `-admitted has "6xx"`},
		{"attack http://127.0.0.1:1/ -H X-User", 2, "", "write it as 'Name: value'"},
		{"attack http://127.0.0.1:1/ -race", 2, "", "connection refused"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			clitest.Run(t, nil, "", strings.Fields(tt.args)...).Want(t, tt.code, tt.out, tt.errs)
		})
	}
}
