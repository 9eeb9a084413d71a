"""Log lines for machines."""

import json
import logging

from kvcachepool.logs import JsonFormatter


def test_a_line_is_one_json_object():
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.LogRecord("kvcachepool.x", logging.WARNING, "f", 1, "%s: é", ("a",), (ValueError, error, None))
    text = JsonFormatter().format(record)
    line = json.loads(text)
    assert "\n" not in text
    assert (line["level"], line["logger"], line["message"]) == ("warning", "kvcachepool.x", "a: é")
    assert "two\nlines" in line["traceback"]
    assert line["time"].endswith("+00:00")
