# Every target sets up what it needs in $(VENV), once; a second run starts at once. Knows GNU Make 3.81 (macOS) and later.
#
#   make demo                      the README chain on every executor of this machine, compared in one table
#   make demo DATA='shards/*'      make demo on your own TFRecords or images
#   make test                      make check, then a selection of the tests: minutes
#   make test-all                  make check, then every test that can run here
#   make demo EXTRA=cpu            choose the extra yourself: cpu, cuda12 or cuda13
#   make test PYTHON=python3.12    choose the interpreter
#   make test ARGS='-k resize'     hand arguments to pytest, or to the benchmarks

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
RUNS   ?= 10000000
DATA   ?=
WRITE  ?=

# The DALI wheel follows the driver: the CUDA 13 build needs 580, the CUDA 12 build 525.60. Without a
# driver, DALI's CPU operators are installed, and no CuPy.
DRIVER := $(shell nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 's/^\([0-9]*\)\..*/\1/p' | head -n 1)
ifeq ($(DRIVER),)
EXTRA ?= cpu
else
EXTRA ?= $(shell if [ $(DRIVER) -ge 580 ]; then echo cuda13; elif [ $(DRIVER) -ge 525 ]; then echo cuda12; else echo cpu; fi)
endif

# What pip downloads and what it takes on disk, measured with the pinned versions on Linux and Python 3.11.
SIZE_cpu := 340 MB to download, 910 MB on disk
SIZE_cuda12 := 770 MB to download, 1.6 GB on disk
SIZE_cuda13 := 410 MB to download, 1.1 GB on disk
COMMA := ,

PY  := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
# Pinned versions (`make constraints`). What is large is shown as it is downloaded; all that pip says, if it fails.
define install
@{ $(PY) -m pip --disable-pip-version-check install --progress-bar off --constraint docker/constraints-$(EXTRA).txt \
  -e '.[$(1)]' 2>&1; echo "exit status $$?"; } | awk '{ text = text $$0 "\n" } \
  /^ *Downloading .*\([0-9.]+ MB\)/ { size = $$0; sub(/.*\(/, "", size); if (size + 0 >= 5) { print "  " $$2 " (" size; fflush() } } \
  END { if ($$0 != "exit status 0") { printf "%s", text; exit 1 } }'
endef

RUN := $(VENV)/.gpupipe-$(EXTRA)
DEV := $(VENV)/.gpupipe-$(EXTRA)-dev
BOOK := $(VENV)/.gpupipe-$(EXTRA)-notebooks

.PHONY: help demo test test-all check check-libraries bench bench-all bench-gpu gpu-day test-gpu test-stand-in notebooks coverage soak fuzz test-images release docs constraints setup setup-dev clean

help:
	@sed -n '3,10s/^# *//p' Makefile
	@echo 'others: check check-libraries bench bench-all bench-gpu gpu-day test-gpu test-stand-in notebooks coverage soak fuzz test-images release docs constraints setup setup-dev clean'

demo: $(RUN)
	$(VENV)/bin/gpupipe demo $(if $(DATA),--data '$(DATA)') $(ARGS)

# The selection: see tests/selection.py.
test: check
	$(PY) -m tests $(ARGS)

test-all: check
	$(PY) -m tests --all $(ARGS)

# mypy and pyright run at the same time: two minutes otherwise.
check: $(DEV)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	@echo 'mypy and pyright: about a minute ...'; $(PY) -m mypy & mypy=$$!; \
	$(PY) -m pyright --pythonpath $(PY); status=$$?; wait $$mypy && exit $$status

# The same on the types of the optional libraries that are installed, where `check` has stubs that know nothing (tests/stubs/).
check-libraries: $(DEV)
	$(PY) -m mypy & mypy=$$!; \
	$(PY) -m pyright --threads 2 --pythonpath $(PY) --project .ci/libraries.json; status=$$?; wait $$mypy && exit $$status

test-gpu: $(DEV)
	$(PY) -m pytest -m 'gpu or conformance' $(ARGS)

# The tests of chains, executors and states on a simulated GPU; see tests/stand_in_gpu.py. Without ARGS, at least so many
# batches must go through it that "auto" must have chosen it. PASSED= names what GPUPIPE_PASSED named when the tests ran on the
# host: those that passed and never asked for a GPU are left out.
test-stand-in: $(DEV)
	$(PY) -m pytest -p tests.stand_in_gpu -n auto --dist worksteal $(if $(ARGS),$(ARGS),--stand-in-batches 3000) $(if $(PASSED),--passed-on-host '$(PASSED)')

bench: $(DEV)
	$(PY) -m benchmarks $(ARGS)

# Every suite with its documented pairs: hours. It goes on with what is left; ARGS=--list says what is, ARGS=--dry-run tries all.
bench-all: $(DEV)
	$(PY) -m benchmarks all $(ARGS)

bench-gpu: $(DEV)
	$(PY) -m benchmarks bench-gpu $(ARGS)

# Installs nothing, so that it runs where there is no network: with $(VENV) if there is one, else with $(PYTHON).
gpu-day:
	$(or $(wildcard $(PY)),$(PYTHON)) -m benchmarks gpu-day $(ARGS)

