"""A stand-in for the portal, for tests and demonstrations; written from the portal's protocol alone."""
