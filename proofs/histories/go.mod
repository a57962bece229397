module github.com/gatehouse-go/gatehouse/proofs/histories

go 1.25.0

replace github.com/gatehouse-go/gatehouse => ../..

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/gatehouse-go/gatehouse v0.1.0
	github.com/redis/go-redis/v9 v9.22.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/stretchr/testify v1.8.4 // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.38.0 // indirect
)
