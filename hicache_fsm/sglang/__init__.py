"""The real SGLang on a CPU: installing it, stepping it, recording its lifecycles."""
