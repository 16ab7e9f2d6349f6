"""Properties of the Parquet form: nothing is lost, and any two files can be read together."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from kb_ray.errors import StoreError
from kb_ray.records import Episode, Message, StopReason
from kb_ray.traces.schema import (
    SCHEMA,
    SCHEMA_VERSION,
    check_version,
    conform,
    episode_to_row,
    row_to_episode,
    table_bytes,
    table_of,
)
from tests.unit.traces.examples import any_episode, make_episode


def through_a_file(episode: Episode) -> Episode:
    return row_to_episode(pq.read_table(io.BytesIO(table_bytes([episode]))).to_pylist()[0])


# NaN is not equal to itself: episodes are compared by their JSON, which tells NaN, infinity and null apart.
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(any_episode())
def test_any_episode_comes_back_exactly(episode: Episode) -> None:
    wanted = episode.model_dump_json()
    assert row_to_episode(episode_to_row(episode)).model_dump_json() == wanted
    assert through_a_file(episode).model_dump_json() == wanted


def test_repeated_columns_are_the_best_turns() -> None:
    row = episode_to_row(make_episode())
    assert (row["num_turns"], row["correct"], row["final_triton_code"]) == (2, True, "code 1")
    assert row["final_result"]["speedup"] == 2.5
    assert row["final_result"]["kernel_ms"] == 1.0
    assert row["final_result"]["reference_ms"] is None


def test_an_episode_without_turns_has_no_final_result() -> None:
    row = episode_to_row(make_episode(stop=StopReason.MODEL_ERROR))
    assert (row["num_turns"], row["correct"], row["final_triton_code"], row["final_result"]) == (
        0,
        False,
        None,
        None,
    )


def test_every_file_has_the_same_types_whatever_it_holds() -> None:
    bare = pq.read_schema(io.BytesIO(table_bytes([make_episode(stop=StopReason.INFRA_ERROR)])))
    full = pq.read_schema(io.BytesIO(table_bytes([make_episode()])))
    assert bare.equals(full)
    assert bare.equals(SCHEMA)
    assert "null" not in {str(kind) for kind in leaf_types(bare)}


def leaf_types(schema: pa.Schema) -> list[pa.DataType]:
    def leaves(kind: pa.DataType) -> list[pa.DataType]:
        if pa.types.is_struct(kind):
            return [leaf for field in kind for leaf in leaves(field.type)]
        return leaves(kind.value_type) if pa.types.is_list(kind) else [kind]

    return [leaf for field in schema for leaf in leaves(field.type)]


def test_half_a_surrogate_pair_is_replaced_not_fatal() -> None:
    episode = make_episode().model_copy(update={"messages": (Message(role="user", content="a\ud83dz"),)})
    assert through_a_file(episode).messages[0].content == "a\ufffdz"


def test_a_number_beyond_64_bits_is_told_with_its_episode() -> None:
    episode = make_episode(sample=2**63)
    with pytest.raises(StoreError, match=episode.episode_id):
        table_bytes([episode])


def test_an_older_file_gets_the_missing_fields_as_null() -> None:
    table = table_of([make_episode()])
    turns = table.column("turns").to_pylist()
    for turn in turns[0]:
        del turn["policy_version"]
    old_turn = pa.struct([field for field in SCHEMA.field("turns").type.value_type if field.name != "policy_version"])
    at = table.schema.get_field_index("turns")
    old = table.set_column(at, "turns", pa.array(turns, pa.list_(old_turn))).drop_columns(["error"])
    assert conform(old).schema.equals(SCHEMA)
    assert row_to_episode(conform(old).to_pylist()[0]) == make_episode()


def test_a_newer_file_is_refused() -> None:
    newer = SCHEMA.with_metadata({b"kb_ray.schema_version": str(SCHEMA_VERSION + 1).encode()})
    with pytest.raises(StoreError, match="upgrade kb_ray"):
        check_version(newer)
    check_version(SCHEMA)
