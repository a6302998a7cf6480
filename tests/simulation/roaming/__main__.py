"""Run many seeds: `PYTHONPATH=tests python -m simulation.roaming FIRST COUNT [SITES] [HUBS] [ATTACKERS]`.

One seed with notes: `COUNT` 0; with attackers: `ATTACKERS` 1.
"""

import sys
import time
import traceback

from simulation.roaming.scenario import Scenario


def main() -> int:
    """Print the seeds that fail, and their faults."""
    first, count, *rest = (int(argument) for argument in sys.argv[1:])
    sites, hubs, attackers = (rest + [1, 0, 0][len(rest) :])[:3]
    if not count:
        scenario = Scenario(first, sites=sites, hubs=hubs, is_noting=True, has_attackers=bool(attackers))
        try:
            faults = scenario.run()
        finally:
            print("\n".join(scenario.world.notes))
        print("\n".join(faults) or "no faults")
        return bool(faults)
    failed, began_at, checked = [], time.monotonic(), 0
    for seed in range(first, first + count):
        scenario = Scenario(seed, sites=sites, hubs=hubs, has_attackers=bool(attackers))
        try:
            faults = scenario.run()
        except Exception as fault:  # noqa: BLE001  # the other seeds are run anyway
            faults = [f"{type(fault).__name__}: {fault} at {traceback.extract_tb(fault.__traceback__)[-1][:3]}"]
        checked += scenario.world.ledger.checked
        if faults:
            failed.append(seed)
            print(seed, len(faults), faults[0][:300], flush=True)
    print(f"{len(failed)} of {count} failed: {failed[:40]}; {checked} receipts, {time.monotonic() - began_at:.0f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
