"""Options: described in one place, preset by variants, and refused with a sentence that helps."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from typing import Any

import pytest

from robustda.errors import ConfigError
from robustda.methods import MDD, RDA, Method, create_method, method_class, method_names
from robustda.methods.options import options
from robustda.methods.rda import PRESETS
from robustda.methods.registry import register


@pytest.mark.parametrize("name", method_names())
def test_every_option_is_described_once_with_its_type_and_default(name: str) -> None:
    kind = method_class(name)
    found = options(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    assert sorted(option.name for option in found) == sorted(fields)
    for option in found:
        assert len(option.help) > 10, f"{name}.{option.name} has no help"
        assert "\n" not in option.help
        assert option.default == fields[option.name].default
        assert option.default == getattr(kind(), option.name)
        assert option.type is not None
        assert option.owner in {base.__name__ for base in kind.__mro__}


@pytest.mark.parametrize("name", method_names())
def test_every_method_says_what_it_is(name: str) -> None:
    kind = method_class(name)
    assert kind.name == name
    assert kind.summary
    assert kind.paper
    assert kind.__doc__


def test_the_most_specific_options_come_first_and_know_where_they_belong() -> None:
    owners = [option.owner for option in options(RDA)]
    assert list(dict.fromkeys(owners)) == ["RDA", "AdversarialMethod", "Method"]
    assert {option.name: option.owner for option in options(RDA)}["alpha"] == "AdversarialMethod"


def test_a_description_over_several_lines_is_read_whole() -> None:
    described = {option.name: option.help for option in options(Method)}
    assert described["backbone"].startswith("representation ψ: identity, table or mlp")
    assert described["backbone"].endswith("resnet50 above.")


@pytest.mark.parametrize("variant", ["authors", "paper"])
def test_presets_change_the_defaults(variant: str) -> None:
    chosen = RDA(variant=variant)
    for option in options(RDA, variant):
        assert option.default == getattr(chosen, option.name)
        assert option.default == PRESETS[variant].get(option.name, option.default)
    assert {option.name: option.default for option in options(RDA, variant)}["variant"] == variant


def test_both_variants_are_those_of_the_reference() -> None:
    paper, authors = RDA(variant="paper"), RDA(variant="authors")
    assert (paper.alpha, paper.beta, paper.beta_rise) == (3, 0.1, 0)
    assert (authors.alpha, authors.beta, authors.beta_rise) == (4, 0.1, 1000)
    assert (paper.keep_rule, authors.keep_rule) == ("paper", "authors")
    assert (paper.collect, authors.collect) == ("before", "after")
    assert (paper.proxy_size, authors.proxy_size) == ("grow", "shrink")
    assert (paper.first_pair, authors.first_pair) == (True, False)
    assert (paper.classifier_on, authors.classifier_on) == ("proxy", "trusted")
    assert (paper.learning_rate, paper.decay) == (0.001, 0)
    assert (authors.learning_rate, authors.decay) == (0.004, 0.0002)
    for method in (paper, authors):
        assert (method.momentum, method.weight_decay, method.backbone_rate) == (0.9, 5e-4, 0.1)
        assert (method.epochs, method.batch_size, method.width, method.dropout) == (30, 32, 1024, 0.5)
    assert RDA() == authors


def test_what_is_given_wins_over_the_preset() -> None:
    method = RDA(variant="paper", alpha=2.0, first_pair=False)
    assert (method.alpha, method.first_pair, method.keep_rule) == (2.0, False, "paper")
    assert RDA(variant="paper", alpha=4.0).alpha == 4.0  # even where it is the other variant's default
    assert create_method("rda", variant="paper", collect="after").params()["collect"] == "after"
    assert RDA(**method.params()) == method


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"alpha": 0.5}, "alpha is 0.5: give a number of at least 1"),
        ({"alpha": float("nan")}, "alpha is nan: give a number of at least 1"),
        ({"alpha": float("inf")}, "alpha is inf"),
        ({"beta": -0.1}, "beta is -0.1: give a number of at least 0"),
        ({"beta_rise": -1}, "beta_rise is -1: give a number of at least 0"),
        ({"width": 0}, "width is 0: give a number of at least 1"),
        ({"steps": 0}, "steps is 0: give a number of at least 1"),
        ({"batch_size": 1}, "batch_size is 1: give a number of at least 2"),
        ({"learning_rate": -1e-3}, "learning_rate is -0.001: give a number of at least 0"),
        ({"decay": float("nan")}, "decay is nan"),
        ({"weight_decay": -1}, "weight_decay is -1"),
        ({"seed": -1}, "seed is -1: give a number of at least 0"),
        ({"image_size": -8}, "image_size is -8"),
        ({"dropout": 1.0}, "dropout is 1.0: give a number from 0 to 1, less than 1"),
        ({"dropout": -0.1}, "dropout is -0.1: give a number from 0 to 1"),
        ({"momentum": float("nan")}, "momentum is nan: give a number from 0 to 1"),
        ({"epochs": 0}, "epochs is 0: give a number of at least 1"),
        ({"curriculum_rate": -1}, "curriculum_rate is -1"),
        ({"proxy_share": 1.2}, "proxy_share is 1.2: give a number from 0 to 1"),
        ({"noise_rate": 1.0}, "noise_rate is 1.0: give auto, a number from 0 up to 1"),
        ({"noise_rate": -0.1}, "noise_rate is -0.1: give auto, a number"),
        ({"noise_rate": "often"}, "noise_rate is 'often': give auto"),
        ({"noise_rate": [0.1, 1.5]}, "noise_rate is 1.5: give auto"),
        ({"variant": "thesis"}, "variant is 'thesis': choose one of authors, paper"),
    ],
)
def test_bad_values_are_refused_by_name_and_range(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create_method("rda", **given)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "option", [o for o in options(RDA) if typing.get_origin(o.type) is typing.Literal], ids=lambda option: option.name
)
def test_a_word_that_is_no_choice_is_refused_with_the_choices(option: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        RDA(**{option.name: "nonsense"})
    assert option.name in str(caught.value)
    assert all(choice in str(caught.value) for choice in typing.get_args(option.type))


@pytest.mark.parametrize("given", [{"steps": "many"}, {"steps": 2.5}, {"batch_size": 32.5}, {"dropout": None}], ids=str)
def test_values_of_another_type_are_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        create_method("mdd", **given)


def test_edges_of_the_ranges_are_allowed() -> None:
    method = RDA(alpha=1, beta=0, dropout=0, momentum=0, proxy_share=0, noise_rate=0, batch_size=2, weight_decay=0)
    assert method.alpha == 1
    assert RDA(noise_rate=[0.1, 0.0, 0.5]).noise_rate == [0.1, 0.0, 0.5]


@pytest.mark.parametrize(
    ("given", "meant"), [("alpa", "alpha"), ("noise_rat", "noise_rate"), ("learning_rates", "learning_rate")]
)
def test_an_unknown_option_suggests_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"rda has no option '{given}': did you mean {meant}?"):
        create_method("rda", **{given: 1})


def test_an_unknown_option_like_no_other_lists_them_all() -> None:
    with pytest.raises(ConfigError, match=r"source_only has no option 'zzz': it has backbone, .*seed"):
        create_method("source_only", zzz=1)


def test_an_option_of_another_method_is_unknown() -> None:
    with pytest.raises(ConfigError, match="mdd has no option 'del_ocl'"):
        create_method("mdd", del_ocl=True)


def test_an_unknown_method_lists_them_all() -> None:
    with pytest.raises(ConfigError, match=f"no method 'rdaa': choose one of {', '.join(method_names())}"):
        create_method("rdaa")


def test_two_methods_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="two methods are called 'mdd'"):
        register("mdd")(MDD)


@pytest.mark.parametrize("backbone", ["small_cnn", "mlp"])
def test_a_backbone_without_weights_of_its_own_is_not_taken_for_a_pretrained_one(backbone: str) -> None:
    shape = (8, 8, 3) if backbone == "small_cnn" else (5,)
    with contextlib.suppress(ConfigError):  # to refuse is as good as to call it random
        assert not MDD(backbone=backbone, weights="hub").make_backbone(shape).pretrained


def test_a_pretrained_backbone_learns_more_slowly_and_nothing_is_left_out() -> None:
    method = MDD(backbone="small_cnn", backbone_rate=0.1, width=8)
    network = method.network((8, 8, 3), 3)
    assert [group["share"] for group in method.parameter_groups(network)] == [1.0]
    network.backbone.pretrained = True
    groups = method.parameter_groups(network)
    assert [group["share"] for group in groups] == [1.0, 0.1]
    assert {id(p) for p in groups[1]["params"]} == {id(p) for p in network.backbone.parameters()}
    assert sum(len(group["params"]) for group in groups) == len(list(network.parameters()))
