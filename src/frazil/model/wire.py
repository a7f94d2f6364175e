"""Messages to bytes and back, in the form of `messages.proto`."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from frazil.model import messages_pb2 as pb
from frazil.model.files import Blob, ColumnMetrics, FileClosed, FileKind, Message, Resolved
from frazil.model.ids import TableName
from frazil.model.position import parse_position

VERSION = 1
_KINDS = {
    FileKind.DATA: pb.DATA,
    FileKind.EQUALITY_DELETE: pb.EQUALITY_DELETE,
    FileKind.POSITION_DELETE: pb.POSITION_DELETE,
    FileKind.PARTIAL: pb.PARTIAL,
}
_KINDS_BACK = {number: kind for kind, number in _KINDS.items()}


class BadMessage(ValueError):
    """Bytes that are no message of a version this coordinator knows."""


def encode(message: Message) -> bytes:
    envelope = pb.Envelope(version=VERSION)
    match message:
        case FileClosed():
            envelope.file_closed.CopyFrom(_file_closed(message))
        case Resolved(epoch, worker, workers):
            envelope.resolved.CopyFrom(pb.Resolved(epoch=epoch.text, worker=worker, workers=workers))
    return bytes(envelope.SerializeToString(deterministic=True))


def decode(data: bytes) -> Message:
    envelope = pb.Envelope()
    try:
        envelope.ParseFromString(data)
    except Exception as error:
        raise BadMessage(f"{len(data)} bytes that are no message: {error}") from error
    if envelope.version != VERSION:
        raise BadMessage(f"message version {envelope.version}; this coordinator knows version {VERSION}")
    match envelope.WhichOneof("message"):
        case "file_closed":
            return _from_file_closed(envelope.file_closed)
        case "resolved":
            resolved = envelope.resolved
            return Resolved(parse_position(resolved.epoch), resolved.worker, resolved.workers)
        case other:
            raise BadMessage(f"unknown message {other!r}")


def _file_closed(message: FileClosed) -> pb.FileClosed:
    vector = message.vector
    return pb.FileClosed(
        table=message.table.text,
        epoch=message.epoch.text,
        batch_id=str(message.batch_id),
        worker=message.worker,
        schema_id=message.schema_id,
        spec_id=message.spec_id,
        path=message.path,
        kind=_KINDS[message.kind],
        records=message.records,
        size=message.size,
        partition_json=json.dumps(message.partition),
        metrics=[
            pb.ColumnMetrics(
                field_id=m.field_id,
                size=m.size,
                values=m.values,
                nulls=m.nulls,
                nans=m.nans,
                lower=m.lower,
                upper=m.upper,
            )
            for m in message.metrics
        ],
        equality_ids=message.equality_ids,
        split_offsets=message.split_offsets,
        digest=message.digest,
        file_hash=message.file_hash,
        vector=None
        if vector is None
        else pb.Blob(data_file=vector.data_file, offset=vector.offset, length=vector.length),
        sort_order_id=message.sort_order_id,
    )


def _from_file_closed(message: pb.FileClosed) -> FileClosed:
    if message.kind not in _KINDS_BACK:
        raise BadMessage(f"{message.path} is of an unknown kind {message.kind}")
    vector = message.vector if message.HasField("vector") else None
    return FileClosed(
        table=TableName.parse(message.table),
        epoch=parse_position(message.epoch),
        batch_id=UUID(message.batch_id),
        worker=message.worker,
        schema_id=message.schema_id,
        spec_id=message.spec_id,
        path=message.path,
        kind=_KINDS_BACK[message.kind],
        records=message.records,
        size=message.size,
        partition=tuple(json.loads(message.partition_json)),
        metrics=tuple(_from_metrics(m) for m in message.metrics),
        equality_ids=tuple(message.equality_ids),
        split_offsets=tuple(message.split_offsets),
        digest=message.digest,
        file_hash=message.file_hash,
        vector=None if vector is None else Blob(vector.data_file, vector.offset, vector.length),
        sort_order_id=message.sort_order_id if message.HasField("sort_order_id") else None,
    )


def _from_metrics(m: pb.ColumnMetrics) -> ColumnMetrics:
    def value(name: str, given: Any) -> Any:
        return given if m.HasField(name) else None

    return ColumnMetrics(
        field_id=m.field_id,
        size=value("size", m.size),
        values=value("values", m.values),
        nulls=value("nulls", m.nulls),
        nans=value("nans", m.nans),
        lower=value("lower", m.lower),
        upper=value("upper", m.upper),
    )
