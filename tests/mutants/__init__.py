"""Mutation tests: deliberate defects of the service, each of which a fast test must notice.

`cases.diff` lists the mutants, `runner.py` applies each to a copy of the tree and runs its tests,
and `make mutants` prints one line for each. A mutant that survives is a promise of the service that
no test checks.
"""
