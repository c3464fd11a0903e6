"""What a scheduler that runs the machines exposes to Prometheus."""
