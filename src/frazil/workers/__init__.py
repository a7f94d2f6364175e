"""Stage 3, WRITE: the Spark task that turns sorted changes into Parquet files and reports them.

travel (rows in, messages out)
   |
fold -> task -> writer -> binding -> parquet -> storage
                             |          `-> metrics
                        arrow_types
job: the Spark glue around all of it; crossing: how an error comes home from an executor
"""
