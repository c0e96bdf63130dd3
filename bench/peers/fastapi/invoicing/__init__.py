"""A reference service with FastAPI, Pydantic and SQLAlchemy, with which compare.py compares."""
