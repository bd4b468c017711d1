"""Results of many runs as tables: what they hold, how they are read."""

from svmsim.table.schema import TABLES, Column, TableSchema, table_schema, table_schemas
from svmsim.table.table import ResultTable

__all__ = ["TABLES", "Column", "ResultTable", "TableSchema", "table_schema", "table_schemas"]
