"""Everything that touches Iceberg, through the JVM that PySpark's driver already runs.

cache, java, jars --> session --> catalogs --> tables (create, load, evolve) <-- schemas (pure)
                                      |
                                      +--> heads (a table at one moment) --> history (pure: what was published)
                                      |      |
                                      |      v
                                      +--> publish (the one road: stage, commit once) <-- handover (files to Java)
                                      |      ^            failures: what a Java exception proves
                                      |      |
                                      +--> commits (Lake), arbiter (Arbiter), checkpoints (for people)
                                      |      ^
                                      |      |
                                      +--> live (what a head holds) <-- listing (pure: which delete applies to what)

handles: functions that run inside the JVM, for whatever would cross to it once per file
jvm: notices that the JVM is lost, and forgets it, so that session starts another one
"""
