"""Effects of transitions carried out on real pools."""
