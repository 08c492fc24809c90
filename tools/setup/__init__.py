"""What `make setup` does: the environment, Java, the Delta jars and the small model, each made once."""
