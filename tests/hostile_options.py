"""Options, config files, weights, searches and decisions that cannot be."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from hostile import bad, fit, images
from robustda.cli import main

# Options and config files.


def option(*words: object, method: str = "rda") -> Callable[[Path], list[str]]:
    return lambda place: fit(place, *words, method=method)


def config(content: str | bytes) -> Callable[[Path], list[str]]:
    def make(place: Path) -> list[str]:
        path = place / "config.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return fit(place, "--config", path, method="rda")

    return make


bad("option", "an option that does not exist", "did you mean epochs?")(option("--epoch", 3))
bad("option", "a method that does not exist", "there is no method 'rad'")(option(method="rad"))
bad("option", "a word for a number", "steps is 'many'", "a whole number")(option("--steps", "many"))
bad("option", "no steps", "steps is 0: give a number of at least 1")(option("--steps", 0))
bad("option", "batches of one", "batch_size is 1: give a number of at least 2")(option("--batch_size", 1))
bad("option", "a learning rate that is no number", "learning_rate is 'nan': give a number")(
    option("--learning_rate", "nan")
)
bad("option", "a learning rate below zero", "give a number of at least 0")(option("--learning_rate", -1))
bad("option", "dropout of everything", "dropout is 1.0: give a number from 0 to 1, less than 1")(option("--dropout", 1))
bad("option", "a share above one", "proxy_share is 2.0: give a number from 0 to 1")(option("--proxy_share", 2))
bad("option", "a noise rate of one", "noise_rate is 1.0: give auto, a number from 0 up to 1")(option("--noise_rate", 1))
bad("option", "noise rates for other classes", "noise_rate has 3 numbers for 2 classes")(
    option("--noise_rate", "[0.1,0.2,0.3]")
)
bad("option", "a choice that is none", "keep_rule", "paper")(option("--keep_rule", "mine"))
bad("option", "a preset that is none", "variant is 'ours': choose one of authors, paper")(option("--variant", "ours"))
bad("option", "a device that is not here", "device 'cuda:99' cannot be used here")(option("--device", "cuda:99"))
bad("option", "a backbone for images on vectors", "is for images, but the data are vectors")(
    option("--backbone", "resnet50")
)
bad("option", "a whole number of 20 digits", "seed is 99999999999999999999: give a smaller number")(
    option("--seed", "9" * 20)
)
bad("option", "a tracker that is none", "there is no tracker 'paper'", "mlflow")(option("--track", "paper"))
bad("option", "no tracker, and one", "give none alone")(option("--track", "none,tensorboard"))
bad("option", "a placement that is none", "placement is 'disk'", "auto, device, stream")(option("--placement", "disk"))
bad("option", "no pieces", "pieces is 0: give a number of at least 1")(option("--pieces", 0))
bad("option", "half a piece", "pieces is '2.5': give a whole number")(option("--pieces", 2.5))
bad("option", "a criterion that is none", "select is 'luck'", "last, im, snd")(option("--select", "luck"))
bad("option", "a rollback to more than everything", "rollback is 2.0")(option("--rollback", 2))
bad("option", "a Hugging Face folder that is not there", "there is no folder")(
    lambda place: fit(place, "--backbone", "hf:/none", source=images()(place), method="mdd")
)


@bad("option", "a file in place of the folder of stages", "cannot keep stages in", "choose another folder for --stages")
def _(place: Path) -> object:
    (place / "stages").write_text("")
    return fit(place, "--stages", place / "stages", method="rda")


@bad("option", "a folder of stages below a file", "cannot keep stages in", "choose another folder for --stages")
def _(place: Path) -> object:
    (place / "file").write_text("")
    return fit(place, "--stages", place / "file" / "stages", method="rda")


bad("option", "no entry in the log", "log_every is 0: give a number of at least 1")(option("--log_every", 0))
bad("config", "a key that does not exist", "did you mean epochs?")(config("epochz: 3\n"))
bad("config", "a wrong type", "steps", "a whole number")(config("steps: [1, 2]\n"))
bad("config", "a value out of range", "steps is -5: give a number of at least 1")(config("steps: -5\n"))
bad("config", "no YAML", "is not YAML")(config("steps: [1, 2\n"))
bad("config", "a list in place of names", "config.yaml")(config("- 1\n- 2\n"))
bad("config", "random bytes", "config.yaml")(config(np.random.default_rng(4).bytes(300)))
bad("config", "code to be run", "config.yaml")(config("steps: !!python/object/apply:os.system ['true']\n"))
bad("config", "references that multiply", "config.yaml")(
    config(
        "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    )
)
bad("config", "lists in lists, 20,000 deep", "config.yaml")(config("steps: " + "[" * 20_000 + "]" * 20_000))


@bad("config", "no such file", "none.yaml")
def _(place: Path) -> object:
    return fit(place, "--config", place / "none.yaml", method="rda")


@bad("option", "a file in place of a run folder", "cannot write to the run folder")
def _(place: Path) -> object:
    (place / "run").write_text("")
    return fit(place)


def weights(content: bytes, name: str = "w.safetensors") -> Callable[[Path], list[str]]:
    def make(place: Path) -> list[str]:
        (place / name).write_bytes(content)
        return fit(place, "--weights", place / name, "--backbone", "mlp", "--steps", 2, method="mdd")

    return make


def tensors(header: str, body: bytes = b"", length: int | None = None) -> bytes:
    content = header.encode()
    return struct.pack("<Q", len(content) if length is None else length) + content + body


bad("weights", "a pickle", "is not a safetensors file")(weights(b"\x80\x02}q\x00.", "w.pt"))
bad("weights", "a header longer than the file", "is not a safetensors file")(weights(tensors("{}", length=2**60)))
bad("weights", "a tensor larger than the file", "is not a safetensors file")(
    weights(tensors('{"w":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4000000000]}}'))
)
bad("weights", "no such file", "there is no weights file")(
    lambda place: fit(place, "--weights", place / "n.safetensors", "--backbone", "mlp", method="mdd")
)


@bad("weights", "of another network", "is it another model?")
def _(place: Path) -> object:
    save_file({"layers.0.weight": torch.zeros(3, 3)}, place / "w.safetensors")
    return fit(place, "--weights", place / "w.safetensors", "--backbone", "mlp", "--steps", 2, method="mdd")


# Searches.


def search(*words: str) -> Callable[[Path], list[str]]:
    def make(place: Path) -> list[str]:
        given = fit(place, method="rda")
        return ["tune", *given[1:7], "--out", str(place / "study"), "--search", *words]

    return make


bad("tune", "nothing to search", "there is nothing to search")(lambda place: search("beta=1:2")(place)[:-2])
bad("tune", "an option that does not exist", "rda has no option 'foo' to search")(search("foo=1:2"))
bad("tune", "no values", "cannot read the search 'beta='")(search("beta="))
bad("tune", "one value", "beta has one value only")(search("beta=1"))
bad("tune", "a range of words", "the range 'a:b' of beta cannot be read")(search("beta=a:b"))
bad("tune", "a range backwards", "low below high")(search("beta=2:1"))
bad("tune", "a range that is no number", "the range 'nan:1' of beta cannot be read")(search("beta=nan:1"))
bad("tune", "an infinite range", "beta is inf")(search("beta=1:inf"))
bad("tune", "a logarithm from 0 on", "a logarithm needs more than 0")(search("beta=0:1:log"))
bad("tune", "half an epoch", "epochs takes whole numbers")(search("epochs=1.5:3"))
bad("tune", "10³⁰ epochs", "epochs is 1", "give a smaller number")(search("epochs=1:1e30"))
bad("tune", "no steps", "steps is 0: give a number of at least 1")(search("steps=0:5"))
bad("tune", "a choice that is none", "keep_rule is 'foo': choose one of")(search("keep_rule=paper,foo"))
bad("tune", "a bracket that does not close", "keep_rule is '[': choose one of")(search("keep_rule=[,paper"))
bad("tune", "a range of words that are choices", "keep_rule is no number")(search("keep_rule=a:b"))
bad("tune", "one option twice", "beta is searched twice")(search("beta=1:2", "beta=1:3"))
bad("tune", "no trials", "trials is 0: give a number of at least 1")(search("beta=1:2", "--trials", "0"))
bad("tune", "a criterion that is none", "criterion is 'luck'", "im, snd, bnm, dev")(
    search("beta=1:2", "--criterion", "luck")
)
bad("tune", "a search of auto's", "there is no method 'auto'")(search("beta=1:2", "--method", "auto"))

# The method that chooses by itself.


def auto(*words: object) -> Callable[[Path], list[str]]:
    return lambda place: fit(place, *words, method="auto")


for spoken in ("nan", "inf", "soon"):
    bad("auto", f"{spoken} minutes", f"minutes is '{spoken}': give a number")(auto("--minutes", spoken))
bad("auto", "minutes below 0", "minutes is -1.0: give a number of at least 0")(auto("--minutes", -1))
bad("auto", "an option of one method", "unrecognized arguments: --alpha", "robustda fit --method auto --help")(
    auto("--alpha", 3)
)
bad("auto", "a seed below 0", "seed is -1: give a number of at least 0")(auto("--seed", -1))
bad("auto", "decisions that are not there", "cannot read the decisions")(auto("--decisions", "none.csv"))
bad("auto", "a tracker that is none", "there is no tracker 'paper'")(auto("--track", "paper"))
bad("auto", "in a config file, with words for numbers", "minutes is 'soon': give a number")(
    lambda place: [*config("minutes: soon\n")(place), "--method", "auto"]
)


@bad("auto", "a file in place of a run folder", "cannot write to the run folder")
def _(place: Path) -> object:
    (place / "run").write_text("")
    return auto()(place)


@bad("auto", "over a run of one method", "holds a run of one method: choose another --out")
def _(place: Path) -> object:
    assert main(fit(place)) == 0
    return auto()(place)


# Data sets to pack.


def pack(*words: object, name: str = "office31") -> Callable[[Path], list[str]]:
    return lambda place: ["data", "pack", name, str(place), *map(str, words)]


bad("data pack", "a data set that nobody knows", "unknown data set 'foo'")(pack("--out", "p", name="foo"))
bad("data pack", "a data set that is not packed", "what can be packed is office31")(
    pack("--out", "p", name="office-home")
)
bad("data pack", "nowhere to put it", "what can be packed is office31", "--out NEW")(pack())
bad("data pack", "no data", "is missing: put it there")(lambda place: pack("--out", place / "p")(place))
bad("data pack", "into a folder that is there", "is there already: name a new folder")(
    lambda place: pack("--out", place)(place)
)
bad("data pack", "images of no size", "size is 0")(lambda place: pack("--out", place / "p", "--size", 0)(place))
bad("data pack", "a quality of 900", "quality 900")(lambda place: pack("--out", place / "p", "--quality", 900)(place))
bad("data pack", "a draw of noise that is none", "'foo' names no draw of noise")(
    lambda place: pack("--out", place / "p", "--noises", "[foo]")(place)
)
bad("data pack", "what is neither check nor pack", "what is 'unpack'")(
    lambda place: ["data", "unpack", "office31", str(place)]
)

# Decisions.


def decisions(content: str | bytes) -> Callable[[Path], list[str]]:
    def make(place: Path) -> list[str]:
        (place / "decisions.csv").write_bytes(content.encode() if isinstance(content, str) else content)
        return fit(place, "--decisions", place / "decisions.csv")

    return make


bad("decisions", "no such columns", "decisions.csv")(decisions("a,b\n1,2\n"))
bad("decisions", "a decision that is none", "is 'burn': write")(decisions("id,decision,label\n0,burn,\n"))
bad("decisions", "a new label that is missing", "gives no label")(decisions("id,decision,label\n0,relabel,\n"))
bad("decisions", "random bytes", "decisions.csv")(decisions(np.random.default_rng(5).bytes(300)))
bad("decisions", "NUL bytes", "decisions.csv")(decisions(b"id,decision,label\n0,\0,\n"))
