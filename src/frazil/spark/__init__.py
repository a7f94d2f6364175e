"""What every Spark job here shares: how work is divided, how errors come back."""
