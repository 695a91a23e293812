"""Shows what an assertion compared, also in the suites."""

import pytest

pytest.register_assert_rewrite(
    "interlock.testing.conformance",
    *(f"tests.field.{name}" for name in ("taking", "losing", "crowds", "ends", "killed")),
)
