"""Shows what an assertion of the shipped suite compared."""

import pytest

pytest.register_assert_rewrite("interlock.testing.conformance")
