"""The commands of run.py."""
