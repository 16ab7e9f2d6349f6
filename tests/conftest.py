"""Fixtures that start real servers live in modules of their own; one of each a session."""

pytest_plugins = [
    "tests.fixtures_bench",
    "tests.fixtures_head",
    "tests.fixtures_autoscaling",
    "tests.fixtures_chaos",
    "tests.fixtures_ray",
    "tests.fixtures_run",
    "tests.fixtures_s3",
    "tests.fixtures_serve",
]
