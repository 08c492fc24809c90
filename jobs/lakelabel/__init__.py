"""Label the rows of a Delta table with a language model, at any size, and never pay twice."""

__version__ = "0.1.0"
