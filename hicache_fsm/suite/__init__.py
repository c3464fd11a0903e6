"""The conformance suite: event sequences that any HiCache-like cache can be driven through, and what must hold then."""
