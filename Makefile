# What a newcomer needs: make help.

GO            ?= go
TESTFLAGS     ?=
BENCHFLAGS    ?=
GOLANGCI_LINT ?= $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.DEFAULT_GOAL := help
.PHONY: help demo test soak fuzz lint examples cover bench redis

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run the demo server, on a Redis inside the process or on REDIS_URL
	@$(GO) run ./examples/demo

test: redis ## run all tests, those on real Redis servers included
	$(GO) test -race -shuffle=on -count=1 $(TESTFLAGS) ./...
	cd echov5mw && $(GO) test -race -shuffle=on -count=1 $(TESTFLAGS) ./...
	cd examples/orders && $(GO) test -race -shuffle=on -count=1 $(TESTFLAGS) ./...

soak: redis ## run the long versions of the tests (minutes)
	GATEHOUSE_SOAK=1 $(GO) test -race -shuffle=on -count=1 -timeout=60m $(TESTFLAGS) ./core/... ./nethttpmw ./ginmw ./echomw ./internal/conformance
	cd examples/orders && GATEHOUSE_SOAK=1 $(GO) test -race -shuffle=on -count=1 -timeout=60m $(TESTFLAGS) ./...

fuzz: ## fuzz each fuzz test for 20 seconds
	@for package in $$($(GO) list ./...); do \
	  for test in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    $(GO) test -run '^$$' -fuzz "^$$test\$$" -fuzztime 20s $$package || exit 1; \
	  done; \
	done

lint: ## run the linters
	$(GO) vet ./...
	$(GOLANGCI_LINT) run ./...
	cd echov5mw && $(GO) vet ./... && $(GOLANGCI_LINT) run ./...

examples: ## build the examples
	$(GO) build -o /dev/null ./examples/gin
	$(GO) build -o /dev/null ./examples/echo
	$(GO) build -o /dev/null ./examples/nethttp
	$(GO) build -o /dev/null ./examples/chi
	$(GO) build -o /dev/null ./examples/demo
	$(GO) build -o /dev/null ./examples/stuffing
	cd examples/orders && $(GO) build -race -o /dev/null .

cover: redis ## show the coverage of each package
	$(GO) test -count=1 -cover ./...
	cd echov5mw && $(GO) test -count=1 -cover ./...

bench: ## compare with others (minutes), and write bench/RESULTS.md and bench/PAGES.md
	@scripts/install-test-programs wrk
	cd bench && GATEHOUSE_REQUIRE_REDIS=1 $(GO) test -run '^Test(Report|Pages)$$' -count=1 -timeout=60m -args -out RESULTS.md -pages PAGES.md $(BENCHFLAGS)

redis: # install what the tests start, where that can be done
	@scripts/install-test-programs
