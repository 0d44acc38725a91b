# `make demo` and `make test` set up everything they need. Nothing but python3 (3.11 or later, with venv) and make is asked for.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo

# Real data sets, where they are there: tests that need them are skipped elsewhere.
ifneq ($(wildcard ../shared/data),)
export DISSENSUS_DATA ?= $(abspath ../shared/data)
endif

.PHONY: help demo test test-label-studio test-argilla test-wheel fuzz lint format docs wheel release house bench-accuracy bench-speed bench-methods bench-choice bench-clusters bench-report bench-learning bench-scale clean reproduce-quick test-serve

help:
	@echo "make demo            label the bundled data and leave the results in $(DEMO)/"
	@echo "make test            all tests"
	@echo "make test-label-studio  a real Label Studio (installed into .label-studio), 200 tasks, a service that is killed 20 times"
	@echo "make test-argilla       the tests of Argilla against its real server (installed into .argilla), without its search"
	@echo "make fuzz            200,000 damaged files, arrays and models, and other examples of every property (half an hour; FUZZ_SEED=n for others)"
	@echo "make test-serve      the service: killed a hundred times while it writes, and PostgreSQL"
	@echo "make lint            ruff and mypy --strict"
	@echo "make format          rewrite the sources as ruff likes them"
	@echo "make docs            rewrite the generated tables in README.md and docs/, and build the site in site/"
	@echo "make wheel           build dist/*.whl"
	@echo "make test-wheel      the wheel on Python 3.11 to 3.14 and at the lowest versions; a table of the dependencies' wheels (2 GB of disk)"
	@echo "make release         build dist/, check it (twine, contents, size, versions, the conda package) and write its notes; ARGS=--fold for CHANGELOG.md"
	@echo "make house           lines and code tokens of every layer, and processor time of the start"
	@echo "make reproduce-quick run the papers' tables with few seeds, into reproduced/"
	@echo "make bench-accuracy  accuracy and log loss beside other libraries (makes their environments)"
	@echo "make bench-speed     time and memory of Dawid-Skene beside other libraries, and of reading files"
	@echo "make bench-methods   time and memory of every method beside crowd-kit's"
	@echo "make bench-choice    how good the method is that is chosen without gold"
	@echo "make bench-report    time and size of the report"
	@echo "make bench-clusters  clusters: recovery, time, and jobs_q1..3 beside the paper"
	@echo "make bench-learning  models taught by crowds: the cost of a step"
	@echo "make bench-scale     300M annotations from a disk (a quarter of an hour, 20 GB of disk), 10M on a Spark cluster; a GPU's pass has its own command"

$(VENV)/.core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"dissensus needs Python 3.11 or later; {sys.executable} is {sys.version.split()[0]}. Try: make PYTHON=python3.11")'
	@echo "Setting up $(VENV), once …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "Adding what learning and the tests need (torch among it), once …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[learning,text,umap,spark,serve,postgres,docs,dev]'
	@touch $@

demo: $(VENV)/.core
	@rm -rf $(DEMO)
	$(BIN)/dissensus demo -o $(DEMO)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup $(ARGS)

.label-studio/.done:
	@echo "Installing Label Studio into .label-studio (1 GB), once …"
	@$(PYTHON) -m venv .label-studio
	@.label-studio/bin/python -m pip install --quiet --disable-pip-version-check label-studio==1.23.2
	@touch $@

.argilla/.done:
	@echo "Installing Argilla's server into .argilla (600 MB), once …"
	@$(PYTHON) -m venv .argilla
	@.argilla/bin/python -m pip install --quiet --disable-pip-version-check argilla-server==2.8.0
	@touch $@

test-argilla: $(VENV)/.dev .argilla/.done
	ARGILLA_SERVER=.argilla/bin/python $(BIN)/python -m pytest -q tests/serve/test_argilla.py $(ARGS)

test-label-studio: $(VENV)/.dev .label-studio/.done
	LABEL_STUDIO=.label-studio/bin/label-studio $(BIN)/python -m pytest -q -s tests/serve/real_label_studio.py $(ARGS)

fuzz: $(VENV)/.dev
	FUZZ_INPUTS=200000 $(BIN)/python -m pytest -q -n 2 tests/test_fuzz.py $(ARGS)
	$(BIN)/python -m pytest -q -n 2 -m hypothesis --hypothesis-profile fuzz tests $(ARGS)

test-serve: $(VENV)/.dev
	SERVE_KILLS=100 $(BIN)/python -m pytest -q tests/serve -k "kill or postgres" $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev
	$(BIN)/python tests/test_messages.py
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open site/index.html; no network is needed."

wheel: $(VENV)/.dev
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

test-wheel: $(VENV)/.dev
	$(BIN)/python -m release.wheels 3.14
	$(BIN)/python -m pytest -q release/wheel_on_pythons.py $(ARGS)

$(VENV)/.release: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	@touch $@

.rattler/.done:
	@echo "Installing rattler-build into .rattler (100 MB), once …"
	@$(PYTHON) -m venv .rattler
	@.rattler/bin/python -m pip install --quiet --disable-pip-version-check py-rattler-build==0.73.0 hatchling
	@touch $@

release: $(VENV)/.release .rattler/.done
	$(BIN)/python -m release $(ARGS)
	.rattler/bin/python -m release.conda_build dist

house: $(VENV)/.dev
	$(BIN)/python -m benchmarks.house

reproduce-quick: $(VENV)/.dev
	$(BIN)/python -m reproductions --quick --jobs 2 -o reproduced

bench-accuracy: $(VENV)/.dev
	$(BIN)/python -m benchmarks.accuracy.run
	$(BIN)/python -m benchmarks.accuracy.order

bench-speed: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed.run
	$(BIN)/python -m benchmarks.speed.squarem
	$(BIN)/python -m benchmarks.speed.read

bench-methods: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed.methods

bench-choice: $(VENV)/.dev
	$(BIN)/python -m benchmarks.choice.run

bench-report: $(VENV)/.dev
	$(BIN)/python -m benchmarks.report.run

bench-clusters: $(VENV)/.dev
	$(BIN)/python -m benchmarks.clustering.recovery
	$(BIN)/python -m benchmarks.clustering.speed
	$(BIN)/python -m benchmarks.clustering.jobs

bench-learning: $(VENV)/.dev
	$(BIN)/python -m benchmarks.learning.crowd_step

bench-scale: $(VENV)/.dev
	$(BIN)/python -m benchmarks.scale.disk
	$(BIN)/python -m benchmarks.scale.agree
	$(BIN)/python -m benchmarks.scale.spark

clean:
	rm -rf $(VENV) .label-studio .argilla .pythons .rattler $(DEMO) dist site .peers .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks reproductions -name __pycache__ -type d -prune -exec rm -rf {} +
