"""Ids of resources: parsing and formatting."""

from __future__ import annotations

import random

import pytest

from inmanta.resources import Id, PurgeableResource, resource

SEED = random.randrange(2**32)

TYPE_CHARACTERS = "abcXYZ019_-é"
AGENT_CHARACTERS = "abc.-_ =[]é:/\\'\"\n"
ATTRIBUTE_CHARACTERS = "abc_-. é[]"
VALUE_CHARACTERS = "abc,= [{}é/\\'\"\n*"


def word(source: random.Random, characters: str, longest: int = 8) -> str:
    return "".join(source.choice(characters) for _ in range(source.randint(1, longest)))


def parts(source: random.Random) -> tuple[str, str, str, str, int]:
    names = [word(source, TYPE_CHARACTERS) for _ in range(source.randint(2, 4))]
    version = source.choice([0, 1, 7, 10**9])
    return (
        "::".join(names),
        word(source, AGENT_CHARACTERS),
        word(source, ATTRIBUTE_CHARACTERS),
        word(source, VALUE_CHARACTERS),
        version,
    )


def test_what_is_written_can_be_read() -> None:
    source = random.Random(SEED)
    for _ in range(3000):
        identifier = Id(*parts(source))
        read = Id.parse_id(str(identifier))
        assert read.to_dict() == identifier.to_dict(), f"seed {SEED}"
        assert read == identifier and hash(read) == hash(identifier)
        assert Id.parse_id(identifier.resource_version_str()).to_dict() == identifier.to_dict()
        assert Id.parse_id(identifier.resource_str()).version == 0
        assert Id.is_resource_id(str(identifier))
        assert Id.is_resource_version_id(str(identifier)) == (identifier.version > 0)


def test_reading_anything_gives_an_id_or_a_value_error() -> None:
    source = random.Random(SEED)
    for _ in range(5000):
        text = list(str(Id(*parts(source))))
        for _ in range(source.randint(1, 3)):
            place = source.randrange(len(text))
            text[place : place + source.randint(0, 2)] = source.choice(
                ["", ",", "]", "[", "=", ":", "v", "\n"]
            )
            text = text or ["x"]
        try:
            read = Id.parse_id("".join(text))
        except ValueError:
            continue
        # A trailing line break is not part of it.
        assert "".join(text).rstrip("\n").startswith(read.resource_str()[:-1].rstrip("\n")), f"seed {SEED}"
        assert Id.parse_id(str(read)) == read, f"seed {SEED}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("t::R", "a,b", "n", "v"), "Invalid agent name 'a,b': cannot contain ','."),
        (("t::R", "a", "n,m", "v"), "Invalid attribute name 'n,m': cannot contain ','."),
        (("t::R", "a", "n=m", "v"), "Invalid attribute name 'n=m': cannot contain '='."),
        (("t::R", "a", "n", "v]"), "Invalid attribute value 'v]': cannot contain ']'."),
    ],
)
def test_characters_that_would_make_an_id_unreadable_are_refused(
    arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        Id(*arguments)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["nope", "R[a,b=c]", "t::R[a,b=]", "t::R[,b=c]", "t::R[a,b=c]d]", "t::R[a,b=c]x", ""]
)
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid id for resource"):
        Id.parse_id(text)
    assert not Id.is_resource_id(text)


def test_versions() -> None:
    identifier = Id("t::R", "a", "n", "v")
    assert str(identifier) == "t::R[a,n=v]"
    assert identifier.resource_version_str() == "t::R[a,n=v],v=0"
    identifier.set_version(4)
    identifier.set_version(4)
    assert str(identifier) == "t::R[a,n=v],v=4"
    with pytest.raises(AttributeError):
        identifier.set_version(5)
    assert identifier.copy(version=9).version == 9
    assert identifier != identifier.copy(version=9)
    assert Id.parse_id("t::R[a,n=v],v=1", version=5).version == 5
    assert Id.set_version_in_id("t::R[a,n=v],v=1", 5) == "t::R[a,n=v],v=5"
    with pytest.raises(ValueError, match="Version is missing"):
        Id.parse_resource_version_id("t::R[a,n=v]")


def test_parts_and_instance() -> None:
    identifier = Id.parse_id("mod::sub::R[a,n=v],v=2")
    assert identifier.get_inmanta_module() == "mod"
    assert (identifier.get_entity_type(), identifier.get_agent_name()) == ("mod::sub::R", "a")
    assert (identifier.get_attribute(), identifier.get_attribute_value(), identifier.get_version()) == (
        "n",
        "v",
        2,
    )
    assert identifier.get_instance() is None

    @resource("mod::sub::R", agent="a", id_attribute="n")
    class Some(PurgeableResource):
        fields = ("n",)

    instance = identifier.get_instance()
    assert isinstance(instance, Some) and instance.id == identifier and instance.n is None  # type: ignore[attr-defined]
