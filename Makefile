# Two commands matter: `make demo` and `make test`. Each sets up everything it needs.
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
PYTHON ?= python3

# the tests start thousands of processes: each would compile all its modules anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup update demo test test-further test-releases lint docs soak bench conformance box-packages page-packages clean

setup: $(STAMP)

# the versions of constraints.txt, each with the hashes of its files, then qtide itself; uv, inside the
# venv, installs them in seconds
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "qtide needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "Python's venv module is missing; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@sed -n '/^uv==/,/[^\\]$$/p' constraints.txt > $(VENV)/uv.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.txt
	@$(PY) -m uv pip install --quiet --python $(PY) --no-deps --require-hashes --requirement constraints.txt
	@$(PY) -m uv pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

# constraints.txt with the newest versions, for every Python that qtide supports
update: setup
	$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --all-extras --upgrade \
	  --generate-hashes --no-annotate --custom-compile-command 'make update' --output-file constraints.txt pyproject.toml

# every strategy on real work, then one QPU shared by the service: two minutes, one page
demo: setup
	$(VENV)/bin/qtide demo
	$(VENV)/bin/qtide reproduce figure-1 figures-2-3 heterogeneous-2-3 table-5 quantum-candidates --name demo-reproduction

test: lint
	$(VENV)/bin/pytest

# what make test leaves out to end in time
test-further: setup
	$(VENV)/bin/pytest -m further

# everything that touches Slurm, with the Slurm of every Debian release that a box can run
test-releases: setup
	for release in bookworm trixie forky; do \
	  echo "Slurm of Debian $$release"; \
	  QTIDE_BOX_RELEASE=$$release $(VENV)/bin/pytest -m slurm tests/box tests/backends tests/service tests/mpi || exit 1; \
	done

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# suites and clients that others wrote, each in an environment of its own; see docs/conformance.md
conformance: setup
	$(PY) -m tests.conformance

# the documentation as a site of files, with its search: open site/index.html
docs: setup
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "open: $(CURDIR)/site/index.html"

# 10,000 random cases of each property
soak: setup
	HYPOTHESIS_PROFILE=soak $(VENV)/bin/pytest tests/strategies tests/core tests/programs \
		tests/service/test_virtual.py tests/service/test_promises.py tests/service/test_pauses.py \
		tests/service/test_device_sessions.py tests/service/test_routing.py tests/service/test_company.py

# beside these scripts, benchmarks/ has what they share
BENCHMARKS := strategies overhead clustering slurm_reconfigure slurm_chain releases slurm_backfill \
  slurm_strategies slurm_real malleable service failover depth promises hostile wide_phases packing \
  crowded pairs devices cutting sharing chromatic twin prediction advice offers sessions primitives \
  preemption routing company estimates commands workflow_engines page reproduction

bench: setup
	for script in $(BENCHMARKS); do $(PY) benchmarks/$$script.py || exit 1; done

# what `qtide box` is made of: Slurm, munge, and MariaDB for its accounting
box-packages:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	  munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins \
	  slurmdbd slurm-wlm-mysql-plugin mariadb-server

# the browser in which the page is tested
page-packages:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
