"""Everything that touches Iceberg, through the JVM that PySpark's driver already runs.

cache, java, jars --> session --> catalogs --> tables (create, load, evolve) <-- schemas (pure)
                                      |
                                      +--> heads (a table at one moment) --> history (pure: what was published)
                                      |      |
                                      |      v
                                      +--> publish (the one road: stage, commit once) <-- handover (files to Java)
                                      |      ^            failures: what a Java exception proves
                                      |      |
                                      +--> commits (Lake), arbiter (Arbiter)
"""
