#!/bin/sh
# Runs a pipeline through spark-submit, with the driver here and executors on the cluster.
#
#   MASTER=spark://head:7077 SPARK_HOME=/opt/spark sh spark-submit.sh shop.yaml
#
# FRAZIL is a virtual environment with frazil in it, at the same place on every node. Spark must be the version that it
# has (pip show pyspark). Warehouse, feed and executors must see the same storage: s3://..., hdfs://..., or a shared disk.
set -eu

config=${1:?usage: spark-submit.sh CONFIG [OPTIONS of frazil run]}
shift
frazil=${FRAZIL:-/opt/frazil}
master=${MASTER:-spark://head:7077}
here=$(cd "$(dirname "$0")" && pwd)

# Iceberg and the driver of the builtin catalog, downloaded once. Catalogs and storages of a cloud need further jars:
# frazil says which one is missing.
jars=$("$frazil/bin/python" -m frazil.iceberg.jvm.jars | paste -s -d , -)

exec "${SPARK_HOME:?set SPARK_HOME}/bin/spark-submit" \
    --master "$master" \
    --deploy-mode client \
    --driver-memory 2g \
    --executor-memory 2g \
    --jars "$jars${JARS:+,$JARS}" \
    --conf spark.pyspark.python="$frazil/bin/python" \
    --conf spark.pyspark.driver.python="$frazil/bin/python" \
    "$here/frazil_submit.py" run "$config" --set "spark.master=$master" --log-format json "$@"
