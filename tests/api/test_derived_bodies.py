"""A body takes its fields' types from the row it shows, an input from the model it fills."""

from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, Field
from rest_framework import serializers

from queries.api.bodies import Body, form_for, serializer_for
from queries.domain.states import Phase, StopMode
from queries.models.drivers import Run


@dataclass(frozen=True)
class Engine:
    power: int
    checked_at: datetime | None


@dataclass(frozen=True)
class Car:
    name: str
    phase: Phase
    wheels: tuple[str, ...]
    engine: Engine | None


@serializer_for(Engine, "power")
class EngineBody(Body):
    """What drives it."""


@serializer_for(
    Car, "name phase wheels engine.power since=engine.checked_at engine doors", name=StopMode
)
class CarBody(Body):
    """A car.

    power: In watts.
    """

    def get_doors(self, car: Car) -> int:
        """Return how many doors it has."""
        return len(car.wheels)


def test_types_come_from_the_row() -> None:
    fields = CarBody().fields
    assert list(fields) == ["name", "phase", "wheels", "power", "since", "engine", "doors"]
    assert list(fields["name"].choices) == ["graceful", "now"]  # type: ignore[attr-defined]
    assert list(fields["phase"].choices) == [str(phase) for phase in Phase]  # type: ignore[attr-defined]
    assert isinstance(fields["power"], serializers.IntegerField)
    assert isinstance(fields["since"], serializers.DateTimeField)
    assert isinstance(fields["engine"], EngineBody)


def test_a_columns_type_and_null_come_from_the_model() -> None:
    @serializer_for(Run, "epoch started_at driver.pid driver=driver_id")
    class Short(Body):
        """A run."""

    fields = Short().fields
    assert not fields["epoch"].allow_null
    assert fields["started_at"].allow_null
    assert fields["pid"].allow_null
    assert isinstance(fields["driver"], serializers.IntegerField)


def test_what_ends_on_the_way_is_null() -> None:
    bare = Car("GRACEFUL", Phase.RUNNING, ("a", "b"), None)
    shown = CarBody(bare).data
    assert (shown["power"], shown["since"], shown["engine"], shown["doors"]) == (
        None,
        None,
        None,
        2,
    )
    whole = Car("NOW", Phase.RUNNING, (), Engine(7, None))
    assert CarBody(whole).data["power"] == 7


def test_the_docstring_says_what_a_field_means() -> None:
    assert CarBody().fields["power"].help_text == "In watts."
    assert CarBody.__doc__ == "A car."


def test_an_input_takes_the_models_defaults_and_limits() -> None:
    class Model(BaseModel):
        name: str
        weight: int = Field(default=1, ge=1, le=9)

    @form_for(Model)
    class Input(Body):
        """An input."""

    assert not Input(data={"weight": 3}).is_valid()
    assert not Input(data={"name": "a", "weight": 0}).is_valid()
    given = Input(data={"name": "a"})
    assert given.is_valid()
    assert given.validated_data == {"name": "a", "weight": 1}
