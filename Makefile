# Milepost: `make help` says what there is.
SHELL := bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
UV_VERSION := 0.13.7
PY := .venv/bin/python
EDGE := .venv-edge
PAGE := src/milepost/dashboard/_built/index.html

.PHONY: help
help:  ## Say what there is
	@echo "Milepost: publish/subscribe for things that move."
	@echo
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | \
	    while IFS='|' read -r target what; do printf '  make %-16s %s\n' "$$target" "$$what"; done
	@echo
	@echo "The first of them to run makes .venv (Python 3.11 or newer: PYTHON=python3.12 picks one) and installs what the lock names."

.PHONY: demo
demo: .venv/synced $(PAGE)  ## A city on a live map, with an accident in it (ARGS="--headless --seconds 60": ends with a report)
	@scripts/get_debian_parts demo
	@.venv/bin/milepost demo $(ARGS)

.PHONY: edge
edge: $(EDGE)/synced  ## A broker at 127.0.0.1:1883, in a small environment of its own (ARGS="--config milepost.toml")
	@$(EDGE)/bin/milepost edge run $(ARGS)

.PHONY: page
page: $(PAGE)  ## Build the page of the live map (needs Node.js)

.PHONY: test
test: .venv/synced $(PAGE)  ## Run the checks and the tests, within ten minutes: one live test of every kind (CI=true: nothing may be skipped)
	@scripts/get_debian_parts demo
	@scripts/get_debian_parts tests
	@$(PY) scripts/check.py full

.PHONY: test-fast
test-fast: .venv/synced  ## The inner loop, under a minute: checks, unit, house and property tests with few examples
	@$(PY) scripts/check.py fast

.PHONY: test-long
test-long: .venv/synced $(PAGE)  ## Run the tests that make test leaves out: long live tests, simulations, fuzzing
	@scripts/get_debian_parts demo
	@scripts/get_debian_parts tests
	@$(PY) scripts/check.py long

.PHONY: search
search: .venv/synced  ## Look for new examples and seeds that fail (MINUTES=60: for an hour)
	@$(PY) scripts/search.py $(or $(MINUTES),10)

.PHONY: soak
soak: .venv/synced  ## Kill, fuzz and cut off for hours (HOURS=8); writes bench/results/soak.md
	@scripts/get_debian_parts tests
	@$(PY) scripts/soak.py $(or $(HOURS),1)

.PHONY: bench-matching
bench-matching: .venv/synced  ## Measure matching beside Redis GEO, Tile38 and others (QUICK=1: within 60 s)
	@scripts/get_debian_parts bench
	@scripts/get_tile38 || echo "The benchmark runs without Tile38."
	@QUICK=$(QUICK) $(PY) -m bench.matching

.PHONY: bench-edge
bench-edge: .venv/synced  ## Measure MQTT brokers side by side: ours, Mosquitto, NATS, amqtt (QUICK=1: within two minutes)
	@scripts/get_debian_parts bench
	@scripts/get_debian_parts bench-edge
	@scripts/get_mosquitto21 || echo "The benchmark runs without Mosquitto 2.1."
	@scripts/get_nats || echo "The benchmark runs without NATS."
	@scripts/get_amqtt || echo "The benchmark runs without amqtt."
	@QUICK=$(QUICK) $(PY) -m bench.edge

.PHONY: bench-udp
bench-udp: .venv/synced  ## Measure the UDP door beside loops in C: reports, alerts, handshakes (QUICK=1: within two minutes)
	@scripts/get_debian_parts bench-udp
	@QUICK=$(QUICK) $(PY) -m bench.udp

.PHONY: bench-hub
bench-hub: .venv/synced  ## Measure sites and roaming: DPSMD's table beside Mosquitto, on both logs (QUICK=1: within three minutes)
	@scripts/get_debian_parts bench-hub
	@QUICK=$(QUICK) $(PY) -m bench.hub

.PHONY: bench-pipelines
bench-pipelines: .venv/synced  ## Measure Spark pipelines: from a report to its alert, rates beside a bare count (QUICK=1: within ten minutes)
	@scripts/get_debian_parts tests
	@QUICK=$(QUICK) $(PY) -m bench.pipelines

.PHONY: bench-roads
bench-roads: .venv/synced  ## Measure roads: areas, placing beside shapely, who is warned beside a radius (QUICK=1: within a minute)
	@QUICK=$(QUICK) $(PY) -m bench.roads

.PHONY: bench-reaching
bench-reaching: .venv/synced  ## Measure who is told in time under overload, beside plain priority (QUICK=1: within a minute)
	@QUICK=$(QUICK) $(PY) -m bench.reaching

.PHONY: reasons
reasons: .venv/synced  ## Write the page of refusal reasons again after the list changed
	@$(PY) scripts/write_reasons.py

.PHONY: reference
reference: .venv/synced  ## Write the pages of settings and commands again after one of them changed
	@$(PY) scripts/write_reference.py

.PHONY: site
site: .venv/synced  ## Build the documents as a site, in site/
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@echo "Look at it: python3 -m http.server --bind 127.0.0.1 --directory site"

.PHONY: environment
environment: .venv/synced  ## Only make .venv

.PHONY: clean
clean:  ## Remove .venv, caches and built files
	rm -rf web/node_modules src/milepost/dashboard/_built
	rm -rf .venv $(EDGE) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

define need_python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Milepost needs Python 3.11 or newer; say which: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || scripts/get_debian_parts environment
endef

.venv/bin/uv:
	$(need_python)
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# What an edge needs at run time and nothing else. uv itself, half as large as all of that, is removed again.
$(EDGE)/synced: pyproject.toml uv.lock
	$(need_python)
	$(PYTHON) -m venv $(EDGE)
	$(EDGE)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	UV_PROJECT_ENVIRONMENT=$(abspath $(EDGE)) $(EDGE)/bin/uv sync --frozen --quiet
	$(EDGE)/bin/pip uninstall --quiet --yes uv
	@touch $@

.venv/synced: .venv/bin/uv pyproject.toml uv.lock
	.venv/bin/uv sync --frozen --all-groups --quiet
	@touch $@

$(PAGE): scripts/build_page $(wildcard web/*.json web/build.mjs web/src/* web/static/*)
	@scripts/build_page
