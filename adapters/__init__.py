"""Everything that touches the outside: JAX and the TPU compiler, models, the command line, the web."""
