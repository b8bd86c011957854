# Shorthands for work in an environment made with: pip install -e '.[dev]'
.PHONY: help check format test golden

help:     ## list what there is
	@grep -h '##' $(MAKEFILE_LIST) | grep -v grep | sed 's/: *## */\t/'

check:    ## what a change must pass, in this environment (.ci/run makes a fresh one)
	ruff format --check .
	ruff check .
	mypy
	python -m pytest -n 2

format:   ## format, and mend what can be mended
	ruff format .
	ruff check --fix .

test:     ## the tests, the long ones too
	python -m pytest -n 2 -m "slow or not slow"

golden:   ## accept what golden files now give; read the diff
	python -m pytest tests/golden --update-golden
