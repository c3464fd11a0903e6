"""Names for the pages of a prompt, under which the tree and storage keep them."""

import hashlib
from collections.abc import Sequence


def page_names(tokens: Sequence[int], page_size: int) -> list[str]:
    """A name for each whole page, which depends on all tokens up to the page's end."""
    digest, names = hashlib.sha256(), []
    for end in range(page_size, len(tokens) + 1, page_size):
        digest.update(repr(list(tokens[end - page_size : end])).encode())
        names.append(digest.hexdigest()[:32])
    return names
