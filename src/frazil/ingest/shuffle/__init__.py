"""How changes get from the tasks that read them to those that write them."""
