"""The columns of a proof.

reports ─▶ INSIDE_ROW ──┐
                        ├─▶ PROOF_ROW ─▶ `verdicts`
deliveries ─▶ GOT_ROW ──┘
"""

from typing import Final

INSIDE_ROW: Final = """
    endpoint string, first_us bigint, last_us bigint, latitude double, longitude double, edge string, covered int,
    accepted bigint, refusal int
"""
"""An endpoint that was inside: from when to when it said so, and of the first time where it was, to which edge it said it and
whose coverage that was (as REPORT_ROW has it); how many of its reports were let in, and why the last of the others was not."""

GOT_ROW: Final = """
    endpoint string, matched_us bigint, sent_us bigint, acknowledged_us bigint, dropped_us bigint, reason int, told_by string
"""
"""What edges say about one endpoint and the message: when it was matched and so on, each for the first time; nothing: never."""

PROOF_ROW: Final = f"{INSIDE_ROW.rstrip()}, {GOT_ROW.split(',', 1)[1].strip()}"
"""Both, for each endpoint that is in one of them."""
