"""The names of columns, from how a row is written down."""


def names_of(row: str) -> list[str]:
    """The columns of a row such as `source string, tags array<string>`, in which no type has a comma."""
    return [column.split()[0] for column in row.split(",")]
