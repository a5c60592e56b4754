"""The worker protocol: bytes in, bytes out. Nothing here does I/O or knows a service."""
