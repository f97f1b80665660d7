"""What all commands share: a parser whose errors are one line, options that several have, and files to write."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robustda.errors import ConfigError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from robustda.data.domain import Domain
    from robustda.methods.base import Method
    from robustda.methods.options import Option

__all__ = [
    "COLUMNS",
    "add_backbone",
    "add_columns",
    "add_decoding",
    "add_options",
    "add_switch",
    "check_writable",
    "early",
    "make_pair_parser",
    "make_parser",
    "named_method",
    "parser_of",
    "read",
    "read_pair",
    "without_name",
    "write_domain",
    "write_table",
]

COLUMNS = ("label", "path_column", "id_column")
_MOST_CONFIG, _DEEPEST = 1 << 20, 20
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list of them"}


def make_parser(name: str, description: str | None) -> ArgumentParser:
    """A parser for one command."""
    from jsonargparse import ArgumentParser

    class Parser(ArgumentParser):
        def error(self, message: str, ex: Exception | None = None) -> Any:
            known = [action.dest for action in self._actions]
            raise ConfigError(one_line(message, name, known))

        def parse_args(self, *arguments: Any, **more: Any) -> Any:
            if _LOOKING.get():
                raise _Made(self)
            return super().parse_args(*arguments, **more)

    # Without abbreviations, since `_early` would not see --meth, nor --var and the preset that it names.
    return Parser(prog=f"robustda {name}", description=description, exit_on_error=True, allow_abbrev=False)


def parser_of(command: Callable[[list[str]], int], arguments: list[str]) -> ArgumentParser:
    """The parser that a command makes of its options, without running the command."""
    looking = _LOOKING.set(True)
    try:
        command(arguments)
    except _Made as made:
        return made.parser
    finally:
        _LOOKING.reset(looking)
    raise TypeError(f"{command.__name__} parses no arguments")


class _Made(Exception):
    def __init__(self, parser: ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


_LOOKING: ContextVar[bool] = ContextVar("looking", default=False)


DEFAULT_METHOD = "clarity"


def add_switch(parser: ArgumentParser, name: str, default: bool, help: str) -> None:
    """An option that is on when it stands alone, and may be given true or false."""
    parser.add_argument(f"--{name}", type=bool, default=default, nargs="?", const=True, help=help)


def make_pair_parser(
    name: str,
    description: str | None,
    method: str,
    methods: str,
    out: str,
    target_labels: str = "labels of the target: for scoring",
) -> ArgumentParser:
    """A parser for a command that learns from a source and a target, with the options that all of these have."""
    parser = make_parser(name, description)
    parser.add_argument("--config", action="config", help="a YAML file with any of these options")
    parser.add_argument("--method", type=str, default=method, help=methods)
    source = "labelled data: folder, table, list, .tar, .npz, .npy or address"
    parser.add_argument("--source", type=str, required=True, help=source)
    parser.add_argument("--target", type=str, required=True, help="unlabelled data of the same kind")
    parser.add_argument("--out", type=str, required=True, help=out)
    decisions = "what was decided about source examples: the decisions.csv of an audit page"
    parser.add_argument("--decisions", type=str | None, default=None, help=decisions)
    add_columns(parser)
    parser.add_argument("--target_labels", type=Literal["auto", "ignore"], default="auto", help=target_labels)
    add_decoding(parser)
    return parser


def add_options(parser: ArgumentParser, options: Sequence[Option]) -> None:
    """Options that a settings dataclass has."""
    for option in options:
        if option.type is bool:
            add_switch(parser, option.name, option.default, option.help)
        else:
            parser.add_argument(f"--{option.name}", type=option.type, default=option.default, help=option.help)


def add_columns(parser: ArgumentParser) -> None:
    """Options that say which columns of a table are meant (`COLUMNS`)."""
    parser.add_argument("--label", type=str, default="label", help="the label column of a table")
    parser.add_argument("--path_column", type=str | None, default=None, help="the column of image paths in a table")
    parser.add_argument("--id_column", type=str | None, default=None, help="the column of ids in a table")


def add_decoding(parser: ArgumentParser) -> None:
    """Options of how images are read: strict and cache_dir."""
    add_switch(parser, "strict", False, "make unreadable images an error")
    parser.add_argument("--cache_dir", type=str | None, default=None, help="where decoded images are kept")


def add_backbone(parser: ArgumentParser) -> None:
    """Options of a frozen backbone, as every method has them: backbone, weights and image_size."""
    from robustda.methods.base import Method
    from robustda.methods.options import options

    add_options(parser, [option for option in options(Method) if option.name in ("backbone", "weights", "image_size")])


def named_method(arguments: list[str]) -> tuple[type[Method], str | None]:
    """The method that is meant, and the preset of its options: what other options there are depends on both."""
    from robustda.methods import method_class

    kind = method_class(early(arguments, "method") or DEFAULT_METHOD)
    if not kind.presets:
        return kind, None
    option, presets = kind.presets
    preset = early(arguments, option)
    if preset is not None and preset not in presets:
        raise ConfigError(f"{option} is {preset!r}: choose one of {', '.join(presets)}")
    return kind, preset


def early(arguments: list[str], option: str) -> str | None:
    """The value of an option before the parser that knows it exists: from the command line, else the config file."""
    value = _last_given(arguments, f"--{option}")
    config = _last_given(arguments, "--config")
    if config is not None and Path(config).is_file():
        _check_config(Path(config))
    if value is None and config is not None and Path(config).is_file():
        import yaml

        try:
            content = yaml.safe_load(Path(config).read_text())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"the config file {config} is not YAML: {one_line(str(error), 'fit')}") from error
        value = content.get(option) if isinstance(content, dict) else None
    return None if value is None else str(value)


def _check_config(path: Path) -> None:
    """Refuse a config file that would take for ever to read: a few lines of references can stand for billions."""
    import yaml

    if path.stat().st_size > _MOST_CONFIG:
        raise ConfigError(f"the config file {path} has {path.stat().st_size:,} bytes: is it one?")
    depth = 0
    try:
        for event in yaml.parse(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                raise ConfigError(f"the config file {path} has references (*{event.anchor}), which are not read")
            if depth > _DEEPEST:
                raise ConfigError(f"the config file {path} nests more than {_DEEPEST} deep: mend it")
            if depth == 1 and isinstance(event, yaml.SequenceStartEvent):
                raise ConfigError(
                    f"the config file {path} is a list: write lines such as steps: 2000 (fit --help has them all)"
                )
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config file {path} is not YAML: {one_line(str(error), 'fit')}") from error


def read(path: str | Path, **how: Any) -> Domain:
    """Data of any kind that a path may name."""
    from robustda.data.domain import Domain

    return Domain.read(path, **how)


def read_pair(chosen: Namespace) -> tuple[Domain, Domain]:
    """The source and the target that were chosen."""
    columns = {name: chosen[name] for name in COLUMNS}
    source = read(chosen.source, labels="required", **columns)
    return source, read(chosen.target, labels=chosen.target_labels, **columns)


def write_domain(domain: Domain, out: Path, label: str) -> None:
    """Write vectors or images to .npz, or vectors to a table."""
    import numpy as np
    import pandas as pd

    if out.suffix == ".npz":
        with suppress(OSError):  # saving says what is wrong with the place
            out.parent.mkdir(parents=True, exist_ok=True)
        domain.save_npz(out)
        return
    x = np.asarray(domain.x)
    names = domain.features or tuple(f"x{number}" for number in range(x.shape[1]))
    table = pd.DataFrame(x, columns=list(names))
    table.insert(0, "id", domain.ids)
    if domain.y is not None:
        table[label] = domain.labels
    write_table(table, out)


def check_writable(domain: Domain, out: Path) -> None:
    """Refuse what a file of this kind cannot hold, before any work is done."""
    import numpy as np

    if not isinstance(domain.x, np.ndarray):
        raise ConfigError(f"{domain.name} lists image files: give a folder of images, with one sub-folder a class")
    if domain.kind == "images" and out.suffix != ".npz":
        raise ConfigError(f"images do not go into a table: end {out} with .npz")


def write_table(table: Any, out: Path) -> None:
    """Write a table, whole or not at all."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_name(f".{out.name}.part")
        table.to_csv(temporary, index=False) if out.suffix == ".csv" else table.to_parquet(temporary, index=False)
        temporary.replace(out)
    except OSError as error:
        raise ConfigError(f"cannot write {out} ({error.strerror}): choose another place") from error