# tests/reliability and random rewrites with nothing left out: long runs, every cell of a matrix, every random program. Prints
# its measurements. Tests that are meant to take minutes print no stacks.
soak: $(DEV)
	GPUPIPE_FULL=1 $(PY) -m pytest tests/reliability tests/algebra -s --timeout 3600 -o faulthandler_timeout=0 $(ARGS)

# Of all tests and of the processes that they start; half an hour. An interrupt at any line may hit one in coverage, whose lock
# it then holds for ever; and a chain that is too deep for Python ends coverage in its process.
UNCOVERED = tests/reliability/test_interrupts.py \
	tests/reliability/test_interrupted_writes.py::test_saves_that_a_signal_ends_at_any_time_break_no_folder \
	tests/behaviour/test_odd_arguments.py::test_a_chain_too_deep_for_states_goes_on_without
coverage: export COVERED := $(CURDIR)
coverage: $(DEV)
	$(PY) -m coverage erase
	$(PY) -m coverage run -m tests --all $(UNCOVERED:%=--deselect %) $(ARGS)
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

# RUNS executions of each parser on hostile bytes; ARGS='headers --seconds 60' chooses a target and a time.
fuzz: $(DEV)
	@$(PIP) install -e '.[fuzz]'
	$(PY) -m tests.fuzz.run --runs $(RUNS) $(ARGS)

# Each from top to bottom; DATA='shards/*' runs them on your own images, WRITE=1 keeps the outputs in the files.
notebooks: $(BOOK)
	DATA='$(DATA)' $(PY) notebooks/run.py $(if $(WRITE),--write) $(ARGS)

# The Dockerfiles carried out without Docker, in a folder: installs hundreds of MB from the package index.
test-images: $(DEV)
	GPUPIPE_INDEX=1 $(PY) -m pytest tests/docker -n 2 $(ARGS)

# A wheel and a source archive of HEAD into dist/, built twice and tried on every Python of this machine. Uploads nothing.
release: $(DEV)
	$(PY) -m tests.release

# Guides, the ops in pictures and the reference, as HTML in build/docs.
docs: $(DEV)
	$(PY) -m tests.docs

# The versions that images and CI install, newest that fit pyproject.toml, for Python 3.10 and later; ARGS='-P numpy' changes
# one package alone, ARGS=--upgrade all of them.
constraints: $(DEV)
	@$(PIP) install uv
	for kind in cpu cuda12 cuda13; do \
	  $(VENV)/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.10 --no-annotate --custom-compile-command 'make constraints' \
	    --extra $$kind --extra jupyter --extra dev --output-file docker/constraints-$$kind.txt $(ARGS) || exit; \
	done

setup: $(RUN)
setup-dev: $(DEV)

# The stamps depend on pyproject.toml alone: the install is editable, so changed code needs no new one.
# What $(RUN) installs is among it: at once, where nothing is there yet.
$(DEV): $(VENV)/.gpupipe-venv-$(EXTRA) pyproject.toml
	@echo 'installing gpupipe ($(EXTRA)) and the tools for checks and tests into $(VENV), once: beside $(SIZE_$(EXTRA)),'
	@echo '200 MB to download, 730 MB on disk, a minute or two ...'
	$(call install,$(EXTRA)$(COMMA)dev)
	@touch $(RUN) $@

$(BOOK): $(RUN) pyproject.toml
	@echo 'installing what runs notebooks into $(VENV): 20 MB to download, 90 MB on disk ...'
	$(call install,$(EXTRA)$(COMMA)notebooks)
	@touch $@

$(RUN): $(VENV)/.gpupipe-venv-$(EXTRA) pyproject.toml
	@echo 'installing gpupipe and its libraries ($(EXTRA)) into $(VENV): $(SIZE_$(EXTRA)), a minute or two, once ...'
	$(call install,$(EXTRA))
	@touch $@

# Changing EXTRA starts anew, for two DALI wheels in one environment overwrite each other; only an environment that was
# made here is removed. Debian's python3 lacks ensurepip (python3-venv holds it): then the pip at hand installs pip.
$(VENV)/.gpupipe-venv-$(EXTRA):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "gpupipe needs Python 3.10 or later, got `$(PYTHON) --version 2>&1`; choose one with make PYTHON=python3.12" >&2; exit 1; }
	@for old in $(VENV)/.gpupipe-venv-*; do if [ -e "$$old" ]; then rm -rf '$(VENV)'; fi; done
	@if $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then $(PYTHON) -m venv '$(VENV)'; else \
	  $(PYTHON) -m venv --without-pip '$(VENV)' && $(PYTHON) -m pip install --quiet --upgrade pip --target \
	    "`$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))'`"; \
	fi || { echo "$(PYTHON) can make no virtual environment: it needs its venv module, and ensurepip or pip; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

clean:
	rm -rf build dist notebooks/data .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov
	find gpupipe ops tests benchmarks notebooks -name __pycache__ -type d -prune -exec rm -rf {} +
	@for made in $(VENV)/.gpupipe-venv-*; do if [ -e "$$made" ]; then rm -rf '$(VENV)'; fi; done
