"""A plugin of pytest: every bucket that the suite makes is spread over slices, as an administrator does it.

The environment says where the server is administered and how many slices there are to be.
"""

import json
import os
import urllib.error
import urllib.request

import botocore.client

ADMIN, SLICES = os.environ["SPREAD_ADMIN"], int(os.environ["SPREAD_SLICES"])
CONFLICT = 409

asked = botocore.client.BaseClient._make_api_call


def spread(bucket):
    body = json.dumps({"slices": SLICES}).encode()
    url = f"{ADMIN}/s3/buckets/{bucket}/slices"
    request = urllib.request.Request(url, body, {"content-type": "application/json"}, method="PUT")
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        # A bucket that is made again may hold objects.
        if error.code != CONFLICT:
            raise


def ask(client, operation, parameters):
    answer = asked(client, operation, parameters)
    if operation == "CreateBucket":
        spread(parameters["Bucket"])
    return answer


botocore.client.BaseClient._make_api_call = ask
