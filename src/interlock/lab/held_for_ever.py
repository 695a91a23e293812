"""What scenarios have in common in which a holder is gone, and its lock stays."""

from __future__ import annotations

from interlock.lab.judge import Run
from interlock.lab.scenario import Scenario
from interlock.lab.stage import Stage
from interlock.lab.worker_process import WorkerProcess


class HeldForEver(Scenario):
    """A holder is gone and its lock stays: B asks for three ttls, and gets in only if the lock lapses."""

    def let_b_try(self, stage: Stage, b: WorkerProcess) -> None:
        """Let B ask, and wait until it is granted or three ttls have passed."""
        b.go()
        if stage.granted_within("B", 3.0):
            stage.finish(b)

    def naive_failed(self, run: Run) -> bool | None:
        return run.stuck("B") and not run.granted("B")

    def ours_survived(self, run: Run) -> bool | None:
        return run.granted("B") and not run.late_writes()
