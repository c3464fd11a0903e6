"""Effects carried out on the objects of a real SGLang scheduler. Imported only inside ``.sglang/env``."""
