"""The engine of a worker: it runs handlers, and knows nothing of how frames travel."""
