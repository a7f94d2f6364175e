"""CockroachDB changefeeds in cloud storage.

    names ---> listing ---> source          driver: what is resolved, which files a window needs
                 shapes <-- profile         driver: what the tables look like
    storage -> reader ----> travel rows     executor: lines | csv_rows | parquet_rows -> envelope -> key, position, op
                 decode --> Arrow columns   executor: fast road, or the exact one value by value

Every format becomes the same payload, a JSON object of columns, so one decoder serves all of them.
"""
