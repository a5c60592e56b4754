"""The version of the distribution; discovery names it."""

__version__ = "0.1.0"
