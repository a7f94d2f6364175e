"""Iceberg through iceberg-java: sessions, catalogs, tables, commits, system tables. Nobody else talks to the JVM."""
