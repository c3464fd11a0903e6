"""Effects of transitions carried out on real pools.

Nothing is imported here: `hicache_fsm.executor.torchpools` needs PyTorch, and says so where it is missing.
"""
