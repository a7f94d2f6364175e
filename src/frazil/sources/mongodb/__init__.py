"""MongoDB: a first load of each collection by ranges of `_id`, then its change stream.

    open --> P0 --> ranges --tasks--> steps P0.1, P0.2 ...     (first load, each step an epoch)
               `--> one change stream --> spool --tasks--> T1, T2 ...

`frazil[mongodb]` brings what it needs.
"""
