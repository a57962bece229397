# What a newcomer needs: make help.

GO            ?= go
TESTFLAGS     ?=
TESTARGS      ?=
PACKAGES      ?=
BENCHFLAGS    ?=
GOLANGCI_LINT ?= $(CURDIR)/.ci/golangci-lint
GOVULNCHECK   ?= $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0
# make lint has govet.
# Without tables for debuggers (-w), tests are linked in two thirds of the time.
GO_TEST        = $(GO) test -vet=off -ldflags=-w -shuffle=on -count=1 -p $(PARALLEL) $(TESTFLAGS)

# How many packages are tested side by side: more than there are cores, since many tests wait.
PARALLEL ?= 3

# The nested modules: all folders with a go.mod of their own, and which of them are released.
MODULES  := $(sort $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod)))
RELEASED := adapters/echov5mw adapters/fibermw ops/observe/gatehouseotel ops/observe/gatehouseprom

# What make test tests: no examples, and of the nested modules only the released ones (docs/testing.md says what is left
# to make all); with PACKAGES, those packages of the root module alone.
BUT_EXAMPLES    = $(filter-out $(shell $(GO) list ./examples/...),$(shell $(GO) list ./...))
PACKAGES_TESTED = $(or $(PACKAGES),$(if $(GATEHOUSE_ALL),./...,$(BUT_EXAMPLES)))
MODULES_TESTED  = $(if $(PACKAGES),,$(if $(GATEHOUSE_ALL),$(MODULES),$(RELEASED)))

# The packages whose tests have long versions, besides examples/orders.
SOAKED := ./core/... ./internal/leases ./pipeline ./nethttpmw ./ginmw ./echomw ./adapters/adaptertest ./ops/gateway ./examples/recipes

# The parts of make soak. Each of them is a target. Most have no race detector, with which they take more than twice
# as long: make race has it for all tests in their short versions. A timeout is for a test that hangs, not for a slow
# machine.
SOAKS := soak-guards soak-lives soak-simulation soak-unshared soak-echov5mw soak-orders soak-histories

# The package whose tests are not built with -race: its doc.go says why.
SIMULATION := ./internal/testkit/simulation

# What the race detector has nothing to find in, since it runs nothing in parallel, or drives other processes. Of the
# nested modules it has the released ones, which users import.
UNRACED         := ./cmd/... ./core/period ./docs/... ./examples/... ./internal/everyscript ./internal/testkit/lives $(SIMULATION) \
	./internal/testkit/walk ./lua/...
UNRACED_MODULES := $(filter-out $(RELEASED),$(MODULES))
RACED            = $(filter-out $(shell $(GO) list $(UNRACED)),$(shell $(GO) list ./...))

# Tests of packages that are raced which measure Redis or memory, so that the race detector has no part in them.
MEASURED := TestWhatOneUserCanMakeYouKeep|TestVotesMemory|TestAKeyTakesWhatTheDocumentsSay|TestACLLinesAreWhatTheGuardsNeed

# $(call in-each,folders,command) runs a command in each folder, and ends at the first that fails.
in-each = for module in $(1); do echo "-- $$module"; (cd $$module && $(2)) || exit 1; done

# The modules that are tested when all others are done: browsers need the processor for themselves.
AFTERWARDS := proofs/browser

# $(call test-all,command,modules,packages) tests those packages of the root module with the command and, beside it,
# the nested modules, one after the other. Their output follows the root's.
test-all = log=$$(mktemp) && trap 'rm -f "$$log"' EXIT && trap 'kill $$! 2>/dev/null; exit 1' INT TERM; status=0; \
	( $(call in-each,$(filter-out $(AFTERWARDS),$(2)),$(1) ./... $(TESTARGS)) ) >"$$log" 2>&1 & \
	$(1) $(3) $(TESTARGS) || status=1; \
	wait $$! || status=1; cat "$$log"; \
	( $(call in-each,$(filter $(AFTERWARDS),$(2)),$(1) ./... $(TESTARGS)) ) || status=1; exit $$status

.DEFAULT_GOAL := help
.PHONY: help demo test all test-servers race unraced stalled soak $(SOAKS) fuzz lint vulnerabilities tidy examples \
	cover bench release release-prepare release-check redis screenshots

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run the demo server, on a Redis inside the process or on REDIS_URL
	@$(GO) run ./examples/demo

screenshots: ## make the pictures of docs/images again, in Chromium
	cd proofs/browser && $(GO) test -count=1 -run TestScreenshots . -update

test: redis ## run the tests, on a real Redis server (PACKAGES="./core/..." for some of them)
	@$(call test-all,$(GO_TEST),$(MODULES_TESTED),$(PACKAGES_TESTED))

all: export GATEHOUSE_ALL = 1
all: test ## run all tests of all modules, in a browser, on a cluster and on miniredis too

