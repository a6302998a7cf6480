"""Run many seeds: `PYTHONPATH=tests python -m simulation.roaming FIRST COUNT [SITES] [CENTRES]`; one, with notes: `COUNT` 0."""

import sys
import time
import traceback

from simulation.roaming.story import Story


def main() -> int:
    """Tell which seeds fail, and how."""
    first, count, *rest = (int(word) for word in sys.argv[1:])
    sites, centres = (rest + [1, 0][len(rest) :])[:2]
    if not count:
        story = Story(first, sites=sites, centres=centres, is_noting=True)
        try:
            faults = story.play()
        finally:
            print("\n".join(story.world.notes))
        print("\n".join(faults) or "all is well")
        return bool(faults)
    failed, began_at, checked = [], time.monotonic(), 0
    for seed in range(first, first + count):
        story = Story(seed, sites=sites, centres=centres)
        try:
            faults = story.play()
        except Exception as fault:  # noqa: BLE001  # whatever it is, the other seeds are looked at too
            faults = [f"{type(fault).__name__}: {fault} at {traceback.extract_tb(fault.__traceback__)[-1][:3]}"]
        checked += story.world.ledger.checked
        if faults:
            failed.append(seed)
            print(seed, len(faults), faults[0][:300], flush=True)
    print(f"{len(failed)} of {count} failed: {failed[:40]}; {checked} receipts, {time.monotonic() - began_at:.0f} s")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
