"""What is seen during a storm: the store, and the memory and CPU time of processes."""
