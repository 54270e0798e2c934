"""``python -m onceward.broker``: the broker alone, without the command line of the framework."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from .broker import BrokerFailed
from .errors import KafkaError
from .serve import serve
from .storage.filesystem import LockHeldError


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"a setting is KEY=VALUE, got {text!r}")
    return name, value


def _announce(address: str) -> None:
    print(f"onceward broker ready on {address}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m onceward.broker")
    parser.add_argument("--listen", default="127.0.0.1:9092", metavar="HOST:PORT")
    parser.add_argument("--data", default=None, metavar="DIR", help="default: a temporary one")
    parser.add_argument("--config", action="append", default=[], type=_setting, metavar="KEY=VALUE")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(
            serve(
                listen=options.listen,
                data_dir=options.data,
                config=dict(options.config),
                ready=_announce,
            )
        )
    except LockHeldError:
        print(f"another broker is using {options.data}", file=sys.stderr)
        return 1
    except (KafkaError, BrokerFailed, OSError, ValueError) as error:
        print(f"the broker could not run: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
