"""All of these examples in one worker: uvicorn app:app."""

from millrace import asgi

import calculator
import chain
import compose
import hotel
import list as list_example
import media
import single
import social
import transfer
import tree
import url_shortener

EXAMPLES = (
    single,
    chain,
    tree,
    calculator,
    list_example,
    compose,
    url_shortener,
    transfer,
    hotel,
    media,
    social,
)

services = [service for example in EXAMPLES for service in example.services]
app = asgi(*services)
