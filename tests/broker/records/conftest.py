"""Every test that asks for ``implementation`` runs on the compiled codec and on the pure one."""

from __future__ import annotations

import pytest

from onceward.broker.records import batch, codec, control, pure
from onceward.broker.records.kernel import COMPILED, Kernel, kernel


@pytest.fixture(params=["compiled", "pure"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    chosen: Kernel = kernel if request.param == "compiled" else pure
    if request.param == "compiled" and not COMPILED:
        pytest.skip("the extension is not built")
    for module in (batch, codec, control):
        monkeypatch.setattr(module, "kernel", chosen)
    return chosen
