"""probe"""
from __future__ import annotations
import time
import pytest
from feed_builders import *
pytestmark = pytest.mark.spark

def test_one(spark, warehouse, namespace, tmp_path):
    lab = Lab(spark, warehouse, namespace, tmp_path)
    for i in range(4):
        t=time.time()
        lab.feed.data(at(10*i+1), [upsert([i], at(10*i+1), a=i, b="x")])
        lab.feed.resolved(at(10*i+2))
        print(lab.run(), time.time()-t)
        t=time.time(); print(lab.rows(), time.time()-t)
        t=time.time(); print(lab.rows(resolved=at(2)), time.time()-t)
