"""Python imports this in every process that has its directory on the path: only chaos tests do.

`CHAOS_MUTANT` names the mutant; the product knows nothing of it.
"""

from __future__ import annotations

import importlib.util
import os
import traceback
from pathlib import Path

if name := os.environ.get("CHAOS_MUTANT"):
    spec = importlib.util.spec_from_file_location(
        "chaos_mutants", Path(__file__).with_name("mutants.py")
    )
    assert spec is not None
    assert spec.loader is not None
    mutants = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(mutants)
        getattr(mutants, name)()
    except BaseException:
        # Python would go on without the mutant, and the test would blame the checker.
        traceback.print_exc()
        os._exit(70)
