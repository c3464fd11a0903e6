"""hicache-fsm: explicit state machines for the lifecycles behind SGLang HiCache storage prefetch."""
