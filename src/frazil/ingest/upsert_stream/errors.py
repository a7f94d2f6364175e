"""Why a batch of a stream is not published, in the words of somebody who has a streaming query and no configuration.

other_query      SourceLost          the checkpoint is another one
gone             TableChanged        dropped or made again under a running query
null_key         BadInput            a row without a key
without_order    BadInput            two rows of a key and no order
kept_filling     CatalogUnavailable  an empty table that never was
for_streams      any                 errors of the other rooms, with hints that lead somewhere from here
"""

from __future__ import annotations

from frazil import errors
from frazil.ingest.upsert_stream.request import UpsertRequest
from frazil.model.ledger import LedgerEntry
from frazil.model.write import DeleteMode


def other_query(entry: LedgerEntry, request: UpsertRequest) -> errors.SourceLost:
    """Another checkpoint counts its batches from 0 again, and all of them would be skipped (H53)."""
    again = (
        "a new target table, since a changelog would hold what is read again twice"
        if request.mode is DeleteMode.APPEND_ONLY
        else "the same target if the new query reads from the start of the changes, or at least from where the old one "
        "ended (rows are replaced by key), else a new target"
    )
    return errors.SourceLost(
        f"{request.target} was published by streaming query {entry.incarnation} up to {entry.resolved}; this is query "
        f"{request.incarnation}, whose batch numbers started again: pipeline {request.job} would take its batches for "
        "replays and skip them",
        hint="A query's id lives in its checkpoint directory: start the query with the checkpointLocation it had "
        "before. If that is lost or cannot be used any more, give the new query another pipeline name than "
        f"{request.job} and {again}.",
        table=request.target.text,
        ledger=entry.incarnation,
        source=request.incarnation,
        batch=request.position.text,
    )


def gone(request: UpsertRequest, what: str) -> errors.TableChanged:
    return errors.TableChanged(
        f"{request.target} was {what} while this query was publishing to it: the batches before {request.position} are "
        "gone from it",
        hint="Bring the table back, or start the query anew with another pipeline name and a new checkpoint, reading "
        "from the start of the changes. Starting it again as it is would fill a new table from this batch on.",
        table=request.target.text,
        what=what,
    )


def null_key(request: UpsertRequest, column: str, rows: int, total: int) -> errors.BadInput:
    return errors.BadInput(
        f"{request.target}: key column {column!r} is null in {rows} of the {total} rows of {request.position}",
        hint="A key cannot be null: filter such rows out before upsert_stream, or choose another key than "
        f"{list(request.source_schema.key)}. Nothing of the batch was published.",
        table=request.target.text,
        column=column,
        batch=request.position.text,
    )


def without_order(request: UpsertRequest, keys: int, total: int) -> errors.BadInput:
    return errors.BadInput(
        f"{request.target}: {request.position} has {total} rows for {keys} keys, and nothing says which row of a key "
        "is the newest",
        hint="Give order_by= the columns that order the versions of a row, or keep one row for each key. Nothing of "
        "the batch was published.",
        table=request.target.text,
        batch=request.position.text,
    )


def kept_filling(request: UpsertRequest) -> errors.CatalogUnavailable:
    return errors.CatalogUnavailable(
        f"{request.target}: other writers kept changing the table while {request.position} was written for it",
        hint="Start the query again: the batch is published on top of what the table holds then.",
        table=request.target.text,
    )


def for_streams(error: errors.FrazilError) -> errors.FrazilError:
    """The same error; where its hint speaks of a configuration or of `frazil rewind`, with another one.

    A query does not send batches again that its checkpoint has behind it, so a table cannot go on from less.
    """
    match error:
        case errors.BadInput(facts={"column": column, "existing": existing}):
            hint = f"Cast {column} to {existing} in the DataFrame before upsert_stream, or store it under another name."
        case errors.TableChanged(facts={"table": table, "column": str(column)}):
            hint = (
                f"Add it again (ALTER TABLE {table} ADD COLUMN {column} ...): rows that are there read NULL in it. Or "
                f"leave {column} out of the DataFrame. Then start the query again."
            )
        case errors.TableChanged(facts={"table": table, "what": "other columns"}):
            hint = f"Start the query again: the batch is written anew for {table} as it is now."
        case errors.TableChanged(facts={"table": table, "published_snapshot": int(snapshot)}):
            hint = (
                f"The query will not send the missing batches again. Set main of {table} forward to snapshot "
                f"{snapshot} and start the query again; or start anew with another pipeline name, a new target and a "
                "new checkpoint."
            )
        case _:
            return error
    return type(error)(error.message, hint=hint, **error.facts)
