"""Ranks compare digests of what they decided, pass by pass."""
