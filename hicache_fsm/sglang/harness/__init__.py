"""The real SGLang scheduler on a CPU, stepped in process. Imported only inside ``.sglang/env``."""
