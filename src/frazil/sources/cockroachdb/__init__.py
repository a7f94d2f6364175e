"""CockroachDB changefeeds in cloud storage, or over SQL (`sinkless`).

    feed      file_names, listing, location     driver: what is resolved, which files a window needs
    source, beginning, latecomers               driver: where a table begins, who writes to the prefix
    schema    resolve <-- profile, describe_sql driver: what the tables look like, and who told it
    reader    lines | csv_rows | parquet_rows   executor: bytes -> envelope -> key, position, op: change rows
    decode    decoder --> Arrow columns         executor: the fast road, or the exact one value by value

Every format becomes the same payload, a JSON object of columns, so one decoder serves all of them.
"""
