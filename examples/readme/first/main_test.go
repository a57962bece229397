package main

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/examples/internal/readme"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestProgramIsTheOneOfTheREADME(t *testing.T) { readme.Shown(t, 25) }

func TestProgramRunsWithNothingBesideIt(t *testing.T) { readme.RunAlone(t, "/?[") }