stalled: redis ## make test while its processes stand still (STALL="-most 5s -spin 8 -seed 1", and what make test takes)
	@program=$$(mktemp -d) && trap 'rm -rf "$$program"' EXIT && $(GO) build -o "$$program/stall" ./internal/testkit/stall && \
	"$$program/stall" $(STALL) $(MAKE) --no-print-directory $(or $(TARGET),test)

test-servers: ## run the tests against the redis-server or valkey-server of each folder in DIRS
	@GO="$(GO)" TESTFLAGS="$(TESTFLAGS)" PACKAGES="$(PACKAGES)" .ci/test-servers $(DIRS)

race: export GATEHOUSE_ALL = 1
race: redis ## run all tests of what users import under the race detector, on a cluster
	@$(call test-all,$(GO_TEST) -race '-skip=^($(MEASURED))$$',$(RELEASED),$(RACED))

unraced: export GATEHOUSE_ALL = 1
unraced: redis ## run all tests that make race leaves out
	@$(call test-all,$(GO_TEST),$(UNRACED_MODULES),$(UNRACED))
	@$(GO_TEST) '-run=^($(MEASURED))$$' ./core ./core/limit ./core/votes ./internal/testkit/everyguard

soak: redis ## run the long versions of the tests (about 80 minutes on two cores), also after one has failed
	@failed=; for part in $(SOAKS); do $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

soak-guards: redis
	GATEHOUSE_SOAK=1 $(GO_TEST) -timeout=2h $(SOAKED)

soak-lives: redis # sequences of up to seven events; as many of a length as EXPLORE_MOST says
	GATEHOUSE_SOAK=1 $(GO_TEST) -timeout=3h ./internal/testkit/lives

soak-simulation: redis
	GATEHOUSE_SOAK=1 $(GO_TEST) -timeout=1h $(SIMULATION)

soak-unshared: redis # not long, so with the race detector: calls that are not shared
	GATEHOUSE_ALL=1 GATEHOUSE_SHARED_CALLS=off $(GO_TEST) -race -timeout=1h -run 'Race|Lost|Late|Deadline|Fault|Oracle|Model' ./core/...

soak-echov5mw: redis
	cd adapters/echov5mw && GATEHOUSE_SOAK=1 $(GO_TEST) -timeout=1h -run 'TestConformance/nothing_is_left_over' .

soak-orders: redis
	cd examples/orders && GATEHOUSE_SOAK=1 $(GO_TEST) -timeout=1h ./...

soak-histories: redis
	cd proofs/histories && GATEHOUSE_SOAK=1 $(GO_TEST) -v -timeout=1h ./...

fuzz: ## fuzz each fuzz test for 20 seconds
	@for package in $$($(GO) list ./...); do \
	  for test in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    $(GO) test -run '^$$' -fuzz "^$$test\$$" -fuzztime 20s $$package || exit 1; \
	  done; \
	done

lint: ## run the linters
	@$(call in-each,. $(MODULES),$(GOLANGCI_LINT) run --allow-serial-runners ./...)

vulnerabilities: ## look for known vulnerabilities in what the modules call (needs vuln.go.dev)
	@GOVULNCHECK="$(GOVULNCHECK)" .ci/vulnerabilities $(MODULES)

tidy: ## check that each go.mod and go.sum is tidy
	@$(call in-each,. $(MODULES),$(GO) mod tidy -diff)

examples: ## build the examples and the command
	$(GO) build -o /dev/null ./cmd/gatehouse ./examples/...
	cd examples/orders && $(GO) build -race -o /dev/null .
	cd examples/production && $(GO) build -o /dev/null .
	@$(call in-each,$(addprefix examples/,connect grpc jobs mcp),$(GO) build ./...)

cover: redis ## measure what the tests cover; fail below 85 %
	@counters=$$(mktemp -d) && trap 'rm -rf "$$counters"' EXIT && \
	$(MAKE) --no-print-directory all TESTARGS="-args -test.gocoverdir=$$counters" \
	  TESTFLAGS="$(TESTFLAGS) -coverpkg=github.com/gatehouse-go/gatehouse/..." && \
	.ci/coverage "$$counters"

bench: ## measure beside others (half an hour), and write proofs/bench/results
	@.ci/install-test-programs wrk
	cd proofs/bench && mkdir -p results && GATEHOUSE_REQUIRE_REDIS=1 $(GO) test -run '^TestReport$$' -v -count=1 -timeout=60m -args -out results $(BENCHFLAGS)

release-check: redis ## get, build and run all modules as users will (from the tags: TAGS=1)
	@cd proofs/release-check && GO=$(GO) $(GO) run . $(if $(TAGS),-tags) $(RELEASED)

release-prepare: ## set VERSION and the date, and freeze the scripts
	@VERSION=$(VERSION) DATE=$(DATE) RELEASED="$(RELEASED)" .ci/release prepare

release: ## check, build and tag VERSION, without pushing it (docs/releasing.md)
	@VERSION=$(VERSION) DATE=$(DATE) SKIP_CI=$(SKIP_CI) RELEASED="$(RELEASED)" .ci/release

redis: # install what the tests start, where that can be done
	@.ci/install-test-programs
