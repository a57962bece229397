package main

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/examples/internal/quickstart"
)

func TestRequests(t *testing.T) { quickstart.Test(t, newApp) }
