"""Without PyTorch nothing but the torch pools is missing, and they say in one line how to get it."""

import subprocess
import sys

LINE = 'torch pools need PyTorch: pip install "hicache-fsm[torch]"'


def without_torch(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process where torch cannot be imported."""
    blocked = f"import sys\nsys.modules['torch'] = None\n{program}"
    return subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True)


def test_the_pools_name_the_extra() -> None:
    told = without_torch(
        "try:\n    import hicache_fsm.executor.torchpools\nexcept ImportError as absent:\n    print(absent)"
    )
    assert told.stdout.strip() == LINE


def test_the_table_of_faults_ends_with_one_line_and_2() -> None:
    told = without_torch("from hicache_fsm.executor.faults import main\nsys.exit(main([]))")
    assert (told.returncode, told.stdout, told.stderr.strip()) == (2, "", LINE)


def test_runtime_commands_stores_and_the_mapping_do_without() -> None:
    told = without_torch(
        "import hicache_fsm.runtime, hicache_fsm.cli, hicache_fsm.executor.stores, hicache_fsm.executor.mapping"
    )
    assert (told.returncode, told.stderr) == (0, "")


def test_neither_the_runtime_nor_the_commands_import_torch_at_their_start() -> None:
    program = "import sys, hicache_fsm.runtime, hicache_fsm.cli\nprint('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
