package period_test

import (
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core/period"
)

// Days begin at midnight in the time zone.
func ExampleDaily() {
	from, to := period.Daily(time.UTC)(time.Date(2026, time.March, 1, 15, 30, 0, 0, time.UTC))
	fmt.Println(from)
	fmt.Println(to)
	// Output:
	// 2026-03-01 00:00:00 +0000 UTC
	// 2026-03-02 00:00:00 +0000 UTC
}
