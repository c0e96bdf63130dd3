"""The tests, their fixtures and the programs that they share."""
