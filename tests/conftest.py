"""In CI everything that tests need is installed: a test of real SGLang or of TLC that skips has found it missing."""

import os
from collections.abc import Generator

import pytest

NEVER_SKIPPED_IN_CI = ("sglang", "tlc")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marked = any(item.get_closest_marker(name) for name in NEVER_SKIPPED_IN_CI)
    if report.skipped and marked and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report
