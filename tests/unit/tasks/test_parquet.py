"""Rows of a Parquet file come by number in any order, with a batch of them in memory at a time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import FUNCTION, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.errors import ConfigError
from kb_ray.tasks import entries
from kb_ray.tasks.parquet import ParquetRows

COUNT = 1500


@pytest.fixture(scope="module", params=[100, 256, 700, COUNT])
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ParquetRows:
    """A file in row groups of several sizes."""
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    table = pa.table({"code": [f"{n}" for n in range(COUNT)], "more": list(range(COUNT))})
    pq.write_table(table, file, row_group_size=request.param)
    return ParquetRows(file, {"code"})


@given(order=st.lists(st.integers(0, COUNT - 1), max_size=8))
@settings(max_examples=30, deadline=None)
def test_a_row_is_itself_wherever_one_reads(rows: ParquetRows, order: list[int]) -> None:
    assert [rows[index] for index in order] == [{"code": str(index)} for index in order]


def test_rows_in_order_are_all_rows(rows: ParquetRows) -> None:
    assert [rows[index]["code"] for index in range(len(rows))] == [str(n) for n in range(COUNT)]
    assert rows.names == {"code", "more"}


@pytest.mark.parametrize("group", [20_000, 1_000])
def test_a_long_file_is_never_in_memory_as_a_whole(tmp_path: Path, group: int) -> None:
    wide = "# " + "x" * 4_000 + "\n"
    table = pa.table({"code": [f"{FUNCTION % n}{wide}" for n in range(20_000)]})
    assert table.nbytes > 80_000_000
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=group)
    del table
    before, most = pa.total_allocated_bytes(), 0
    for number, entry in enumerate(entries(f"file:{tmp_path / 'rows.parquet'}")):
        if number % 200 == 0:
            assert entry.make().reference_code.startswith(FUNCTION % number)
            most = max(most, pa.total_allocated_bytes() - before)
    assert most < 20_000_000


def test_a_damaged_page_is_told_for_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"code": [FUNCTION % n for n in range(2_000)]}), file, use_dictionary=False)
    data = bytearray(file.read_bytes())
    data[100 : len(data) // 2] = bytes(len(data) // 2 - 100)
    file.write_bytes(data)
    assert "no readable Parquet file" in refusal(f"file:{file}")
    with pytest.raises(ConfigError, match="no readable Parquet file"):
        ParquetRows(file, {"code"})[1_999]
