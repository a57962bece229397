module github.com/gatehouse-go/gatehouse/examples/orders

go 1.25.0

replace github.com/gatehouse-go/gatehouse => ../..

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/gatehouse-go/gatehouse v0.1.0
	github.com/redis/go-redis/v9 v9.22.0
	modernc.org/sqlite v1.46.1 // later ones want a newer x/sys, with which all of Gatehouse is compiled a second time
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/mattn/go-isatty v0.0.22 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/exp v0.0.0-20251023183803-a4bb9ffd2546 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.38.0 // indirect
	modernc.org/libc v1.67.6 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.11.0 // indirect
)
