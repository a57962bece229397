package main

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/examples/internal/readme"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestProgramIsLinkedByTheREADME(t *testing.T) { readme.Linked(t) }

func TestProgramAnswersAsTheREADMESays(t *testing.T) {
	readme.Run(t, app, "/sales/tv-55/orders")
}

func TestProgramRunsWithNothingBesideIt(t *testing.T) { readme.RunAlone(t, "/sales/tv-55/orders") }
