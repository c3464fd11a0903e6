"""Second functional namespace of torchvision; empty here."""
