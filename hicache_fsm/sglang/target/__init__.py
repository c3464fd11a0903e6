"""The real SGLang as a cache under test: every completion lands when a sequence says so."""
