module github.com/gatehouse-go/gatehouse/examples/production

go 1.25.0

require (
	github.com/gatehouse-go/gatehouse v0.1.0
	github.com/gatehouse-go/gatehouse/ops/observe/gatehouseprom v0.1.0
	github.com/prometheus/client_golang v1.23.2
	github.com/redis/go-redis/v9 v9.22.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.66.1 // indirect
	github.com/prometheus/procfs v0.16.1 // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.38.0 // indirect
	google.golang.org/protobuf v1.36.8 // indirect
)

replace (
	github.com/gatehouse-go/gatehouse => ../..
	github.com/gatehouse-go/gatehouse/ops/observe/gatehouseprom => ../../ops/observe/gatehouseprom
)
