"""The command ``onceward``: finds the command group, turns expected failures into one sentence.

Exit codes: 0 ok, 1 failed, 2 usage. ``--debug`` shows the traceback of a failure.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

import click

from onceward.broker.client import KafkaError

from ..errors import StreamsError

# Imported when used: `onceward broker` must be ready in a fraction of a second.
COMMANDS = {
    "demo": "demo:demo",
    "broker": "broker:broker",
    "registry": "registry:registry",
    "schemas": "schemas:schemas",
    "worker": "worker:worker",
    "topics": "topics:topics",
    "groups": "groups:groups",
    "transactions": "transactions:transactions",
    "sinks": "sinks:sinks",
    "sources": "sources:sources",
    "produce": "records:produce",
    "consume": "records:consume",
    "verify": "verify:verify",
}


class LazyGroup(click.Group):
    """Loads a command's module when that command is asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        target = COMMANDS.get(name)
        if target is None:
            return None
        module, attribute = target.split(":")
        command = getattr(importlib.import_module(f".{module}", __package__), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
@click.version_option(package_name="onceward")
def cli(debug: bool) -> None:
    """Exactly-once stream processing, with a Kafka-protocol broker built in.

    \b
    Example:  onceward demo
              onceward worker examples/word_count.py:app
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_command(
        cli, list(sys.argv[1:] if arguments is None else arguments), prog_name="onceward"
    )


def run_command(command: click.Command, arguments: list[str], *, prog_name: str) -> int:
    """Run a click command, expected failures as one sentence; returns the exit code."""
    try:
        code = command.main(arguments, prog_name=prog_name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone, so nobody wants the rest
        return 1
    except (KafkaError, StreamsError, OSError) as error:
        if "--debug" in arguments:
            traceback.print_exception(error)
        print(f"{prog_name}: {sentence(error)}", file=sys.stderr)
        return 1
    return code if isinstance(code, int) else 0


def sentence(error: BaseException) -> str:
    """What went wrong as one plain sentence."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


if __name__ == "__main__":
    raise SystemExit(main())
