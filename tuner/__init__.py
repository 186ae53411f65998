"""The domain and the search of meshwright.

Pure Python, NumPy and Optuna: nothing here knows JAX, SQLAlchemy, a command line or a web server. The packages read as
the funnel runs: ``layouts`` enumerates, ``screening`` bounds, ``program`` is what a compiler made, ``placements`` and
``network`` and ``timeline`` rank, ``search`` drives, ``plans`` is what a deploy applies.
"""
