"""docs/results.md: what a campaign's directory holds, for `svmsim describe results -o FILE`."""

from __future__ import annotations

from svmsim.table.schema import schema_markdown

__all__ = ["results_markdown"]

_HEAD = """\
# Results of campaigns

This page is written by `svmsim describe results -o docs/results.md`; a test compares it.

`svmsim sweep` and `Campaign.run` write a directory:

| file | holds |
|:--|:--|
| `campaign.json` | name, question, what was swept, version and build, how many runs ended how |
| `tables/NAME.parquet` | the tables below, but for `events` |
| `events/RUN_ID.parquet` | the events of one run, if the campaign keeps them |
| `journal/` | the full record of each finished run, from which the tables are made |

All tables but `timing` hold the same bytes whenever and wherever the same campaign runs. `run`
joins them.

## Reading

With polars, lazily (`scan`) or with the swept values joined to each row (`frame`):

```python
import svmsim as sv

table = sv.ResultTable.load("out")
table.scan("exits").filter(exit="hlt").collect()
table.frame("exits").group_by("kvm.idle_hlt", "exit").sum()
table.metric("exits.hlt.count")          # one value for each run; table.metrics() lists all
table.to_pandas("runs")
```

With SQL, by DuckDB, without svmsim:

```sql
SELECT r."kvm.idle_hlt", e.exit, sum(e.count) AS exits, sum(e.time_ns) / 1e6 AS time_ms
FROM 'out/tables/exits.parquet' AS e JOIN 'out/tables/runs.parquet' AS r USING (run)
GROUP BY ALL ORDER BY ALL
```

## Tables

"""


def results_markdown() -> str:
    """Return the page."""
    return _HEAD + schema_markdown()
