"""Object stores as sources read them and workers write them: one way to name, open, try again and explain.

    url + options --places, options--> StoreSettings --stores--> Store --trying--> an answer, or a Failure
                       credentials: found once, on the driver      vending: renewed by the worker, before they end

Options bear Iceberg's FileIO names (`s3.endpoint`, `gcs.oauth2.token`, `adls.sas-token.<account>`, ...), since that is
what a catalog hands out; people may write the short ones (`endpoint`, `region`, `access_key_id`, ...).
"""
