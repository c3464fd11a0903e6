"""Second transforms namespace of torchvision."""
