from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    DATA: _ClassVar[Kind]
    EQUALITY_DELETE: _ClassVar[Kind]
    POSITION_DELETE: _ClassVar[Kind]
    PARTIAL: _ClassVar[Kind]
KIND_UNSPECIFIED: Kind
DATA: Kind
EQUALITY_DELETE: Kind
POSITION_DELETE: Kind
PARTIAL: Kind

class Envelope(_message.Message):
    __slots__ = ("version", "file_closed", "resolved")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FILE_CLOSED_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    version: int
    file_closed: FileClosed
    resolved: Resolved
    def __init__(self, version: _Optional[int] = ..., file_closed: _Optional[_Union[FileClosed, _Mapping]] = ..., resolved: _Optional[_Union[Resolved, _Mapping]] = ...) -> None: ...

class ColumnMetrics(_message.Message):
    __slots__ = ("field_id", "size", "values", "nulls", "nans", "lower", "upper")
    FIELD_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    NULLS_FIELD_NUMBER: _ClassVar[int]
    NANS_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    field_id: int
    size: int
    values: int
    nulls: int
    nans: int
    lower: bytes
    upper: bytes
    def __init__(self, field_id: _Optional[int] = ..., size: _Optional[int] = ..., values: _Optional[int] = ..., nulls: _Optional[int] = ..., nans: _Optional[int] = ..., lower: _Optional[bytes] = ..., upper: _Optional[bytes] = ...) -> None: ...

class Blob(_message.Message):
    __slots__ = ("data_file", "offset", "length")
    DATA_FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    data_file: str
    offset: int
    length: int
    def __init__(self, data_file: _Optional[str] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class FileClosed(_message.Message):
    __slots__ = ("table", "epoch", "batch_id", "worker", "schema_id", "spec_id", "path", "kind", "records", "size", "partition_json", "metrics", "equality_ids", "split_offsets", "digest", "file_hash", "vector", "sort_order_id")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_JSON_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    EQUALITY_IDS_FIELD_NUMBER: _ClassVar[int]
    SPLIT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FILE_HASH_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    SORT_ORDER_ID_FIELD_NUMBER: _ClassVar[int]
    table: str
    epoch: str
    batch_id: str
    worker: int
    schema_id: int
    spec_id: int
    path: str
    kind: Kind
    records: int
    size: int
    partition_json: str
    metrics: _containers.RepeatedCompositeFieldContainer[ColumnMetrics]
    equality_ids: _containers.RepeatedScalarFieldContainer[int]
    split_offsets: _containers.RepeatedScalarFieldContainer[int]
    digest: str
    file_hash: str
    vector: Blob
    sort_order_id: int
    def __init__(self, table: _Optional[str] = ..., epoch: _Optional[str] = ..., batch_id: _Optional[str] = ..., worker: _Optional[int] = ..., schema_id: _Optional[int] = ..., spec_id: _Optional[int] = ..., path: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ..., records: _Optional[int] = ..., size: _Optional[int] = ..., partition_json: _Optional[str] = ..., metrics: _Optional[_Iterable[_Union[ColumnMetrics, _Mapping]]] = ..., equality_ids: _Optional[_Iterable[int]] = ..., split_offsets: _Optional[_Iterable[int]] = ..., digest: _Optional[str] = ..., file_hash: _Optional[str] = ..., vector: _Optional[_Union[Blob, _Mapping]] = ..., sort_order_id: _Optional[int] = ...) -> None: ...

class Resolved(_message.Message):
    __slots__ = ("epoch", "worker", "workers")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    worker: int
    workers: int
    def __init__(self, epoch: _Optional[str] = ..., worker: _Optional[int] = ..., workers: _Optional[int] = ...) -> None: ...
