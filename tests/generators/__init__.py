"""Client generators and linters, run on the OpenAPI description, and the generated clients."""
