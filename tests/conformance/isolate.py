"""A plugin of pytest: every test of the suite has a bucket prefix of its own.

The suite clears all buckets of its prefix around each test and fails if it cannot. Without this, one test that leaves a bucket
nobody may empty would fail all tests after it.
"""


def pytest_runtest_setup(item):
    import s3tests.functional as suite

    suite.prefix = suite.choose_bucket_prefix("conf-{random}-")
