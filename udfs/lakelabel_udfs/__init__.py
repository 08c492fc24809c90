"""What runs on the executors of a Lakelabel job, and the types that cross the wire to them."""
