"""A stand-in for the portal, for tests and demonstrations, written from its protocol alone."""
