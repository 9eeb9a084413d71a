"""The table of what the engine's key covers, against the schema itself."""

from kvcachepool.backends.registry import BACKENDS
from kvcachepool.schema.coverage import carriers, schema_reference, table
from kvcachepool.schema.flags import SCHEMA_ENV, SCHEMA_FLAGS
from kvcachepool.schema.observed import UNSEEN
from tests.unit.test_cache_schema import SCHEMA_CHANGES, SETS, schema_of

EVERY_FIELD = (
    {name for name, _ in schema_of().fields} | set(SCHEMA_CHANGES) | {field for fields in SETS for field in fields}
)
"""Fields that some pool has in its digest; the changes are checked against the digest there."""


def test_the_table_has_every_field_and_no_other() -> None:
    assert set(table().fields) == EVERY_FIELD


def test_every_field_is_carried_by_a_flag_or_variable_or_is_known_not_to_be() -> None:
    for field in table().fields:
        assert bool(carriers(field)) != (field in UNSEEN), field


def test_every_flag_and_variable_carries_a_field_of_the_table() -> None:
    assert {flag.field for flag in SCHEMA_FLAGS} | set(SCHEMA_ENV.values()) <= set(table().fields)


def test_every_backend_has_a_key_a_version_and_a_row_for_each_field() -> None:
    assert set(table().key) == set(table().versions) == set(BACKENDS)
    for backend in BACKENDS:
        for field in table().fields:
            assert table().of(field, backend).mismatch


def test_every_source_is_named_and_used() -> None:
    assert {row.source for row in table().fields.values()} == set(table().sources)


def test_a_field_that_the_key_covers_can_only_miss() -> None:
    for field, row in table().fields.items():
        if row.covered == "yes":
            assert row.mismatch == ("miss",), field
        else:
            assert row.note or row.source, field


def test_the_reference_has_a_row_for_each_field() -> None:
    lines = schema_reference().splitlines()
    for field in table().fields:
        assert sum(line.startswith(f"| {field} |") for line in lines) == 1
