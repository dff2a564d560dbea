"""`python -m proof.attacks`: attack a server and its workers, and see that it holds and that others notice nothing.

python -m proof.attacks --minutes 60 --seed 1                all named attacks, then random ones, on both stores
python -m proof.attacks --store postgres                     on one store
python -m proof.attacks --random                             without the named attacks
python -m proof.attacks --attack forged_retry                one named attack, again
python -m proof.attacks --replay proof/attacks/found/3.json  the requests of a finding, again
python -m proof.attacks --defects                            break the product on purpose, and see that it is found
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from proof.arguments import positive_float
from proof.attacks.campaign import Battlefield, Campaign, Finding
from proof.attacks.defects import DEFECTS, unfound
from proof.attacks.named_attacks import ATTACKS, carry_out

STORES = ("sqlite", "postgres")
FOUND = Path(__file__).with_name("found")


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    with tempfile.TemporaryDirectory(prefix="mulligan-attacks-") as folder:
        if options.defects:
            return _find_defects(Path(folder))
        with Battlefield(Path(folder)) as battlefield:
            if options.replay:
                return _replay(battlefield, options.replay)
            stores = (options.store,) if options.store else STORES
            campaigns = [Campaign(battlefield, store, options.seed, say=_say) for store in stores]
            began = time.monotonic()
            try:
                _attack(battlefield, campaigns, options, until=began + 60 * options.minutes)
            except KeyboardInterrupt:
                _say("ended before it was done")
            return _summarize(campaigns, options, time.monotonic() - began)


def _attack(battlefield: Battlefield, campaigns: list[Campaign], options: argparse.Namespace, until: float) -> None:
    _say(f"seed {options.seed}")
    for campaign in campaigns:
        for name in options.attack or (() if options.random else ATTACKS):
            for finding in carry_out(battlefield, campaign.store, name):
                campaign.note(finding)
        _say(f"{campaign.store}: the named attacks are over")
    session = 0
    while not options.attack and time.monotonic() < until:
        for campaign in campaigns:
            campaign.session(session, until=until)
            seconds = 60 * options.minutes - (until - time.monotonic())
            _say(f"{campaign.store}: {campaign.requests:,} requests, {seconds / 60:.1f} minutes")
        session += 1


def _summarize(campaigns: list[Campaign], options: argparse.Namespace, seconds: float) -> int:
    total = sum(campaign.requests for campaign in campaigns)
    found = [finding for campaign in campaigns for finding in campaign.found.values()]
    print(f"{total:,} requests in {seconds / 60:.1f} minutes, {total / max(seconds, 1):,.0f} a second")
    for campaign in campaigns:
        statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(campaign.statuses.items()))
        print(f"  {campaign.store}: {campaign.batches:,} batches; {statuses}")
    print(f"{len(found) or 'nothing'} found")
    for finding in found:
        print(f"- {finding.words.strip()[:2000]}")
        if len(finding.requests) == 1:
            print(f"  {finding.requests[0]}")
        print(f"  again: {_command(finding, options)}")
    return 1 if found else 0


def _command(finding: Finding, options: argparse.Namespace) -> str:
    if finding.attack:
        return f"python -m proof.attacks --store {finding.store} --attack {finding.attack}"
    if not finding.requests:
        return f"python -m proof.attacks --store {finding.store} --seed {options.seed}  # batch {finding.batch}"
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{sum(1 for _ in FOUND.iterdir()) + 1}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(finding)))
    return (
        f"python -m proof.attacks --replay {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}"
    )


def _replay(battlefield: Battlefield, file: str) -> int:
    finding = msgspec.json.decode(Path(file).read_bytes(), type=Finding)
    wrong = Campaign(battlefield, finding.store, 0).replay(finding.requests)
    print("\n".join(wrong) or "nothing is wrong with it")
    return 1 if wrong else 0


def _find_defects(folder: Path) -> int:
    missed, count = unfound(folder, say=_say), len(DEFECTS)
    print("\n".join([f"{count - len(missed)} of {count} deliberate defects were found", *missed]))
    return 1 if missed else 0


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.attacks")
    parser.add_argument("--minutes", type=positive_float, default=20.0, help="for the random attacks, on all stores")
    parser.add_argument("--seed", type=int, default=0, help="the same seed sends the same requests")
    parser.add_argument("--store", choices=STORES, help="on this one only")
    parser.add_argument("--attack", choices=ATTACKS, action="append", help="only this named attack; may come again")
    parser.add_argument("--random", action="store_true", help="leave the named attacks out")
    parser.add_argument("--replay", metavar="FILE", help="send the requests of a finding again")
    parser.add_argument("--defects", action="store_true", help="break the product on purpose, and see it found")
    return parser.parse_args(words)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
