"""The version of the service, which follows Semantic Versioning. CHANGELOG.md describes it."""

VERSION = "1.0.0-dev"
