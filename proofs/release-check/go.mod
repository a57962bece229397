module github.com/gatehouse-go/gatehouse/proofs/release-check

go 1.25.0

require golang.org/x/mod v0.36.0
