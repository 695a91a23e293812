"""What a live deployment promises: `client.diagnose()`, `client.health()` and `interlock doctor`.

Each store examines its own servers (`checks.py` of the backend, `Store.examine`). Here is what is true of
every store, the probe of one lock, and the answer that is made from both. Severity belongs to a finding, not
to its id: the same check may be a danger in one deployment and good in another, and `unknown` where the
server may not be asked.
"""

from __future__ import annotations

from interlock.doctor.diagnosis import Diagnosis, Health
from interlock.model import Examination, Finding, Outlook

__all__ = ["Diagnosis", "Examination", "Finding", "Health", "Outlook"]