def one_line(message: str, command: str, known: Sequence[str] = ()) -> str:
    """What the parser has to say, in everyday words, with the option that may have been meant."""
    text = " ".join(message.split())
    if wrong := re.search(r'Parser key "(\w+)": .*value: (.*)$', text):
        kinds = re.findall(r"Expected an? (?:<class '(\w+)'>|typing\.Literal\[(.*?)\])", text)
        wanted = [_KINDS.get(kind, kind) or "one of " * ("," in some) + some.replace("'", "") for kind, some in kinds]
        text = f"{wrong[1]} is {wrong[2]!r}: give {' or '.join(wanted)}" if wanted else text
    unknown = re.search(r"unrecognized arguments: --([\w-]+)|Option '([\w-]+)'", text)
    close = get_close_matches(unknown[1] or unknown[2], known, 1) if unknown else []
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{text} ({hint}robustda {command} --help shows the options)"


def without_name(arguments: list[str], option: str) -> list[str]:
    """The arguments, with what has this name in a place instead: for those who write it as in another command.

    >>> without_name(["--source", "web", "--out", "x"], "--source"), without_name(["--source=web"], "--source")
    (['web', '--out', 'x'], ['web'])
    """
    return [one.removeprefix(f"{option}=") for one in arguments if one != option]


def _last_given(arguments: list[str], option: str) -> str | None:
    found = None
    for number, argument in enumerate(arguments):
        if argument == option and number + 1 < len(arguments):
            found = arguments[number + 1]
        elif argument.startswith(f"{option}="):
            found = argument.partition("=")[2]
    return found
