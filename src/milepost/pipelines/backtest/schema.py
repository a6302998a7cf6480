"""The columns of a backtest.

archive ─▶ events ─▶ cells (hazards) ─▶ ENDED_ROW, in order ─▶ the incident desk ─▶ alerts
"""

from typing import Final

ENDED_ROW: Final = "ends_ns bigint, value string"
"""A cell as the log has it, and when its slot ended."""
