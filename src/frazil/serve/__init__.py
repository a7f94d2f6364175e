"""What a running pipeline offers over the network."""
